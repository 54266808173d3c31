"""What a black box showed: for a terminal, as one HTML page, and as a report to paste into the
tracker of its engine."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from draftproof import __version__
from draftproof.report.figures import BLACK, BLUE, GREEN, RED, panels
from draftproof.report.page import figure, page, preformatted, table
from draftproof.report.result import Column, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from draftproof.audit.black_box.evidence import Evidence
    from draftproof.audit.black_box.run import BlackBox

BINS = 20
COLUMNS = (
    Column("test", "test"),
    Column("events", "n", "d"),
    Column("statistic", "statistic", ".2f"),
    Column("p or 1/e", "chance", ".1e"),
    Column("effect", "effect", ".4f"),
    Column("95% from", "low", ".4f"),
    Column("to", "high", ".4f"),
)

Acceptance = Sequence[tuple[float, float | None]]
"""By position: the share of drafts that were accepted, and the most that any rule could accept
there, if known."""


def result_of(found: BlackBox) -> Result:
    """The table of tests."""
    rows = [
        vars(one) | {"chance": one.chance, "low": one.interval[0], "high": one.interval[1]}
        for one in found.verdict.findings
    ]
    said = [found.verdict.sentence()]
    if found.rounding is not None:
        offset, half = found.rounding
        said.append(
            f"rounding: without speculation the engine's tokens cost {offset:+.4f} nats "
            "more than the local copy expects (95%: "
            f"within {half:.4f}); every test was held against that"
        )
    said.extend(found.notes)
    title = f"{found.engine}: {found.num_tokens} tokens of {found.num_texts} texts"
    return Result("audit", title, COLUMNS, rows, said, lambda figure: None, found.document())


def page_of(found: BlackBox, command: str, acceptance: Acceptance = ()) -> str:
    """One HTML page that fetches nothing. command: what makes it again."""
    result = result_of(found)
    colour = {"exact": GREEN, "not exact": RED, "cannot tell": BLACK}[found.verdict.outcome]
    parts = [
        f'<p class="headline" style="color:{colour}">{html.escape(found.verdict.sentence())}</p>',
        table(result),
    ]
    parts.append(
        "<ul>" + "".join(f"<li>{html.escape(note)}</li>" for note in result.notes[1:]) + "</ul>"
    )
    if found.evidence is not None and found.evidence.marks:
        parts.append("<h2>Transforms of the tokens: flat when they have the target's law</h2>")
        parts.append(figure(lambda drawn: _draw_uniforms(drawn, found.evidence)))
        parts.append("<h2>Bets on faults, text by text</h2>")
        parts.append(figure(lambda drawn: _draw_wealth(drawn, found)))
    if acceptance:
        parts.append("<h2>Accepted drafts by position</h2>")
        parts.append(figure(lambda drawn: _draw_acceptance(drawn, acceptance)))
    parts.append("<h2>To paste into the engine's tracker</h2>")
    parts.append(f"<pre>{html.escape(reproduction(found, command))}</pre>")
    parts.append("<h2>How it was asked</h2>")
    parts.append(preformatted(found.asked))
    return page(f"Audit of {found.engine}", parts)


def reproduction(found: BlackBox, command: str) -> str:
    """Markdown: what was seen, and how to see it again."""
    verdict, words = found.verdict, found.verdict.sentence()
    said = (
        "sampled text does not have the target's law"
        if verdict.exit_code
        else "the law of sampled text"
    )
    lines = [
        f"### {found.engine}: {said}",
        "",
        (
            f"{found.num_tokens} sampled tokens of {found.num_texts} texts, each scored by a "
            "copy of the target model."
        ),
        words[0].upper() + words[1:],
        "",
        "| test | tokens | p (or 1/e) | effect (95% interval) |",
        "|---|---|---|---|",
    ]
    shown = verdict.significant or verdict.findings[:3]
    for one in shown:
        lines.append(
            f"| {one.test} | {one.n} | {one.chance:.1e} | {one.effect:.4f} "
            f"({one.interval[0]:.4f} to {one.interval[1]:.4f}) |"
        )
    return "\n".join(
        [*lines, "", f"To see it again (draftproof {__version__}):", "", "```", command, "```"]
    )


def _draw_uniforms(figure: Figure, evidence: Evidence | None) -> None:
    assert evidence is not None
    uniforms = np.array([mark.uniforms for mark in evidence.marks])
    names = ("tokens by likelihood", "tokens by draft over target")[: uniforms.shape[1]]
    expected = len(uniforms) / BINS
    spread = 1.96 * math.sqrt(expected * (1 - 1 / BINS))
    for axes, name, column in zip(panels(figure, len(names)), names, uniforms.T, strict=True):
        axes.hist(column, bins=BINS, range=(0.0, 1.0), color=BLUE, alpha=0.8)
        axes.axhspan(expected - spread, expected + spread, color="#999999", alpha=0.35, zorder=3)
        axes.axhline(expected, color=BLACK, linewidth=1.2, zorder=4)
        axes.set(xlabel=f"transform, {name}", ylabel="tokens", xlim=(0, 1))
        axes.set_title("grey: 95% of bars of an exact engine", loc="left")


def _draw_wealth(figure: Figure, found: BlackBox) -> None:
    axes = panels(figure, 1)[0]
    starts = [*(found.evidence.starts if found.evidence else ()), found.num_tokens][1:]
    axes.plot([0, *starts], [0.0, *(value / math.log(10) for value in found.wealth)], color=BLUE)
    axes.axhline(
        -math.log10(found.verdict.level),
        color=RED,
        linestyle="--",
        linewidth=1.6,
        label="not exact, whenever it is reached",
    )
    axes.set(xlabel="tokens", ylabel="wealth, powers of ten", xlim=(0, None))
    axes.legend(loc="best")


def _draw_acceptance(figure: Figure, acceptance: Acceptance) -> None:
    axes = panels(figure, 1)[0]
    places = np.arange(1, len(acceptance) + 1)
    axes.bar(places, [share for share, _ in acceptance], color=BLUE, width=0.6, label="accepted")
    known = [
        (place, most)
        for place, (_, most) in zip(places, acceptance, strict=True)
        if most is not None
    ]
    if known:
        axes.plot(
            *zip(*known, strict=True),
            "_",
            color=RED,
            markersize=40,
            markeredgewidth=2.5,
            label="most that a rule can accept",
        )
    axes.set(xlabel="position in the draft", ylabel="share of drafts", ylim=(0, 1), xticks=places)
    axes.legend(loc="best")


def as_arguments(arguments: Sequence[str]) -> str:
    """A command line that can be pasted."""
    import shlex

    return shlex.join(arguments)


def json_document(found: BlackBox) -> dict[str, Any]:
    """What `--json` prints."""
    return {"audit": "black_box", "sentence": found.verdict.sentence(), **found.document()}
