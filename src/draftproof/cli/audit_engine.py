"""`draftproof audit --white-box`: the rounds of an engine against those of an exact one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.audit.engines.rounds import RoundEngine
    from draftproof.audit.white_box.run import WhiteBox
    from draftproof.cli.audit_load import Loaded


def run(flags: Mapping[str, Any]) -> int:
    """Record, test, show; 1 when it is not exact."""
    from draftproof.audit.white_box.run import audit_white_box
    from draftproof.cli.audit_load import load
    from draftproof.cli.progress import telling
    from draftproof.report.tables import json_line

    if flags["temperature"] == 0:
        raise UsageError(
            "at temperature 0 nothing is drawn, so there are no laws to test; audit "
            "greedy text with --greedy"
        )
    loaded = load(flags, temperature=1.0)
    engine, target = engine_of(loaded), loaded.decoder.target
    with telling() as tell:
        found = audit_white_box(
            engine, target, loaded.prompts, loaded.params, level=flags["level"], tell=tell
        )
    _print(found)
    if flags["as_json"]:
        print(json_line(found.document()))
    return found.verdict.exit_code


def engine_of(loaded: Loaded) -> RoundEngine:
    """The engine whose rounds are recorded."""
    if loaded.engine == "ours":
        from draftproof.audit.engines.ours import OurEngine

        return OurEngine(loaded.decoder)
    from draftproof.audit.engines.transformers_assisted import TransformersEngine

    return TransformersEngine(loaded.decoder.target, loaded.draft, loaded.length)


def _print(found: WhiteBox) -> None:
    from rich.console import Console
    from rich.table import Table

    console, battery = Console(highlight=False), found.reading.battery
    title = (
        f"{found.engine}: {battery.num_tokens} tokens of {battery.num_rounds} rounds, as "
        f"rule {found.reading.rule!r}"
    )
    table = Table(title=title)
    for name in ("test", "events", "statistic", "p-value", "effect", "95% interval"):
        table.add_column(name, justify="left" if name == "test" else "right")
    for row in found.verdict.findings:
        interval = f"{row.interval[0]:.4f} to {row.interval[1]:.4f}"
        table.add_row(
            row.test,
            str(row.n),
            f"{row.statistic:.2f}",
            f"{row.chance:.2g}",
            f"{row.effect:.4f}",
            interval,
        )
    console.print(table)
    console.print(
        f"Rounding moves the target's log-probabilities by {found.rounding:.1e} nats; "
        "the tests allow for it."
    )
    for note in found.notes:
        console.print(f"Note: {note}.")
    console.print(found.verdict.sentence(), soft_wrap=True)
