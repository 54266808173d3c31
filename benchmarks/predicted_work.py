"""What `predicted_vs_measured.py` has to do, piece by piece and in which order, and what of it is
done already."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raw_lines import append, read_if_there

K = (1, 2, 4, 8)
TEMPERATURES = (0.0, 0.7)
WORKLOADS = ("code-editing", "chat")
PAIRS = {"smollm2+ngram": 6, "smollm2+own layers": 3, "qwen 0.5B -> 1.5B": 3}
"""Pair -> prompts a workload."""
MORE = {
    ("smollm2+ngram", "code-editing", 0.7): ((40, 2, 4), (56, 2, 2)),
    ("qwen 0.5B -> 1.5B", "code-editing", 0.7): ((6, 2, 0),),
    ("qwen 0.5B -> 1.5B", "chat", 0.7): ((8, 2, 0), (12, 2, 0)),
}
"""Group -> waves: prompts in all, planned answers of each further prompt, further visits of timing
between their runs."""
TOGETHER = 4
"""Further prompts whose answers are planned in one piece."""
Line = dict[str, Any]


def answers(pair: str, temperature: float) -> int:
    """Planned answers a prompt in the first wave: one is all there is when greedy."""
    return 1 if temperature == 0 else 2 if pair.startswith("qwen") else 3


@dataclass(frozen=True)
class Piece:
    """A piece of work. prompt: -1 where a piece is about all prompts of its group; visits of the
    second wave count down from -2, and its planned answers are a piece for a few prompts, of which
    this is the first."""

    kind: str
    pair: str
    workload: str
    temperature: float
    prompt: int = -1

    def __str__(self) -> str:
        return (
            f"{self.kind}, {self.pair}, {self.workload}, T = {self.temperature:g}, prompt "
            f"{self.prompt}"
        )


def pieces(pair: str) -> Iterator[Piece]:
    """Texts first, then group by group its costs and its runs; then the second wave."""
    groups = [(workload, temperature) for workload in WORKLOADS for temperature in TEMPERATURES]
    for workload, temperature in groups:
        yield Piece("text", pair, workload, temperature)
    for workload, temperature in groups:
        yield Piece("costs", pair, workload, temperature)
        for prompt in range(PAIRS[pair]):
            yield Piece("run", pair, workload, temperature, prompt)
    for (other, workload, temperature), waves in MORE.items():
        if other == pair:
            for further, _, visits in ranges(pair, waves):
                yield from wave(pair, workload, temperature, further, visits)


def ranges(pair: str, waves: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[range, int, int]]:
    """The further prompts of each wave, and what else is set down for it."""
    first = PAIRS[pair]
    for prompts, each, visits in waves:
        yield range(first, prompts), each, visits
        first = prompts


def wave(
    pair: str, workload: str, temperature: float, further: range, visits: int
) -> Iterator[Piece]:
    """Planned answers of the further prompts, then their runs with the visits spread among them."""
    for prompt in further[::TOGETHER]:
        yield Piece("text", pair, workload, temperature, prompt)
    for place, prompt in enumerate(further):
        if visits and place % -(-len(further) // visits) == 0:
            yield Piece("costs", pair, workload, temperature, PAIRS[pair] - 2 - prompt)
        yield Piece("run", pair, workload, temperature, prompt)


def planned(piece: Piece) -> tuple[range, int]:
    """The prompts of a piece of texts, and how many answers each has."""
    if piece.prompt < 0:
        return range(PAIRS[piece.pair]), answers(piece.pair, piece.temperature)
    waves = ranges(piece.pair, MORE[piece.pair, piece.workload, piece.temperature])
    further, each = next((further, each) for further, each, _ in waves if piece.prompt in further)
    return range(piece.prompt, min(piece.prompt + TOGETHER, further.stop)), each


class Log:
    """The raw lines of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = read_if_there(path)

    def of(self, piece: Piece) -> list[Line]:
        return [
            line
            for line in self.lines
            if all(line[name] == value for name, value in vars(piece).items())
        ]

    def has(self, piece: Piece) -> bool:
        """Whether the piece is complete: a run has all arms, a text all answers."""
        found = self.of(piece)
        if piece.kind == "text":
            prompts, each = planned(piece)
            return len(found) >= len(prompts) * each
        return len(found) >= (len(K) + 1 if piece.kind == "run" else 1)

    def add(self, *lines: Line) -> None:
        self.lines += lines
        append(self.path, *lines)


class Budget:
    """Seconds that may be used: a piece begins only if the longest one of its kind and pair so far
    would still end in time."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.longest: dict[tuple[str, str], float] = {}

    def fits(self, piece: Piece) -> bool:
        guess = 100.0 if piece.pair.startswith("qwen") else 30.0
        return time.monotonic() + self.longest.get((piece.kind, piece.pair), guess) < self.end

    def took(self, piece: Piece, seconds: float) -> None:
        key = piece.kind, piece.pair
        self.longest[key] = max(seconds, self.longest.get(key, 0.0))
