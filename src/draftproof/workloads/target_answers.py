"""The target answers prompts itself, by plain decoding of several side by side, so that their steps
share passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from draftproof.core.params import SamplingParams
from draftproof.decode.base import PlainDecoder
from draftproof.decode.result import Result
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel

TOGETHER = 8
"""Prompts whose steps share a pass."""


def target_answers(
    target: LanguageModel,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    tell: Callable[[int], None] = lambda done: None,
    *,
    numbers: Sequence[int] | None = None,
    where: Sequence[str] | None = None,
) -> list[Result]:
    """One answer a prompt; prompt i has the seed `params.seed` + its number, which is i unless
    `numbers` are given. `tell` is given the number of finished answers. UsageError for a prompt
    that cannot be answered; where: what stands before it then, of each prompt."""
    count = len(prompts)
    each = [replace(params, seed=(params.seed or 0) + i) for i in numbers or range(count)]
    found: dict[int, Result] = {}
    tell(0)
    decoder = PlainDecoder(target, target.tokenizer)
    ids = [list(prompt) for prompt in prompts]
    for index, result in decoder.as_finished(ids, each, batch_size=min(TOGETHER, count)):
        if result.error is not None:
            said = f"the target cannot answer prompt {index + 1}"
            if where:
                said = f"{where[index]}: the target cannot answer it"
            raise UsageError(f"{said}: {result.error}")
        found[index] = result
        tell(len(found))
    return [found[index] for index in range(count)]
