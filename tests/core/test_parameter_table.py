"""A sampling parameter is whole: checked, asked for at every door, proven; a place that is missing
is named."""

from __future__ import annotations

from dataclasses import fields, make_dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from draftproof import SamplingParams
from draftproof.audit import table
from draftproof.audit.toys import VOCAB
from draftproof.bench.server import request_body
from draftproof.cli.sampling_flags import END_FLAGS, LAW_FLAGS, TEXT_FLAGS
from draftproof.core.generation_config import sampling_fields
from draftproof.core.parameters import PARAMETERS, Flag, No, Parameter, server_fields
from draftproof.core.pipeline import LawPipeline

READ = {
    "sequence_bias": {(1,): 0.5},
    "bad_words_ids": [[1]],
    "suppress_tokens": [1],
    "stop_strings": ["x"],
}
"""Values that transformers' own types ask for; 2 serves for the others, and 0.5 for
probabilities."""
OFTEN = {"top_p": 0.5, "min_p": 0.5}


def missing_places(params_class, stated, cases):
    """A sentence for everything that a parameter lacks. cases: name -> parameters that are
    proven."""
    found = {spec.name: spec for spec in fields(params_class)}
    yield from (
        f"{name} has no entry in PARAMETERS (core/parameters.py)"
        for name in found.keys() - stated.keys()
    )
    yield from (
        f"{name} is no field of SamplingParams (core/params.py)"
        for name in stated.keys() - found.keys()
    )
    for name, one in stated.items():
        if name not in found:
            continue
        if name not in params_class.__doc__:
            yield f"{name} is not told of in the docstring of SamplingParams"
        default = found[name].default
        used = any(getattr(case, name, default) not in (default, (), {}) for case in cases.values())
        if (
            one.role == "law"
            and not used
            and not (isinstance(one.proof, No) and "becomes" in one.proof.reason)
        ):
            yield f"{name} shapes a token's law and has no case in the proof"


def test_nothing_is_missing():
    assert list(missing_places(SamplingParams, PARAMETERS, table.PARAMETERS)) == []


TOY = Parameter(
    lambda name, value: value,
    "law",
    Flag(float, "X", "A toy."),
    "typical_p",
    "typical_p",
    {"typical_p": 0.5},
)


def test_each_missing_place_is_named():
    wider = make_dataclass(
        "Wider", [("typical_p", float, 1.0)], bases=(SamplingParams,), frozen=True, kw_only=True
    )
    wider.__doc__ = SamplingParams.__doc__
    said = list(missing_places(wider, PARAMETERS, table.PARAMETERS))
    assert said == ["typical_p has no entry in PARAMETERS (core/parameters.py)"]
    said = list(missing_places(SamplingParams, PARAMETERS | {"typical_p": TOY}, table.PARAMETERS))
    assert said == ["typical_p is no field of SamplingParams (core/params.py)"]
    said = list(missing_places(wider, PARAMETERS | {"typical_p": TOY}, table.PARAMETERS))
    assert said == [
        "typical_p is not told of in the docstring of SamplingParams",
        "typical_p shapes a token's law and has no case in the proof",
    ]
    unproven = replace(TOY, proof=No("forgotten"))
    assert (
        "no case in the proof"
        in list(missing_places(wider, PARAMETERS | {"typical_p": unproven}, table.PARAMETERS))[-1]
    )
    for place in ("flag", "transformers", "server", "proof"):
        given = {
            "check": TOY.check,
            "role": "law",
            "flag": TOY.flag,
            "transformers": "x",
            "server": "x",
            "proof": {},
        }
        del given[place]
        with pytest.raises(TypeError, match=place):
            Parameter(**given)


def test_every_flag_is_there():
    flags = LAW_FLAGS | END_FLAGS | TEXT_FLAGS
    stated = {
        one.flag.name or name for name, one in PARAMETERS.items() if isinstance(one.flag, Flag)
    }
    assert flags.keys() == stated


@pytest.mark.parametrize(
    "name", [name for name, one in PARAMETERS.items() if isinstance(one.transformers, str)]
)
def test_what_transformers_calls_it_is_read(name):
    theirs = PARAMETERS[name].transformers
    plain = sampling_fields(SimpleNamespace(do_sample=True), 1, {})
    changed = SimpleNamespace(do_sample=True, **{theirs: READ.get(theirs, OFTEN.get(theirs, 2))})
    assert sampling_fields(changed, 1, {}).get(name) != plain.get(name)


def test_what_a_server_is_asked_has_the_servers_names():
    assert server_fields() == {
        one.server: name for name, one in PARAMETERS.items() if not isinstance(one.server, No)
    }
    sent = request_body("m", "p", SamplingParams(temperature=0.5, stop=["x"], seed=3))
    assert (
        sent.keys() - {"model", "prompt", "stream", "stream_options", "return_token_ids"}
        <= server_fields().keys()
    )
    assert (sent["temperature"], sent["stop"], sent["seed"]) == (0.5, ["x"], 3)


@pytest.mark.parametrize("case", table.PARAMETERS)
def test_rows_of_one_pass_have_the_laws_they_have_alone(case):
    """On a device all rows of a draft are processed at once, in a CPU's memory one by one, which
    alone the enumerated proof meets: a step that minds the first row only would pass it."""
    laws = LawPipeline(table.PARAMETERS[case], num_prompt_tokens=1, vocab_size=VOCAB)
    logits, paths = np.random.default_rng(7).standard_normal((3, VOCAB)), [(), (0,), (0, 1)]
    alone = [laws.law(row, (1, 0), path) for row, path in zip(logits, paths, strict=True)]
    assert np.array_equal(laws.laws(logits, (1, 0), paths), alone)
