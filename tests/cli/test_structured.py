"""`--structured-outputs`: a value in place or in a file, refused before any model loads."""

from __future__ import annotations

import json

import pytest

from draftproof.cli import options


def flags(value):
    given = {name: None for name in (*options.LAW_FLAGS, *options.END_FLAGS, *options.TEXT_FLAGS)}
    return given | {"structured_outputs": value}


@pytest.mark.parametrize("in_file", [False, True])
def test_the_value_is_given_in_place_or_in_a_file(tmp_path, in_file):
    text = json.dumps({"choice": ["yes", "no"]})
    if in_file:
        (tmp_path / "one.json").write_text(text)
        text = str(tmp_path / "one.json")
    assert options.sampling_overrides(flags(text))["structured_outputs"] == {
        "choice": ["yes", "no"]
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{", "--structured-outputs is not"),
        ("nowhere.json", "--structured-outputs nowhere.json cannot be read"),
        ('{"regexp": "a"}', "structured_outputs has no key 'regexp'"),
    ],
)
def test_what_is_no_grammar_is_refused(refused, value, said):
    assert said in refused("generate", "--structured-outputs", value, "Hello")
