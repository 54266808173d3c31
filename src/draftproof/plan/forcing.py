"""Both models read one text; their laws stand side by side at every position. The one place where
texts are teacher-forced.

Neither model generates: each reads the text once, in blocks, and sessions of several texts share a
pass where the model can do that. `alpha_per_position` takes the overlaps; a plan takes what
`acceptance.py` makes of the laws under its rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from draftproof.plan.acceptance import Judge
from draftproof.workloads.target_answers import target_answers

BLOCK = 64
"""Positions of one text compared at a time: at 152,000 tokens a vocabulary, 40 MB for each array of
float32 logits or laws."""
TOGETHER = 4
"""Texts in one pass."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Text:
    """A prompt and what followed it, as token ids. own: the target wrote the answer; a given one is
    no sample of its law."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    own: bool = True


def write_texts(
    target: LanguageModel,
    prompts: Sequence[tuple[int, ...]],
    params: SamplingParams,
    tell: Callable[[int], None] = lambda done: None,
) -> list[Text]:
    """One text a prompt, written by the target; see `target_answers`."""
    answers = target_answers(target, prompts, params, tell)
    return [Text(ids, tuple(one.token_ids)) for ids, one in zip(prompts, answers, strict=True)]


@dataclass(frozen=True)
class Place:
    """Where a block of rows stands: text number, first position in its answer, and the tokens [n]
    that stand there."""

    text: int
    first: int
    tokens: tuple[int, ...]


@dataclass
class Forced:
    """One text under both models, by position. overlaps: sum of min of both laws. chances: the
    figures of all judges side by side, one row a position."""

    overlaps: list[float] = field(default_factory=list)
    chances: list[list[float]] = field(default_factory=list)


def force(
    target: LanguageModel,
    draft: LanguageModel,
    texts: Sequence[Text],
    params: SamplingParams,
    judges: Sequence[Judge],
    tell: Callable[[int], None] = lambda done: None,
) -> list[Forced]:
    """Overlaps and chances of every text. `tell` is given the number of finished texts. UsageError:
    other tokens."""
    check_vocabularies(target, draft)
    found: list[Forced] = []
    for first in range(0, len(texts), TOGETHER):
        group = texts[first : first + TOGETHER]
        laws = [_pipeline(target, params, text) for text in group]
        forced = [Forced() for _ in group]
        for place, pair in read_blocks((target, draft), group):
            text, one = group[place.text], forced[place.text]
            overlaps, chances = _judged(laws[place.text], pair, text, place, judges)
            one.overlaps += overlaps.tolist()
            one.chances += chances.tolist()
        found += forced
        tell(len(found))
    return found


def read_blocks(
    models: Sequence[LanguageModel], texts: Sequence[Text], rows: int | None = None
) -> Iterator[tuple[Place, list[Array]]]:
    """The logits [n, vocab] of every model for each block of each answer, over the first model's
    ids, block by block.

    rows: positions in a block (BLOCK if None). Sessions are closed when the iterator ends or is
    closed."""
    rows = BLOCK if rows is None else rows
    sessions = [[model.open() for _ in texts] for model in models]
    try:
        for first in range(0, max(len(t.answer) for t in texts), rows):
            live = [i for i, t in enumerate(texts) if first < len(t.answer)]
            blocks = [
                model.extend_many([_step(opened[i], texts[i], first, rows) for i in live])
                for model, opened in zip(models, sessions, strict=True)
            ]
            for number, i in enumerate(live):
                aligned = [
                    align_logits(outputs[number].logits, models[0].vocab_size) for outputs in blocks
                ]
                yield Place(i, first, texts[i].answer[first : first + rows]), aligned
    finally:
        for session in (s for opened in sessions for s in opened):
            session.close()


def overlaps_of(
    laws: LawPipeline,
    pair: Sequence[Array],
    context: Sequence[int],
    paths: Sequence[tuple[int, ...]],
) -> Floats:
    """Overlap at each row of both models' logits [n, vocab]; at temperature 0, whether the two
    favourites agree."""
    if laws.greedy:
        ours, theirs = (np.asarray(laws.greedy_tokens(rows, context, paths)) for rows in pair)
        agree: Floats = (ours == theirs).astype(np.float64)
        return agree
    both = [laws.laws(rows, context, paths) for rows in pair]
    laws.check()
    if all(is_torch_array(law) for law in both):
        both[1] = both[1].to(both[0].device)
    else:
        both = [to_numpy(law) for law in both]
    found: Floats = to_numpy(overlap(*both))
    return found


def _judged(
    laws: LawPipeline, pair: Sequence[Array], text: Text, place: Place, judges: Sequence[Judge]
) -> tuple[Floats, Floats]:
    """Overlaps [n] and the judges' figures [n, m] of one block."""
    context = (*text.prompt, *text.answer[: place.first])
    paths = [place.tokens[:i] for i in range(len(place.tokens))]
    tokens = np.asarray(place.tokens)
    if laws.greedy:
        best: Sequence[Sequence[int]] = [
            [token] for token in laws.greedy_tokens(pair[1], context, paths)
        ]
        width = max(judge.width for judge in judges)
        if width > 1:
            best = [
                laws.best_tokens(row, context, path, width)
                for row, path in zip(pair[1], paths, strict=True)
            ]
        return overlaps_of(laws, pair, context, paths), np.hstack(
            [judge.guesses(best, tokens) for judge in judges]
        )
    target_laws, draft_laws = (to_numpy(laws.laws(rows, context, paths)) for rows in pair)
    laws.check()
    figures = np.hstack([judge.laws(target_laws, draft_laws, tokens) for judge in judges])
    return np.asarray(overlap(target_laws, draft_laws)), figures


def _pipeline(target: LanguageModel, params: SamplingParams, text: Text) -> LawPipeline:
    return LawPipeline(
        params,
        num_prompt_tokens=len(text.prompt),
        vocab_size=target.vocab_size,
        eos_token_ids=target.eos_token_ids,
    )


def _step(session: Session, text: Text, first: int, rows: int) -> Step:
    """The pass whose rows stand before tokens `first`, `first` + 1, ... of the answer."""
    whole = (*text.prompt, *text.answer)
    last = len(text.prompt) + min(first + rows, len(text.answer)) - 1
    unread = whole[session.length : last]
    count = last - (len(text.prompt) + first) + 1
    return Step(session, unread, rows=range(len(unread) - count, len(unread)))


def to_numpy(law: Any) -> Any:
    """An array of any kind, in NumPy."""
    return law.cpu().numpy() if is_torch_array(law) else np.asarray(law)
