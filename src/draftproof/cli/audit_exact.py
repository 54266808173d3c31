"""`draftproof audit --exact`: the proof of draftproof's own rules, or of a rule, drafter or step function that is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftproof.audit.proof import Audit


def run(flags: Mapping[str, Any]) -> int:
    """Prove by enumeration; 1 when something is not exact."""
    from draftproof.audit.proof import audit_rules
    from draftproof.cli.progress import telling
    from draftproof.report.tables import json_line

    with telling() as tell:
        rules = [flags["rule"]] if flags["rule"] else None
        found = audit_rules(rules, full=flags["full"], workers=flags["workers"], tell=tell)
    report = found.document()
    _print(found, report)
    if flags["as_json"]:
        print(json_line(report))
    return 0 if found.exact else 1


def _print(found: Audit, report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console, proofs = Console(), found.proofs
    table = Table(title="Law of the first tokens of the decode loop, against the target's")
    for title, how in (
        ("rule", "left"),
        ("cells", "right"),
        ("rounds", "right"),
        ("worst TV", "right"),
        ("worst length error", "right"),
    ):
        table.add_column(title, justify=how)  # type: ignore[arg-type]
    for name in dict.fromkeys(p.case.rule for p in proofs):
        of_rule = [p for p in proofs if p.case.rule == name]
        worst_tv, worst_length = max(p.tv for p in of_rule), max(p.length_error for p in of_rule)
        table.add_row(name, str(len(of_rule)), str(sum(p.rounds for p in of_rule)), f"{worst_tv:.1e}", f"{worst_length:.1e}")
    console.print(table)
    most = Table(title="Accepted at one position of the toys (mean), and the most any rule could make of the same drafts")
    most.add_column("rule")
    most.add_column("drafts")
    for title in ("accepted", "ceiling"):
        most.add_column(title, justify="right")
    for row in found.ceilings:
        kind = row.selection.replace("_", " ")
        most.add_row(row.rule, f"{row.num_drafts} {kind}", f"{row.accepted:.3f}", f"{row.ceiling:.3f}")
    console.print(most)
    faults = Table(title="Planted faults")
    faults.add_column("fault")
    for title in ("TV", "length", "caught"):
        faults.add_column(title, justify="right")
    for c in found.catches:
        caught = ("key repeats" if c.key_repeated else "yes") if c.caught else "[red]NO[/red]"
        faults.add_row(c.mutant.name, f"{c.tv:.1e}", f"{c.length_error:.1e}", caught)
    console.print(faults)
    for cell in report["failed"]:
        console.print(f"[red]not exact[/red]: {cell}")
    console.print(
        f"{report['verdict']}: {report['cases']} cells, {report['mutants_caught']} of {report['mutants']} faults caught"
    )
