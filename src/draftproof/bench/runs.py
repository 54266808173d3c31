"""What an arm hands back for one prompt, and the rates computed from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from draftproof.core.records import Round


@dataclass(frozen=True)
class Chunk:
    """num_tokens that arrived together, `seconds` after the request was sent. A chunk may hold
    several tokens, or tokens whose text is still held back."""

    seconds: float
    num_tokens: int


@dataclass(frozen=True)
class Run:
    """One prompt through one arm. seconds: the whole request. rounds: draftproof's own, empty for
    other engines.

    num_rounds: target passes, None where an engine does not tell. parts: seconds spent as draft,
    verify and rest, after the pass that read the prompt, where known."""

    token_ids: tuple[int, ...]
    text: str
    seconds: float
    chunks: tuple[Chunk, ...]
    rounds: tuple[Round, ...] = ()
    num_rounds: int | None = None
    parts: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: int | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens received, whatever their text."""
        return sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def tokens_per_second(self) -> float:
        """Tokens over the whole request, reading the prompt included."""
        return self.num_tokens / self.seconds

    @property
    def first_token_seconds(self) -> float | None:
        """Time to the first chunk that holds a token."""
        return next((chunk.seconds for chunk in self.chunks if chunk.num_tokens), None)

    @property
    def seconds_per_token(self) -> float | None:
        """Time per token after the first chunk: (last - first) / tokens that came after the first.
        None when none did."""
        timed = [chunk for chunk in self.chunks if chunk.num_tokens]
        later = sum(chunk.num_tokens for chunk in timed[1:])
        return (timed[-1].seconds - timed[0].seconds) / later if later else None

    @property
    def peak_tokens_per_second(self) -> float | None:
        """The highest rate of any one chunk after the first; never below the average, because it is
        one of what is averaged."""
        timed = [chunk for chunk in self.chunks if chunk.num_tokens]
        gaps = [
            (b.num_tokens, b.seconds - a.seconds) for a, b in zip(timed, timed[1:], strict=False)
        ]
        return max((tokens / gap for tokens, gap in gaps if gap > 0), default=None)

    def as_dict(self) -> dict[str, Any]:
        """Raw figures, ready for JSON."""
        return {
            "token_ids": list(self.token_ids),
            "text": self.text,
            "seconds": self.seconds,
            "num_tokens": self.num_tokens,
            "first_token_seconds": self.first_token_seconds,
            "seconds_per_token": self.seconds_per_token,
            "peak_tokens_per_second": self.peak_tokens_per_second,
            "num_rounds": self.num_rounds,
            "parts": self.parts,
            "peak_memory_bytes": self.peak_memory_bytes,
            "chunks": [[chunk.seconds, chunk.num_tokens] for chunk in self.chunks],
            "rounds": [asdict(record) for record in self.rounds],
        }


def chunks_of_rounds(rounds: Sequence[Round]) -> tuple[Chunk, ...]:
    """One chunk a round, at the time its last part ended."""
    chunks, now = [], 0.0
    for record in rounds:
        now += record.seconds.draft + record.seconds.verify + record.seconds.rest
        chunks.append(Chunk(now, len(record.tokens)))
    return tuple(chunks)


def round_parts(rounds: Sequence[Round]) -> dict[str, float]:
    """Seconds as draft, verify, rest and outside forwards, over the rounds that did not read the
    prompt."""
    later = [record.seconds for record in rounds if not record.reads_prompt]
    parts = {name: sum(getattr(s, name) for s in later) for name in ("draft", "verify", "rest")}
    return parts | {
        "outside_forwards": parts["rest"] + sum(s.draft - s.draft_forward for s in later)
    }
