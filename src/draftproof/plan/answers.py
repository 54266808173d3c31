"""The target writes the texts to plan on: plain decoding of several prompts in lockstep, so that their steps share passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from draftproof.core.params import SamplingParams
from draftproof.decode.decoder import PlainDecoder
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
    """One text a prompt; prompt i has the seed `params.seed` + i. `tell` is given the number of finished texts."""
    decoder = PlainDecoder(target, getattr(target, "tokenizer", None))
    texts: list[Text] = []
    for first in range(0, len(prompts), TOGETHER):
        group = [
            (ids, replace(params, seed=(params.seed or 0) + first + i)) for i, ids in enumerate(prompts[first:][:TOGETHER])
        ]
        texts += _lockstep(decoder, group)
        tell(len(texts))
    return texts


def _lockstep(decoder: PlainDecoder, group: Sequence[tuple[tuple[int, ...], SamplingParams]]) -> list[Text]:
    sessions = [decoder.target.open() for _ in group]
    generations = [
        decoder._generation(session, ids, params, 0, False) for session, (ids, params) in zip(sessions, group, strict=True)
    ]
    try:
        while live := [generation for generation in generations if not generation.finished]:
            rounds: list[Any] = [generation.round() for generation in live]
            outputs = decoder.target.extend_many([next(steps) for steps in rounds])
            for steps, output in zip(rounds, outputs, strict=True):
                try:
                    steps.send(output)
                except StopIteration:
                    continue
    finally:
        for session in sessions:
            session.close()
    return [Text(ids, tuple(g.context[len(ids) :])) for (ids, _), g in zip(group, generations, strict=True)]
