"""Tie or fault: two greedy texts of one target part; does rounding explain it?

A pass over several rows rounds differently from a pass over one, so two tokens that are nearly as
good can change places. How much that moves the distance between two tokens is measured, on this
very model, dtype and text: its last tokens are read again one at a time and several at a time. A
gap between the two tokens that this noise could close is a tie; any other is a fault. So is noise
that no rounding of the dtype makes, as of a model that computes something else in longer passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.models.protocol import LanguageModel, Step, extend

Verdict = Literal["tie", "fault", "drawn"]

WINDOW = 32
"""Tokens that are read again."""
BLOCKS = (2, 5, 9)
"""Tokens of a pass, as verification has them, held against one."""
BEST = 8
"""The best tokens of a row, between which distances are compared."""
MARGIN = 2.0
"""A gap of so many times the noise seen may still be closed by it: rounding adds up over more text
than was read again."""
MOST_ROUNDING = {"float64": 1e-6, "float32": 1e-2}
MOST_ROUNDING_HALF = 0.5
"""The most that rounding moves a distance, in standard deviations of a row's logits; seen: below a
tenth of it."""


@dataclass(frozen=True)
class Judgement:
    """gap: how much better the target, reading one token at a time, finds the one token than the
    other, in nats, after all processors; None where one text had ended, or the target never
    gives one of them. noise: how much passes of several rows move such distances."""

    verdict: Verdict
    gap: float | None
    noise: float
    why: str


def judge(
    target: LanguageModel,
    prompt: Sequence[int],
    common: Sequence[int],
    one: int | None,
    other: int | None,
    params: SamplingParams,
) -> Judgement:
    """Why a text goes on with `one` after `prompt` and the tokens in `common`, and another with
    `other`; None: it ended."""
    context = (*prompt, *common)
    rows, noise, rounding = passes(target, context)
    if one is None or other is None:
        return Judgement(
            "fault",
            None,
            noise,
            "One of the texts ended there and the other did not, which no rounding explains.",
        )
    laws = LawPipeline(
        params,
        num_prompt_tokens=len(prompt),
        vocab_size=target.vocab_size,
        eos_token_ids=target.eos_token_ids,
    )
    gap = abs(laws.advantage(rows[-1], context, one, other))
    if not isfinite(gap):
        return Judgement(
            "fault",
            None,
            noise,
            "A fault, not rounding: the target never gives one of the two tokens there.",
        )
    found = (
        f"{gap:.2g} nats apart, and passes of several rows move such distances by up to {noise:.2g}"
    )
    if params.temperature > 0:
        return Judgement(
            "drawn",
            gap,
            noise,
            f"The two tokens are {found}; whether a draw lay at the edge is not known.",
        )
    if noise > rounding:
        moved = (
            f"passes of one and of several rows differ by {noise:.2g} nats, which no "
            f"rounding of {dtype_of(target)} does"
        )
        return Judgement("fault", gap, noise, f"A fault: {moved}.")
    if gap <= MARGIN * noise:
        return Judgement("tie", gap, noise, f"A tie: the two tokens are {found}.")
    return Judgement("fault", gap, noise, f"A fault, not rounding: the two tokens are {found}.")


def passes(
    target: LanguageModel, tokens: Sequence[int]
) -> tuple[NDArray[np.float64], float, float]:
    """Logits [n, vocab] after the last tokens, read one at a time; by how much reading several at a
    time moves the distance between two of the best tokens; and the most that rounding could."""
    single = last_logits(target, tokens, 1)
    best = np.argsort(-single, axis=1)[:, :BEST]
    near = np.take_along_axis(single, best, axis=1)
    noise = 0.0
    for block in BLOCKS:
        again = np.take_along_axis(last_logits(target, tokens, block), best, axis=1)
        moved = np.subtract(again, near, out=np.zeros_like(near), where=again != near)
        noise = max(noise, float(np.ptp(moved, axis=1).max()))
    share = MOST_ROUNDING.get(dtype_of(target), MOST_ROUNDING_HALF)
    return single, noise, share * max(float(row[np.isfinite(row)].std()) for row in single)


def dtype_of(target: LanguageModel) -> str:
    """What the target computes in."""
    return str(target.dtype).removeprefix("torch.")


def last_logits(target: LanguageModel, tokens: Sequence[int], block: int) -> NDArray[np.float64]:
    """Logits [n, vocab], float64, after the last WINDOW tokens, read `block` at a time behind all
    that stands before them."""
    first = max(len(tokens) - WINDOW, 0)
    rows = []
    session = target.open()
    try:
        if first:
            extend(Step(session, tuple(tokens[:first]), rows=()))
        for begin in range(first, len(tokens), block):
            part = tuple(tokens[begin : begin + block])
            logits = extend(Step(session, part, rows=range(len(part)))).logits
            rows.append(
                logits.double().cpu().numpy()
                if is_torch_array(logits)
                else np.asarray(logits, dtype=np.float64)
            )
    finally:
        session.close()
    return np.concatenate(rows)
