"""Every field of SamplingParams: what is taken, in which form it is kept, and the sentence a wrong
value gets."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError

NAN, INF = math.nan, math.inf

WRONG = {
    "temperature": [-0.1, NAN, INF, -INF, True, "1", None, 10**400, 1j, np.array(1.0)],
    "top_k": [-2, 1.0, True, "5", None, NAN],
    "top_p": [0, 0.0, -0.1, 1.0001, NAN, INF, True, None, "0.9"],
    "min_p": [-0.001, 1.001, NAN, False, None],
    "repetition_penalty": [0, 0.0, -1, 1e-300, 1e7, NAN, INF, True, None],
    "presence_penalty": [-2.01, 2.01, NAN, INF, True, None],
    "frequency_penalty": [-2.01, 2.01, NAN, INF, True, None],
    "logit_bias": [
        [1],
        {-1: 0.0},
        {1.5: 0.0},
        {"a": 0.0},
        {True: 0.0},
        {1: NAN},
        {1: INF},
        {1: "x"},
        {1: True},
        {"1": 0, 1: 1},
    ],
    "bad_words_ids": [[1, 2], [[]], [[-1]], [[1.0]], [[True]], "ab", [["a"]], {1: 2}, 5],
    "bad_words": ["word", [""], [1], [b"x"], {"a": 1}, 3],
    "allowed_token_ids": [[], [-1], [True], [1.0], "12", 5, {1: 1}],
    "suppress_tokens": [[-1], [True], [0.5], "9", 9],
    "min_tokens": [-1, 1.0, True, None, "3"],
    "max_tokens": [0, -1, 2.0, True, "16"],
    "stop": ["", ["a", ""], [1], b"x", 5, {"a": 1}],
    "stop_token_ids": [[-1], [True], "a", [2.0], 3],
    "include_stop_str_in_output": [0, 1, None, "yes"],
    "ignore_eos": [0, None, "no"],
    "skip_special_tokens": [1, None],
    "seed": [2**64, -(2**63) - 1, 1.0, True, "1", NAN],
    "n": [0, -1, 1.0, True, None],
    "logprobs": [-2, 1.0, True, "5"],
    "prompt_logprobs": [-2, 1.0, True],
    "logits_processors": [lambda ids, scores: scores, [1], ["f"], "f"],
    "logits_warpers": [lambda ids, scores: scores, [None]],
    "num_speculative_tokens": [-1, 1.0, True, "4"],
    "prediction": [[-1], [True], 3, [0.5], {"type": "content"}],
    "structured_outputs": [{"schema": {}}],
}


def test_every_field_has_wrong_values_here() -> None:
    assert set(WRONG) == {spec.name for spec in dataclasses.fields(SamplingParams)}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_wrong_value_is_refused_by_field_value_and_what_is_allowed(
    name: str, value: object
) -> None:
    with pytest.raises(UsageError) as refused:
        SamplingParams(**{name: value})
    message = str(refused.value)
    assert message.startswith(name)
    assert "; allowed: " in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -0.5}, "temperature is -0.5; allowed: a finite number >= 0 (0 is greedy)"),
        ({"top_p": 0}, "top_p is 0; allowed: a number > 0 and <= 1"),
        ({"stop": ["a", ""]}, "stop is ['a', '']; allowed: a list of non-empty strings"),
        (
            {"logit_bias": {7: INF}},
            "logit_bias[7] is inf; allowed: a number from -1e30 to 1e30, or -inf",
        ),
        (
            {"allowed_token_ids": []},
            "allowed_token_ids is []; allowed: a non-empty list of token ids, or None for all",
        ),
        ({"min_tokens": 20}, "min_tokens is 20; allowed: at most max_tokens, which is 16"),
        (
            {"n": 2, "temperature": 0},
            (
                "n is 2; allowed: 1 at temperature 0, where every text is the same; for "
                "several, give a temperature above 0"
            ),
        ),
        (
            {"seed": 2**64},
            f"seed is {2**64}; allowed: an integer of 64 bits, or None for a fresh one",
        ),
    ],
)
def test_the_sentence(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        SamplingParams(**fields)
    assert str(refused.value) == message


def test_a_long_value_is_not_printed_whole() -> None:
    with pytest.raises(UsageError) as refused:
        SamplingParams(suppress_tokens=[*range(10_000), -1])
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("temperature", 5e-324, 5e-324),
        ("temperature", 0, 0.0),
        ("temperature", 1.7e308, 1.7e308),
        ("temperature", np.float32(0.5), 0.5),
        ("temperature", Fraction(1, 2), 0.5),
        ("top_k", -1, -1),
        ("top_k", np.int64(7), 7),
        ("top_p", 5e-324, 5e-324),
        ("min_p", 1, 1.0),
        ("presence_penalty", -2, -2.0),
        (
            "logit_bias",
            {"50256": -100, 3: -INF, np.int64(4): 0.5},
            {50256: -100.0, 3: -INF, 4: 0.5},
        ),
        ("logit_bias", None, {}),
        ("bad_words_ids", [[4, 5], (9,), [4, 5]], ((4, 5), (9,))),
        ("bad_words", ["a", "b", "a"], ("a", "b")),
        ("allowed_token_ids", range(3), (0, 1, 2)),
        ("allowed_token_ids", None, None),
        ("suppress_tokens", np.array([3, 1, 3]), (3, 1)),
        ("stop", "end", ("end",)),
        ("stop", ["x", "y"], ("x", "y")),
        ("stop", None, ()),
        ("stop_token_ids", {5}, (5,)),
        ("max_tokens", None, None),
        ("seed", -(2**63), -(2**63)),
        ("seed", 2**64 - 1, 2**64 - 1),
        ("logprobs", -1, -1),
        ("num_speculative_tokens", 0, 0),
        ("prediction", "text", "text"),
        ("prediction", [2, 1, 2], (2, 1, 2)),
    ],
)
def test_a_right_value_is_kept_in_plain_form(name: str, given: object, kept: object) -> None:
    value = getattr(SamplingParams(**{name: given}), name)
    assert value == kept
    assert type(value) is type(kept)


def test_defaults_are_those_of_vllm() -> None:
    params = SamplingParams()
    assert (
        params.temperature,
        params.top_k,
        params.top_p,
        params.min_p,
        params.repetition_penalty,
    ) == (1.0, 0, 1.0, 0.0, 1.0)
    assert (params.n, params.max_tokens, params.min_tokens, params.seed, params.logprobs) == (
        1,
        16,
        0,
        None,
        None,
    )
    assert (params.skip_special_tokens, params.ignore_eos, params.include_stop_str_in_output) == (
        True,
        False,
        False,
    )


def test_the_record_is_frozen_hashable_and_travels() -> None:
    params = SamplingParams(logit_bias={3: 1.0}, stop=["a"], bad_words_ids=[[1, 2]])
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.temperature = 2.0  # type: ignore[misc]
    assert hash(params) == hash(
        SamplingParams(logit_bias={3: 1.0}, stop="a", bad_words_ids=[(1, 2)])
    )
    assert pickle.loads(pickle.dumps(params)) == params
    assert dataclasses.replace(params, top_k=3).logit_bias == {3: 1.0}


def test_the_callers_lists_are_not_kept() -> None:
    bias, words = {3: 1.0}, [[1, 2]]
    params = SamplingParams(logit_bias=bias, bad_words_ids=words)
    bias[4], words[0][0] = 2.0, 9
    assert params.logit_bias == {3: 1.0}
    assert params.bad_words_ids == ((1, 2),)


def test_from_dict_reads_json() -> None:
    text = (
        '{"temperature": 1, "stop": "\\n", "logit_bias": {"7": -100}, "max_tokens": null, '
        '"seed": 3}'
    )
    params = SamplingParams.from_dict(json.loads(text))
    assert params == SamplingParams(
        temperature=1.0, stop=["\n"], logit_bias={7: -100.0}, max_tokens=None, seed=3
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("temprature", "did you mean temperature?"),
        ("max_new_tokens", "did you mean max_tokens?"),
        ("topk", "did you mean top_k?"),
        ("zzz", "allowed: temperature, top_k,"),
        (5, "allowed: temperature, top_k,"),
    ],
)
def test_from_dict_refuses_an_unknown_name_with_the_nearest(name: object, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        SamplingParams.from_dict({name: 1})  # type: ignore[dict-item]
    assert str(refused.value).startswith(f"{name!r} is not a sampling parameter; {hint}")


def test_from_dict_wants_a_mapping() -> None:
    with pytest.raises(UsageError, match="a mapping from field names to values"):
        SamplingParams.from_dict([("temperature", 1)])  # type: ignore[arg-type]


class Words:
    """A tokenizer by table; `encode` must be asked not to add special tokens."""

    table = {
        "cat": [7],
        " cat": [17],
        "dog": [8, 9],
        " dog": [18],
        "sun": [5],
        " sun": [1, 5],
        "": [],
        " ": [1],
    }

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return self.table[text]


def test_resolve_encodes_bad_words_with_and_without_a_leading_space() -> None:
    params = SamplingParams(bad_words=["cat", " dog", "sun"], bad_words_ids=[[3, 4]], top_k=5)
    resolved = params.resolve(Words())
    # " sun" is the space and then "sun", so forbidding "sun" forbids it already
    assert resolved == SamplingParams(bad_words_ids=[[3, 4], [7], [17], [8, 9], [18], [5]], top_k=5)
    assert resolved.resolve(None) is resolved


def test_resolve_refuses_a_word_without_tokens() -> None:
    with pytest.raises(
        UsageError, match=r"bad_words is '  '; allowed: strings that the tokenizer turns into"
    ):
        SamplingParams(bad_words=["  "]).resolve(Words())


def test_parameters_load_neither_numpy_nor_torch() -> None:
    code = (
        "import sys; import draftproof.core.params; print([m for m in ('numpy', 'torch', "
        "'transformers') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
