"""`model.generate(custom_generate=draftproof.hf.generate, prediction=…)`."""

from __future__ import annotations

from typing import Any

import pytest

import draftproof
from draftproof.errors import UsageError
from hf_calls import prompts


def test_greedy_is_transformers_greedy_in_fewer_passes(model: Any) -> None:
    inputs = prompts(3)
    asked = dict(do_sample=False, max_new_tokens=24, return_dict_in_generate=True)
    expected = model.generate(**inputs, **asked).sequences
    ours = model.generate(
        **inputs,
        **asked,
        custom_generate=draftproof.hf.generate,
        drafter="prediction",
        prediction=expected[0, 3:].tolist(),
    )
    assert ours.sequences.tolist() == expected.tolist()
    assert ours.statistics[0].num_rounds < 8


def test_refused_where_nothing_reads_it(model: Any) -> None:
    with pytest.raises(UsageError, match="a prediction is read by method 'prediction'"):
        model.generate(
            **prompts(3), max_new_tokens=4, custom_generate=draftproof.hf.generate, prediction=[1]
        )
