"""Greedy text against plain greedy text: the same, a tie that rounding decides, or a fault.

Plain text is written twice: where it differs from itself, no difference elsewhere says anything.
Whether a difference is a tie is judged by `decode/ties.py`, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from draftproof.core.params import SamplingParams
from draftproof.decode.base import Decoder
from draftproof.decode.first_difference import FirstDifference, first_difference

Writer = Callable[[Sequence[int], SamplingParams], Sequence[int]]
"""Prompt ids and parameters -> the new token ids."""
SHOWN = 16
"""Tokens of either text that are shown from the first difference on."""


@dataclass(frozen=True)
class Comparison:
    """Two texts for one prompt. prompt: its number. difference: where they first part, None when
    they do not. one, other: what comes from there on, plain first."""

    prompt: int
    length: int
    difference: FirstDifference | None
    one: tuple[int, ...] = ()
    other: tuple[int, ...] = ()

    @property
    def fault(self) -> bool:
        return self.difference is not None and self.difference.verdict != "tie"


@dataclass(frozen=True)
class GreedyAudit:
    """control: plain against plain. texts: plain against the engine with drafts."""

    engine: str
    control: tuple[Comparison, ...]
    texts: tuple[Comparison, ...]

    @property
    def faults(self) -> tuple[Comparison, ...]:
        return tuple(text for text in self.texts if text.fault)

    @property
    def ties(self) -> tuple[Comparison, ...]:
        return tuple(text for text in self.texts if text.difference is not None and not text.fault)

    @property
    def outcome(self) -> str:
        """ "exact": the same but for ties; "not exact"; or "cannot tell", where plain text itself
        is at fault."""
        if any(text.fault for text in self.control):
            return "cannot tell"
        return "not exact" if self.faults else "exact"

    def document(self) -> dict[str, Any]:
        """Ready for JSON, with the keys of docs/json_documents.md."""
        return {
            "verdict": self.outcome,
            "engine": self.engine,
            "texts": len(self.texts),
            "same": sum(text.difference is None for text in self.texts),
            "ties": len(self.ties),
            "faults": len(self.faults),
            "control_differences": sum(text.difference is not None for text in self.control),
            "differences": [
                asdict(text) for text in (*self.control, *self.texts) if text.difference is not None
            ],
        }


def audit_greedy(
    engine: str,
    plain: Writer,
    drafted: Writer,
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    tell: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> GreedyAudit:
    """Write every prompt's text twice plainly and once with drafts. decoder: any of the same
    target, which judges ties."""
    control, texts = [], []
    for number, prompt in enumerate(prompts):
        tell("texts", number, len(prompts))
        first = tuple(plain(prompt, params))
        control.append(
            compared(decoder, number, prompt, first, tuple(plain(prompt, params)), params)
        )
        texts.append(
            compared(decoder, number, prompt, first, tuple(drafted(prompt, params)), params)
        )
    tell("texts", len(prompts), len(prompts))
    return GreedyAudit(engine, tuple(control), tuple(texts))


def compared(
    decoder: Decoder,
    number: int,
    prompt: Sequence[int],
    one: tuple[int, ...],
    other: tuple[int, ...],
    params: SamplingParams,
) -> Comparison:
    """Two texts, plain first."""
    difference = first_difference(decoder, prompt, one, other, params)
    if difference is None:
        return Comparison(number, len(one), None)
    begin = difference.position
    return Comparison(
        number, len(one), difference, one[begin : begin + SHOWN], other[begin : begin + SHOWN]
    )
