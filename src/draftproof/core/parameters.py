"""The sampling parameters in one table: what each may be, how one asks for it at every door, and
how it is proven.

The checks of `SamplingParams`, the command's flags, what is read from a generation config as it
stands, what is sent to a server and the proof's cells are derived from it. A place that has nothing
to say says `No`, with the reason. Nothing here loads NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from draftproof.core import checks
from draftproof.core.structured import structured_outputs


@dataclass(frozen=True)
class No:
    """Why a parameter has no name at some door, or no case of its own in the proof."""

    reason: str


@dataclass(frozen=True)
class Flag:
    """kind: the type the command line reads. metavar, help: as `--help` shows them. name: the
    flag's name with underscores, where it is not the parameter's. of_texts: only for verbs that
    show a text."""

    kind: Any
    metavar: str
    help: str
    name: str | None = None
    of_texts: bool = False


@dataclass(frozen=True)
class Parameter:
    """check(name, value): the value to keep, or UsageError. role: what it shapes, a token's law,
    the end of the text (and its seed), how a text is shown, or drafts. transformers: the field of
    its `GenerationConfig`; off: the value that means nothing is changed, where the field is read as
    it stands. server: the field of a request to an OpenAI-compatible server (vLLM's additions among
    them).
    proof: name of a case -> the parameter's value in it, over toys of three tokens of which the
    last ends a text."""

    check: Callable[[str, Any], Any]
    role: Literal["law", "end", "text", "draft"]
    flag: Flag | No
    transformers: str | No
    server: str | No
    proof: Mapping[str, Any] | No
    off: Any = None


_Check = Callable[[str, Any], Any]


def _real(allowed: str, test: Callable[[float], bool]) -> _Check:
    return lambda name, value: checks.real(name, value, allowed, test)


def _integer(allowed: str, low: int, high: int | None = None, *, optional: bool = False) -> _Check:
    def check(name: str, value: Any) -> int | None:
        return (
            None if optional and value is None else checks.integer(name, value, allowed, low, high)
        )

    return check


def _allowed_token_ids(name: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    return checks.token_ids(name, value) or checks.refuse(
        name, value, "a non-empty list of token ids, or None for all"
    )


def _prediction(name: str, value: Any) -> str | tuple[int, ...] | None:
    return value if value is None or isinstance(value, str) else checks.token_run(name, value)


def _stop(name: str, value: Any) -> tuple[str, ...]:
    return checks.strings(name, (value,) if isinstance(value, str) else value)


_penalty = _real("a number from -2 to 2", lambda x: -2 <= x <= 2)
_count = "an integer >= 0, -1 for all, or None"

_NOT_IN_CONFIGS = No("generation configs have no such field")
_NOT_OF_THE_LAW = No("it changes no token's law")

PARAMETERS: dict[str, Parameter] = {
    "temperature": Parameter(
        _real("a finite number >= 0 (0 is greedy)", lambda x: 0 <= x < math.inf),
        "law",
        flag=Flag(
            float,
            "X",
            (
                "How random the text is: 0 takes the likeliest token. Default: the model's "
                "own; 0 for plan and bench."
            ),
        ),
        transformers="temperature",
        server="temperature",
        proof={"greedy": 0.0, "temperature 0.5": 0.5, "temperature 2": 2.0},
    ),
    "top_k": Parameter(
        _integer("an integer >= 1, or 0 or -1 for off", -1),
        "law",
        flag=Flag(int, "N", "Draw from the N likeliest tokens only."),
        transformers="top_k",
        server="top_k",
        proof={"top_k": 2},
        off=0,
    ),
    "top_p": Parameter(
        _real("a number > 0 and <= 1", lambda x: 0 < x <= 1),
        "law",
        flag=Flag(float, "X", "Draw from the likeliest tokens that together have probability X."),
        transformers="top_p",
        server="top_p",
        proof={"top_p": 0.8},
        off=1.0,
    ),
    "min_p": Parameter(
        _real("a number from 0 to 1", lambda x: 0 <= x <= 1),
        "law",
        flag=Flag(float, "X", "Draw from tokens at least X times as likely as the likeliest."),
        transformers="min_p",
        server="min_p",
        proof={"min_p": 0.3},
        off=0.0,
    ),
    "repetition_penalty": Parameter(
        _real("a number from 1e-6 to 1e6", lambda x: 1e-6 <= x <= 1e6),
        "law",
        flag=Flag(
            float, "X", "Make tokens of prompt and text less likely to come again; 1 is off."
        ),
        transformers="repetition_penalty",
        server="repetition_penalty",
        proof={"repetition_penalty": 1.4},
        off=1.0,
    ),
    "presence_penalty": Parameter(
        _penalty,
        "law",
        flag=Flag(
            float, "X", "Taken off the logit of every token that was generated before; 0 is off."
        ),
        transformers=_NOT_IN_CONFIGS,
        server="presence_penalty",
        proof={"presence_penalty": 0.8},
    ),
    "frequency_penalty": Parameter(
        _penalty,
        "law",
        flag=Flag(
            float,
            "X",
            "Taken off a token's logit for every time it was generated before; 0 is off.",
        ),
        transformers=_NOT_IN_CONFIGS,
        server="frequency_penalty",
        proof={"frequency_penalty": 0.9},
    ),
    "logit_bias": Parameter(
        checks.biases,
        "law",
        flag=Flag(str, "JSON", "Numbers added to the logits of token ids: '{\"42\": -5}'."),
        transformers="sequence_bias",
        server="logit_bias",
        proof={"logit_bias": {0: 0.7, 1: -0.5}},
    ),
    "bad_words_ids": Parameter(
        checks.token_sequences,
        "law",
        flag=No("--bad-words takes strings"),
        transformers="bad_words_ids",
        server=No("bad_words, in strings"),
        proof={"bad_words_ids": [[0, 1]]},
    ),
    "bad_words": Parameter(
        checks.strings,
        "law",
        flag=Flag(list[str], "TEXT", "A string that must not be generated; repeatable."),
        transformers=_NOT_IN_CONFIGS,
        server="bad_words",
        proof=No("it becomes bad_words_ids"),
    ),
    "allowed_token_ids": Parameter(
        _allowed_token_ids,
        "law",
        flag=No("ids of a tokenizer are for programs"),
        transformers=_NOT_IN_CONFIGS,
        server="allowed_token_ids",
        proof={"allowed_token_ids": [0, 2]},
    ),
    "suppress_tokens": Parameter(
        checks.token_ids,
        "law",
        flag=No("ids of a tokenizer are for programs"),
        transformers="suppress_tokens",
        server=No("logit_bias, or allowed_token_ids"),
        proof={"suppress_tokens": [1]},
    ),
    "min_tokens": Parameter(
        _integer("an integer >= 0", 0),
        "end",
        flag=Flag(int, "N", "Let nothing end the text before it has N tokens."),
        transformers="min_new_tokens",
        server="min_tokens",
        proof=No('the case "min_tokens" beside an end token'),
    ),
    "max_tokens": Parameter(
        _integer("an integer >= 1, or None for no limit but the context", 1, optional=True),
        "end",
        flag=Flag(int, "N", "End the text at N tokens. Default: 256; 64 for plan, 128 for bench."),
        transformers="max_new_tokens",
        server="max_tokens",
        proof={"max_tokens": 3},
    ),
    "stop": Parameter(
        _stop,
        "end",
        flag=Flag(list[str], "TEXT", "End the text where this string appears; repeatable."),
        transformers="stop_strings",
        server="stop",
        proof=_NOT_OF_THE_LAW,
    ),
    "stop_token_ids": Parameter(
        checks.token_ids,
        "end",
        flag=Flag(list[int], "ID", "End the text at this token id; repeatable."),
        transformers=_NOT_IN_CONFIGS,
        server="stop_token_ids",
        proof={"stop_token_ids": [2]},
    ),
    "include_stop_str_in_output": Parameter(
        checks.flag,
        "text",
        flag=Flag(bool, "", "Keep the --stop string at the end of the text."),
        transformers=_NOT_IN_CONFIGS,
        server="include_stop_str_in_output",
        proof=_NOT_OF_THE_LAW,
    ),
    "ignore_eos": Parameter(
        checks.flag,
        "text",
        flag=Flag(bool, "", "Go on after the model's end token, up to --max-tokens."),
        transformers=_NOT_IN_CONFIGS,
        server="ignore_eos",
        proof=No('the case "eos", and all others'),
    ),
    "skip_special_tokens": Parameter(
        checks.flag,
        "text",
        flag=Flag(
            bool,
            "",
            "Show the model's special tokens, as its end token, in the text.",
            "no_skip_special_tokens",
        ),
        transformers=_NOT_IN_CONFIGS,
        server="skip_special_tokens",
        proof=_NOT_OF_THE_LAW,
    ),
    "seed": Parameter(
        _integer(
            "an integer of 64 bits, or None for a fresh one", -(2**63), 2**64 - 1, optional=True
        ),
        "end",
        flag=Flag(
            int,
            "N",
            (
                "Seed of all randomness; the same one gives the same text. Default: a fresh "
                "one, reported; 0 for plan and bench."
            ),
        ),
        transformers=_NOT_IN_CONFIGS,
        server="seed",
        proof=_NOT_OF_THE_LAW,
    ),
    "n": Parameter(
        _integer("an integer >= 1", 1),
        "text",
        flag=Flag(int, "N", "Write N texts for the prompt. Default: 1."),
        transformers="num_return_sequences",
        server="n",
        proof=_NOT_OF_THE_LAW,
        off=1,
    ),
    "logprobs": Parameter(
        _integer(_count, -1, optional=True),
        "text",
        flag=Flag(
            int,
            "N",
            (
                "Put the log-probabilities of the N likeliest tokens at every place into the "
                "--json document."
            ),
        ),
        transformers=_NOT_IN_CONFIGS,
        server="logprobs",
        proof=_NOT_OF_THE_LAW,
    ),
    "prompt_logprobs": Parameter(
        _integer(_count, -1, optional=True),
        "text",
        flag=No("no page shows them"),
        transformers=_NOT_IN_CONFIGS,
        server="prompt_logprobs",
        proof=_NOT_OF_THE_LAW,
    ),
    "logits_processors": Parameter(
        checks.callables,
        "law",
        flag=No("Python functions"),
        transformers=_NOT_IN_CONFIGS,
        server=No("Python functions"),
        proof=No('the case "nothing after an end" has one'),
    ),
    "logits_warpers": Parameter(
        checks.callables,
        "law",
        flag=No("Python functions"),
        transformers=_NOT_IN_CONFIGS,
        server=No("Python functions"),
        proof=No('the case "warper" has one'),
    ),
    "num_speculative_tokens": Parameter(
        _integer("an integer >= 0, or None for the decoder's", 0, optional=True),
        "draft",
        flag=No("-k says it of all requests"),
        transformers=_NOT_IN_CONFIGS,
        server=No("the server's own configuration"),
        proof=_NOT_OF_THE_LAW,
    ),
    "prediction": Parameter(
        _prediction,
        "draft",
        flag=No("--prediction reads a file, for the method that drafts from it"),
        transformers=_NOT_IN_CONFIGS,
        server="prediction",
        proof=_NOT_OF_THE_LAW,
    ),
    "structured_outputs": Parameter(
        structured_outputs,
        "law",
        flag=Flag(
            str,
            "JSON",
            'Keep the text to a grammar: one of {"json": SCHEMA}, {"regex": "..."}, '
            '{"choice": [...]}, {"grammar": "..."} or '
            '{"json_object": true}; or the name of a file that holds one.',
            of_texts=True,
        ),
        transformers=_NOT_IN_CONFIGS,
        server="structured_outputs",
        proof=No('the case "structured_outputs" has a toy grammar'),
    ),
}
"""By the name of the field of `SamplingParams`."""


def server_fields() -> dict[str, str]:
    """Field of a request to a server -> field of `SamplingParams`, for all that a server is asked
    for."""
    return {
        stated.server: name for name, stated in PARAMETERS.items() if isinstance(stated.server, str)
    }
