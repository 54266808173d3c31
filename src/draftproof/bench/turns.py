"""Later turns of a conversation as prompts of their own: the history is plain decoding's, so that
all arms read the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from draftproof.bench.workload import Encoded, Item, encode
from draftproof.core.params import SamplingParams
from draftproof.decode.base import PlainDecoder
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel

TOGETHER = 8
"""Conversations whose steps share a pass."""


def check_turns(which: str) -> str:
    """`which` itself. UsageError unless it is `first` or `all`."""
    if which not in ("first", "all"):
        raise UsageError(f"--turns is {which!r}; allowed: first, all")
    return which


def with_later_turns(
    prompts: Sequence[Encoded],
    target: LanguageModel,
    params: SamplingParams,
    tell: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Encoded]:
    """Every prompt followed by its later turns, each behind the answers the target gives to the
    turns before it.

    The answers end where the model ends them; prompt i has the seed `params.seed` + i. UsageError,
    with the line, for a turn that no longer fits into the context, or that the target cannot
    answer."""
    tokenizer = target.tokenizer
    decoder = PlainDecoder(target, tokenizer)
    turns: list[list[Encoded]] = [[prompt] for prompt in prompts]
    while waiting := [i for i, asked in enumerate(turns) if asked[-1].item.later]:
        seeds = [replace(params, seed=(params.seed or 0) + i, ignore_eos=False) for i in waiting]
        ids = [list(turns[i][-1].ids) for i in waiting]
        answers: dict[int, str] = {}
        tell("plain decoding answers first turns", 0, len(waiting))
        for number, result in decoder.as_finished(ids, seeds, batch_size=min(TOGETHER, len(ids))):
            if result.error is not None:
                raise UsageError(
                    f"{turns[waiting[number]][-1].item.where}: the target cannot answer "
                    f"it: {result.error}"
                )
            answers[number] = result.text
            tell("plain decoding answers first turns", len(answers), len(waiting))
        for number, i in enumerate(waiting):
            item = _next_turn(turns[i][-1].item, answers[number])
            turns[i] += encode(
                [item], tokenizer, target.vocab_size, target.max_length, params.max_tokens or 0
            )
    return [prompt for asked in turns for prompt in asked]


def _next_turn(item: Item, answer: str) -> Item:
    messages: Any = [
        *item.prompt,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": item.later[0]},
    ]
    return replace(
        item, prompt=messages, later=item.later[1:], where=f"{item.where}, next turn", answer=None
    )
