"""What the page shows of one recorded run, as plain values ready for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftproof.core.records import ROOT, Draft, Round
from draftproof.decode.record import read_rounds, read_texts
from draftproof.errors import UsageError
from draftproof.view.stream import is_stream, stream_data

ORIGINS = ("draft", "replacement", "bonus", "plain")


def run_data(path: Path) -> dict[str, Any]:
    """The run in the file `path`: a record, or a saved stream of server-sent events. UsageError:
    neither, or numbers that do not fit together; the line is named."""
    if is_stream(path):
        return stream_data(path)
    header, rounds = read_rounds(path)
    texts = read_texts(path)
    sample, shown = -1, []
    for number, (record, given) in enumerate(zip(rounds, texts, strict=True), 2):
        _check(record, f"{path} line {number}")
        sample += record.start == len(header.prompt_token_ids) or sample < 0
        shown.append(round_data(record, given) | {"sample": sample})
    return {
        "name": path.name,
        "target": str(header.target),
        "method": str(header.method),
        "rule": header.rule,
        "num_prompt_tokens": len(header.prompt_token_ids),
        "rounds": shown,
        "acceptance": acceptance(rounds),
    }


def acceptance(rounds: Sequence[Round]) -> list[tuple[int, int]]:
    """Draft position -> how often a draft was accepted there, and how often one was verified
    there."""
    deepest = max((record.reached for record in rounds), default=0)
    return [
        (sum(r.num_accepted_tokens > place for r in rounds), sum(r.reached > place for r in rounds))
        for place in range(deepest)
    ]


def accepted_nodes(record: Round) -> list[int]:
    """The nodes of the draft whose tokens were emitted."""
    draft, node, path = Draft(record.draft_tokens, record.draft_parents), ROOT, []
    for token in record.tokens[: record.num_accepted_tokens]:
        child = draft.child(node, token)
        if child is None:
            break
        node = child
        path.append(node)
    return path


def round_data(record: Round, texts: tuple[list[str], list[str]] | None) -> dict[str, Any]:
    """One round as the page takes it. texts: of its tokens and of its draft's."""
    emitted, drafted = texts or (
        [f"[{t}]" for t in record.tokens],
        [f"[{t}]" for t in record.draft_tokens],
    )
    seconds = record.seconds
    return {
        "start": record.start,
        "tokens": record.tokens,
        "texts": emitted,
        "origins": record.origins,
        "draft_tokens": record.draft_tokens,
        "draft_texts": drafted,
        "draft_parents": record.draft_parents,
        "accepted": accepted_nodes(record),
        "reached": record.reached,
        "drafter": record.drafter,
        "note": record.note,
        "seconds": [seconds.draft, seconds.verify, seconds.rest],
    }


def _check(record: Round, where: str) -> None:
    """UsageError unless tokens have an origin each, drafts a parent before them, and counts and
    seconds are numbers."""
    counts = (
        record.start,
        record.num_accepted_tokens,
        record.reached,
        *record.tokens,
        *record.draft_tokens,
    )
    if not all(type(count) is int and count >= 0 for count in counts):
        raise UsageError(f"{where} has a token or a count that is not a whole number of at least 0")
    if len(record.origins) != len(record.tokens) or not all(
        origin in ORIGINS for origin in record.origins
    ):
        raise UsageError(
            f"{where} does not give each token one of the origins {', '.join(ORIGINS)}"
        )
    parents = record.draft_parents
    if len(parents) != len(record.draft_tokens) or not all(
        type(p) is int and ROOT <= p < n for n, p in enumerate(parents)
    ):
        raise UsageError(f"{where} does not give each drafted token a parent before it")
    seconds = record.seconds
    if not all(
        type(part) in (int, float) and 0 <= part < float("inf")
        for part in (seconds.draft, seconds.verify, seconds.rest)
    ):
        raise UsageError(f"{where} has seconds that are no durations")
    if record.reached > len(record.draft_tokens):
        raise UsageError(
            f"{where} says {record.reached} verified positions of "
            f"{len(record.draft_tokens)} drafted tokens"
        )
