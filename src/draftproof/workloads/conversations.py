"""Later turns of a conversation as prompts of their own: the history is plain decoding's, so that
all arms read the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.workloads.prompt_files import Encoded, Item, encode
from draftproof.workloads.target_answers import target_answers


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
    turns: list[list[Encoded]] = [[prompt] for prompt in prompts]
    while waiting := [i for i, asked in enumerate(turns) if asked[-1].item.later]:
        asked = [turns[i][-1] for i in waiting]
        answers = target_answers(
            target,
            [one.ids for one in asked],
            replace(params, ignore_eos=False),
            lambda done: tell("plain decoding answers first turns", done, len(waiting)),
            numbers=waiting,
            where=[one.item.where for one in asked],
        )
        for i, one, answer in zip(waiting, asked, answers, strict=True):
            turns[i] += encode(
                [_next_turn(one.item, answer.text)],
                target.tokenizer,
                target.vocab_size,
                target.max_length,
                params.max_tokens or 0,
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
