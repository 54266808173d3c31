"""The target writes the texts to plan on: plain decoding of several prompts side by side, so that
their steps share passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from draftproof.core.params import SamplingParams
from draftproof.decode.base import PlainDecoder
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.plan.forcing import Text

TOGETHER = 8
"""Prompts whose steps share a pass."""


def write_answers(
    target: LanguageModel,
    prompts: Sequence[tuple[int, ...]],
    params: SamplingParams,
    tell: Callable[[int], None] = lambda done: None,
) -> list[Text]:
    """One text a prompt; prompt i has the seed `params.seed` + i. `tell` is given the number of
    finished texts. UsageError for a prompt that cannot be answered."""
    decoder = PlainDecoder(target, target.tokenizer)
    each = [replace(params, seed=(params.seed or 0) + i) for i in range(len(prompts))]
    answers: dict[int, tuple[int, ...]] = {}
    tell(0)
    for index, result in decoder.as_finished(
        [list(ids) for ids in prompts], each, batch_size=min(TOGETHER, len(prompts))
    ):
        if result.error is not None:
            raise UsageError(f"the target cannot answer prompt {index + 1}: {result.error}")
        answers[index] = tuple(result.token_ids)
        tell(len(answers))
    return [Text(tuple(ids), answers[i]) for i, ids in enumerate(prompts)]
