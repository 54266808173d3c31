"""Both models read one text; at every position their laws are compared, and at the token that stands there.

The overlap is `alpha_per_position`'s; beside it comes the chance min(1, draft_law / target_law) of the text's own token, from
which `rounds.py` sums rounds exactly. Sessions of several texts share a pass where the model can do that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from draftproof.core.laws import overlap
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Array
from draftproof.decode.build import check_vocabularies
from draftproof.models.protocol import LanguageModel, Session, Step
from draftproof.models.vocabulary import align_logits

BLOCK = 64
"""Positions of one text compared at a time: at 152,000 tokens a vocabulary, 40 MB for each array."""
TOGETHER = 4
"""Texts in one pass."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Text:
    """A prompt and what followed it, as token ids. own: the target wrote the answer; a given one is no sample of its law."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    own: bool = True


@dataclass
class Forced:
    """One text under both models, by position. overlaps: sum of min of both laws. coins: min(1, draft/target) at the token."""

    overlaps: list[float] = field(default_factory=list)
    coins: list[float] = field(default_factory=list)


def force(
    target: LanguageModel,
    draft: LanguageModel,
    texts: Sequence[Text],
    params: SamplingParams,
    tell: Callable[[int], None] = lambda done: None,
) -> list[Forced]:
    """Overlaps and coins of every text. `tell` is given the number of finished texts. UsageError: other tokens."""
    check_vocabularies(target, draft)
    found: list[Forced] = []
    for first in range(0, len(texts), TOGETHER):
        found += _force_together((target, draft), texts[first : first + TOGETHER], params)
        tell(len(found))
    return found


def _force_together(models: Sequence[LanguageModel], texts: Sequence[Text], params: SamplingParams) -> list[Forced]:
    target = models[0]
    sessions = [[model.open() for _ in texts] for model in models]
    laws = [
        LawPipeline(params, num_prompt_tokens=len(t.prompt), vocab_size=target.vocab_size, eos_token_ids=target.eos_token_ids)
        for t in texts
    ]
    found = [Forced() for _ in texts]
    try:
        for first in range(0, max(len(t.answer) for t in texts), BLOCK):
            live = [i for i, t in enumerate(texts) if first < len(t.answer)]
            blocks = [
                model.extend_many([_step(opened[i], texts[i], first) for i in live])
                for model, opened in zip(models, sessions, strict=True)
            ]
            for place, i in enumerate(live):
                pair = [align_logits(outputs[place].logits, target.vocab_size) for outputs in blocks]
                _compare(laws[i], pair, texts[i], first, found[i])
    finally:
        for session in (s for opened in sessions for s in opened):
            session.close()
    return found


def _step(session: Session, text: Text, first: int) -> Step:
    """The pass whose rows stand before tokens `first`, `first` + 1, ... of the answer."""
    whole = (*text.prompt, *text.answer)
    last = len(text.prompt) + min(first + BLOCK, len(text.answer)) - 1
    unread = whole[session.length : last]
    count = last - (len(text.prompt) + first) + 1
    return Step(session, unread, rows=range(len(unread) - count, len(unread)))


def _compare(laws: LawPipeline, pair: Sequence[Array], text: Text, first: int, found: Forced) -> None:
    """Add the positions of one block."""
    count = len(pair[0])
    context = (*text.prompt, *text.answer[:first])
    tokens = text.answer[first : first + count]
    paths = [tokens[:i] for i in range(count)]
    if laws.greedy:
        ours, theirs = (np.asarray(laws.greedy_tokens(rows, context, paths)) for rows in pair)
        found.overlaps += (ours == theirs).astype(float).tolist()
        found.coins += (theirs == np.asarray(tokens)).astype(float).tolist()
        return
    target_laws, draft_laws = (_numpy(laws.laws(rows, context, paths)) for rows in pair)
    laws.check()
    found.overlaps += np.asarray(overlap(target_laws, draft_laws)).tolist()
    places = np.arange(count)
    under = [law[places, list(tokens)].astype(np.float64) for law in (target_laws, draft_laws)]
    # a token the target gives nothing (a given answer, not its own) would have been no accepted draft
    found.coins += np.where(under[0] > 0, np.minimum(1.0, under[1] / np.maximum(under[0], 1e-300)), 0.0).tolist()


def _numpy(law: Any) -> Any:
    return law.cpu().numpy() if is_torch_array(law) else law
