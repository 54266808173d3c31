"""`draftproof audit --exact`: prove draftproof's own rules by enumeration, and show that every planted fault is caught."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.audit.ceilings import Achieved
    from draftproof.audit.exact import Proof
    from draftproof.audit.mutants import Catch


def register(app: typer.Typer) -> None:
    app.command("audit")(audit)


def audit(
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Prove it: sum over every outcome of the decode loop on small tables; no model is loaded."
        ),
    ] = False,
    rule: Annotated[str | None, typer.Option("--rule", help="Prove only this rule, as token or match. Default: all.")] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Every combination of rule, drafter and parameters, not only every pair of them; takes hours."
        ),
    ] = False,
    workers: Annotated[int, typer.Option("--workers", min=1, help="How many processes work side by side.")] = max(
        1, (os.cpu_count() or 1)
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on the last line.")] = False,
) -> None:
    """Prove exactness by summing the law of the whole decode loop over every outcome."""
    from draftproof.audit import cells, table
    from draftproof.audit.ceilings import achieved
    from draftproof.audit.mutants import catch
    from draftproof.audit.tree_mutants import MUTANTS
    from draftproof.cli.progress import telling
    from draftproof.core.rules import LOSSLESS, rule_by_name
    from draftproof.report.tables import json_line

    if not exact:
        raise UsageError("say what to audit: --exact proves draftproof's own rules by enumeration")
    if rule and not rule_by_name(rule).lossless:
        raise UsageError(f"rule {rule!r} is lossy by design: there is nothing to prove; allowed: {', '.join(sorted(LOSSLESS))}")
    rules = [rule] if rule else list(LOSSLESS)
    small = (table.covering, table.tree_covering, table.guessed_covering, cells.other_covering, cells.head_covering)
    large = (table.product, table.tree_product, table.guessed_product, cells.other_product, cells.head_product)
    cases = [
        case for part in (*(large if full else small), table.sibling_covering, cells.length_covering) for case in part(rules)
    ]
    mutants = [m for m in MUTANTS if rule is None or m.natural == rule]
    with telling() as tell:
        proofs = _told(cells.prove_all(cases, workers), len(cases), "proving cells", tell)
        catches = _told(map(catch, mutants), len(mutants), "planting faults", tell)
    ceilings = achieved(rules)
    report = _report(proofs, catches, ceilings)
    _print(proofs, catches, ceilings, report)
    if as_json:
        print(json_line(report))
    raise typer.Exit(0 if report["verdict"] == "exact" else 1)


def _told(items: Iterable[Any], total: int, what: str, tell: Callable[[str, int, int], None]) -> list[Any]:
    """The items as a list, their number told as they come."""
    tell(what, 0, total)
    found = []
    for item in items:
        found.append(item)
        tell(what, len(found), total)
    return found


def _report(proofs: list[Proof], catches: list[Catch], ceilings: list[Achieved]) -> dict[str, Any]:
    failed = [p for p in proofs if not p.holds]
    caught = sum(c.caught for c in catches)
    return {
        "verdict": "exact" if not failed and caught == len(catches) else "not exact",
        "max_tv": max(p.tv for p in proofs),
        "max_length_error": max(p.length_error for p in proofs),
        "cases": len(proofs),
        "failed": [_cell(p) for p in failed],
        "mutants": len(catches),
        "mutants_caught": caught,
        "mutant_figures": [
            {
                "name": c.mutant.name,
                "seen_in": c.mutant.seen_in,
                "tv": c.tv,
                "length_error": c.length_error,
                "key_repeated": c.key_repeated,
                "caught": c.caught,
            }
            for c in catches
        ],
        "one_position": [asdict(row) for row in ceilings],
    }


def _cell(proof: Proof) -> dict[str, Any]:
    case = proof.case
    return {
        "rule": case.rule,
        "draft": case.draft,
        "models": case.pair,
        "parameters": case.params,
        "num_speculative_tokens": case.num_speculative_tokens,
        "length": case.length,
        "tv": proof.tv,
        "length_error": proof.length_error,
    }


def _print(proofs: list[Proof], catches: list[Catch], ceilings: list[Achieved], report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
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
    for row in ceilings:
        kind = row.selection.replace("_", " ")
        most.add_row(row.rule, f"{row.num_drafts} {kind}", f"{row.accepted:.3f}", f"{row.ceiling:.3f}")
    console.print(most)
    faults = Table(title="Planted faults")
    faults.add_column("fault")
    for title in ("TV", "length", "caught"):
        faults.add_column(title, justify="right")
    for c in catches:
        caught = ("key repeats" if c.key_repeated else "yes") if c.caught else "[red]NO[/red]"
        faults.add_row(c.mutant.name, f"{c.tv:.1e}", f"{c.length_error:.1e}", caught)
    console.print(faults)
    for cell in report["failed"]:
        console.print(f"[red]not exact[/red]: {cell}")
    console.print(
        f"{report['verdict']}: {report['cases']} cells, {report['mutants_caught']} of {report['mutants']} faults caught"
    )
