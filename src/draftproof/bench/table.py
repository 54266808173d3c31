"""The measurement on a terminal, within 80 columns, and as a `Result` other reports can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from draftproof.report.figures import BLACK, BLUE, heighten
from draftproof.report.result import Column, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = (
    Column("arm", "name"),
    Column("tok/s", "rate", ".1f"),
    Column("tokens\n/round", "tokens_per_round", ".2f"),
    Column("draft\nms", "draft_ms", ".0f"),
    Column("verify\nms", "verify_ms", ".0f"),
    Column("rest\nms", "rest_ms", ".1f"),
    Column("vs plain", "ratio"),
)


SHOWN = 5
"""Positions whose acceptance the terminal shows."""


def bench_result(document: Mapping[str, Any]) -> Result:
    """A result file as table, notes and figure."""
    return Result(
        "bench",
        title_of(document),
        COLUMNS,
        [row(arm) for arm in document["arms"]],
        notes(document),
        drawer(document),
    )


def sections(document: Mapping[str, Any]) -> list[Result]:
    """What a page shows of one document."""
    made = (bench_result(document), acceptance_result(document), task_result(document))
    return [result for result in made if result is not None]


def title_of(document: Mapping[str, Any]) -> str:
    """What was measured, in one line."""
    where, params = document["provenance"], document["params"]
    how = (
        "greedy"
        if params.get("temperature") == 0
        else f"temperature {params.get('temperature', 1.0):g}"
    )
    count, repeats = len(document["prompts"]), document["repeats"]
    target = (
        where["target"].rsplit("/", 1)[-1] if where["target"].count("/") > 1 else where["target"]
    )
    return f"{target} ({where['dtype']}, {where['device']}), {how}, {count} prompts x {repeats}"


def row(arm: Mapping[str, Any]) -> dict[str, Any]:
    """One arm's line; milliseconds of draft, verify and rest are per round."""
    parts = arm["milliseconds_per_round"] or {}
    return {
        "name": arm["name"],
        "rate": arm["tokens_per_second"],
        "tokens_per_round": arm["stats"].get("tokens_per_round"),
        "draft_ms": parts.get("draft"),
        "verify_ms": parts.get("verify"),
        "rest_ms": parts.get("rest"),
        "ratio": ratio_text(arm["ratio_to_plain"]),
    }


def ratio_text(ratio: Mapping[str, float] | None) -> str:
    """`1.52 (1.40-1.63)`."""
    return (
        "" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"
    )


def acceptance_result(document: Mapping[str, Any]) -> Result:
    """How long one waits, how much of the drafts was kept, position by position, and the memory
    held."""
    rows = [_acceptance_row(arm) for arm in document["arms"]]
    columns = [
        Column("arm", "name"),
        Column("first\nms", "first_ms", ".0f"),
        Column("ms per\ntoken", "token_ms", ".1f"),
        Column("drafted\n/round", "drafted", ".1f"),
        Column("accept-\nance", "rate", ".2f"),
        Column("peak\nMB", "memory", ".0f"),
        Column("at position 1, 2,\n... once reached", "by_position"),
    ]
    return Result(
        "acceptance", "Latency, acceptance and memory", columns, rows, (), lambda figure: None
    )


def _acceptance_row(arm: Mapping[str, Any]) -> dict[str, Any]:
    stats, peak = arm["stats"], arm["peak_memory_bytes"]
    positions = (stats.get("acceptance_per_position") or {}).get("conditional") or ()
    shown = [
        ".".join(("", f"{100 * rate:02.0f}")) if rate < 0.995 else "1.0"
        for rate in positions
        if rate is not None
    ]
    drafts = stats.get("num_draft_tokens") if stats.get("method") != "none" else None
    return {
        "name": arm["name"],
        "first_ms": _milliseconds(arm["first_token_seconds"]),
        "token_ms": _milliseconds(arm["seconds_per_token"]),
        "drafted": drafts / stats["num_rounds"]
        if drafts is not None and stats.get("num_rounds")
        else None,
        "rate": stats.get("draft_acceptance_rate"),
        "memory": None if peak is None else peak / 2**20,
        "by_position": " ".join(shown[:SHOWN]) + (" ..." if len(shown) > SHOWN else ""),
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def notes(document: Mapping[str, Any]) -> list[str]:
    """What the figures say and what is doubtful about them, one sentence each."""
    said = [
        (
            "vs plain: tokens per second, median over prompts with a "
            f"{document['level']:.0%} interval from resampled prompts"
        )
    ]
    for arm in document["arms"]:
        ratio, stats = arm["ratio_to_plain"], arm["stats"]
        if ratio and arm["largest_term"] and ratio["median"] < 1:
            said.append(
                f"{arm['name']} is slower than plain decoding; the largest term of its "
                f"rounds is {arm['largest_term']}"
            )
        share = stats.get("share_of_rounds_with_draft")
        if share is not None and arm["stats"]["method"] != "none" and share < 0.9:
            rate = stats["draft_acceptance_rate"]
            accepted = "" if rate is None else f", {rate:.0%} of drafts accepted"
            said.append(f"{arm['name']}: only {share:.0%} of rounds had a draft{accepted}")
        said += [f"{arm['name']}: {text}" for text in stats.get("notes", ())]
    return said + [flag["message"] for flag in document["flags"]]


def task_result(document: Mapping[str, Any]) -> Result | None:
    """The per-task table; None when there is one task."""
    tasks = list(document["arms"][0]["tasks"])
    if len(tasks) < 2:
        return None
    columns = [Column("task", "task"), Column("prompts", "prompts", "d"), Column("arm", "name")]
    columns += [
        Column("tok/s", "rate", ".1f"),
        Column("tokens\n/round", "tokens_per_round", ".2f"),
        Column("vs plain", "ratio"),
    ]
    rows: list[dict[str, Any]] = [
        {
            "task": task if place == 0 else "",
            "prompts": arm["tasks"][task]["prompts"] if place == 0 else None,
            "name": arm["name"],
            "rate": arm["tasks"][task]["tokens_per_second"],
            "tokens_per_round": arm["tasks"][task]["tokens_per_round"],
            "ratio": ratio_text(arm["tasks"][task]["ratio_to_plain"]),
        }
        for task in tasks
        for place, arm in enumerate(document["arms"])
    ]
    return Result("tasks", "By task", columns, rows, (), lambda figure: None)


def drawer(document: Mapping[str, Any]) -> Any:
    """A function that draws every arm's ratio to plain, with its interval and its prompts."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        arms: Sequence[Mapping[str, Any]] = [
            arm for arm in document["arms"] if arm["ratio_to_plain"]
        ]
        heighten(figure, len(arms))
        for place, arm in enumerate(reversed(arms)):
            ratio = arm["ratio_to_plain"]
            reach = [[ratio["median"] - ratio["low"]], [ratio["high"] - ratio["median"]]]
            axes.errorbar([ratio["median"]], [place], xerr=reach, fmt="o", color=BLUE, capsize=4)
        axes.axvline(1, color=BLACK, linestyle="--", linewidth=1.4)
        axes.set_yticks(range(len(arms)), [arm["name"] for arm in reversed(arms)])
        axes.set_xlabel("speed over plain decoding (1 = break even)")
        axes.set_xlim(left=0)

    return draw
