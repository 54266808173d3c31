"""`draftproof audit --exact`: the proof of draftproof's own rules, or of a rule, drafter or step
function that is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from draftproof.errors import UsageError

ROWS = 12
"""Cells of a subject that are shown."""

if TYPE_CHECKING:
    from draftproof.audit.custom.prove import Proven
    from draftproof.audit.proof import Audit


def run(flags: Mapping[str, Any]) -> int:
    """Prove by enumeration; 1 when something is not exact."""
    return _run_ours(flags) if flags["subject"] is None else _run_subject(flags)


def _run_subject(flags: Mapping[str, Any]) -> int:
    """The proof of what `module:name` names."""
    from draftproof.audit.custom.prove import prove_subject
    from draftproof.audit.custom.subjects import subject_named
    from draftproof.cli.progress import telling
    from draftproof.report.tables import json_line

    for name in ("rule", "full"):
        if flags[name]:
            raise UsageError(
                f"--{name} chooses among draftproof's own cells, and {flags['subject']} "
                "has its own: leave it out"
            )
    with telling() as tell:
        found = prove_subject(subject_named(flags["subject"]), tell)
    _print_subject(found)
    if flags["as_json"]:
        print(json_line(found.document()))
    return 0 if found.exact else 1


def _print_subject(found: Proven) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(
        title=(
            f"{found.subject.name}, a {found.subject.kind}: law of the whole decode loop, "
            "against the target's"
        )
    )
    for title in ("models", "drafts", "rule", "most drafted", "tokens/round", "TV"):
        table.add_column(
            title, justify="left" if title in ("models", "drafts", "rule") else "right"
        )
    for cell in sorted(found.cells, key=lambda one: -one.tv)[:ROWS]:
        named = cell.models, cell.draft or "its own", cell.rule or "its own"
        table.add_row(*named, str(cell.k), f"{cell.tokens_per_round:.3f}", f"{cell.tv:.1e}")
    console.print(table)
    if len(found.cells) > ROWS:
        console.print(f"The {ROWS} worst of {len(found.cells)} cells; --json has all.")
    document = found.document()
    if document["first_wrong"] is not None:
        _print_wrong(console, document["first_wrong"])
    if any(cell.key_repeated for cell in found.cells):
        console.print(
            "Two draws on one path ask for the same key of chance, so they are not independent."
        )
    console.print(
        f"{document['verdict']}: largest total variation {document['max_tv']:.1e} over "
        f"{document['cases']} cells"
    )


def _print_wrong(console: Any, wrong: Mapping[str, Any]) -> None:
    """The first context at which the law is wrong, and how chance leads there."""
    prompt = wrong["context"][: wrong["num_prompt_tokens"]]
    emitted = wrong["context"][wrong["num_prompt_tokens"] :]
    after = f"the prompt {prompt}" + (f" and the tokens {emitted}" if emitted else "")
    console.print(
        f"It first goes wrong after {after} (models {wrong['models']!r}, drafts of at "
        f"most {wrong['k']}):"
    )
    for token in dict.fromkeys((*wrong["target_law"], *wrong["loop_law"])):
        right, ours = (wrong[law].get(token, 0.0) for law in ("target_law", "loop_law"))
        console.print(f"  token {token}: the target gives {right:.6f}, the loop {ours:.6f}")
    console.print(
        "Ways of chance to token "
        f"{'(end)' if wrong['token'] is None else wrong['token']}, which comes too often:"
    )
    for way in wrong["ways"]:
        steps = ", then ".join(choice["said"] for choice in way["choices"]) or "always"
        console.print(f"  {way['probability']:.6f}: {steps}", markup=False)


def _run_ours(flags: Mapping[str, Any]) -> int:
    """The proof of draftproof's own rules."""
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
        table.add_row(
            name,
            str(len(of_rule)),
            str(sum(p.rounds for p in of_rule)),
            f"{worst_tv:.1e}",
            f"{worst_length:.1e}",
        )
    console.print(table)
    most = Table(
        title=(
            "Accepted at one position of the toys (mean), and the most any rule could make "
            "of the same drafts"
        )
    )
    most.add_column("rule")
    most.add_column("drafts")
    for title in ("accepted", "ceiling"):
        most.add_column(title, justify="right")
    for row in found.ceilings:
        kind = row.selection.replace("_", " ")
        most.add_row(
            row.rule, f"{row.num_drafts} {kind}", f"{row.accepted:.3f}", f"{row.ceiling:.3f}"
        )
    console.print(most)
    if found.catches:
        _print_faults(console, found)
    else:
        console.print("No fault of such a rule is known to plant.")
    for cell in report["failed"]:
        console.print(f"[red]not exact[/red]: {cell}")
    caught = f"{report['mutants_caught']} of {report['mutants']} faults caught"
    console.print(f"{report['verdict']}: {report['cases']} cells, {caught}")


def _print_faults(console: Any, found: Audit) -> None:
    from rich.table import Table

    faults = Table(title="Planted faults")
    faults.add_column("fault")
    for title in ("TV", "length", "caught"):
        faults.add_column(title, justify="right")
    for c in found.catches:
        caught = ("key repeats" if c.key_repeated else "yes") if c.caught else "[red]NO[/red]"
        faults.add_row(c.mutant.name, f"{c.tv:.1e}", f"{c.length_error:.1e}", caught)
    console.print(faults)
