"""What the target's passes over a recorded text show a drafter: hidden states, its best ids, and
its laws at every token.

One reading of the text in place of the passes that verified it: what a drafter that works on the
target's states is told, round by round, is cut from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Array, Observation
from draftproof.decode.logprobs import top_ids
from draftproof.drafters.protocol import Wants
from draftproof.models.protocol import LanguageModel, Output, Step
from draftproof.plan.forcing import Text, to_numpy

BLOCK = 64
"""Tokens of the text in one pass."""


@dataclass
class Shown:
    """One text under the target. hidden: layer id -> [len - 1, width]. top_ids: [n, count], after
    the prompt and after every token of the answer but the last. laws: [vocab] each, before every
    token of the answer; empty unless asked for."""

    text: Text
    hidden: Mapping[int, Array] = field(default_factory=dict)
    top_ids: Array | None = None
    laws: list[NDArray[Any]] = field(default_factory=list)

    def before(self, place: int) -> Observation:
        """What a drafter is told once the answer's first `place` tokens are committed, the last of
        them still unread, after it was told so for `place` - 1."""
        end = len(self.text.prompt) + place - 1
        begin = 0 if place == 1 else end - 1
        whole = (*self.text.prompt, *self.text.answer)
        top = None if self.top_ids is None else self.top_ids[place - 1 : place]
        return Observation(
            start=begin,
            tokens=whole[begin:end],
            hidden={layer: states[begin:end] for layer, states in self.hidden.items()},
            row_tokens=() if top is None else whole[end - 1 : end],
            row_parents=() if top is None else (-1,),
            top_ids=top,
        )


def show(target: LanguageModel, text: Text, wants: Wants, laws: LawPipeline | None = None) -> Shown:
    """Read `text` for a drafter that wants `wants`; nothing is read when nothing is wanted. laws:
    what makes the target's laws, None when they are not needed."""
    found = Shown(text)
    if not (wants.hidden or wants.top_ids or laws):
        return found
    pieces: list[Mapping[int, Array]] = []
    best: list[Array] = []
    whole, prompt = (*text.prompt, *text.answer), len(text.prompt)
    session = target.open()
    try:
        for first in range(0, len(whole) - 1, BLOCK):
            tokens = whole[first : min(first + BLOCK, len(whole) - 1)]
            rows = range(max(prompt - 1 - first, 0), len(tokens))
            (output,) = target.extend_many([Step(session, tokens, rows=rows, hidden=wants.hidden)])
            pieces.append(output.hidden)
            if len(rows) and wants.top_ids:
                best.append(top_ids(output.logits, wants.top_ids))
            if len(rows) and laws is not None:
                found.laws += _laws(laws, output, text, first + rows[0] + 1 - prompt)
    finally:
        session.close()
    found.hidden = {layer: _joined([piece[layer] for piece in pieces]) for layer in wants.hidden}
    found.top_ids = _joined(best) if best else None
    return found


def _laws(laws: LawPipeline, output: Output, text: Text, first: int) -> list[NDArray[Any]]:
    """The target's laws before the answer's tokens from `first` on."""
    count = output.logits.shape[0]
    paths = [text.answer[first : first + i] for i in range(count)]
    made = laws.laws(output.logits, (*text.prompt, *text.answer[:first]), paths)
    laws.check()
    return list(to_numpy(made))


def _joined(parts: list[Array]) -> Array:
    if is_torch_array(parts[0]):
        import torch

        return torch.cat(list(parts))
    return np.concatenate(parts)
