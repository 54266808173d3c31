"""A grammar along drafted paths: every row has the mask of its own history; the law is the target's
over what is allowed."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from draftproof.audit.toys import VOCAB, ToyGrammar
from draftproof.core.constraint import Constraint
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.structured import StructuredOutputs
from draftproof.errors import InvalidLogitsError, UsageError

PATHS = [(), (0,), (2, 2), (1, 0, 1), (0, 1)]


def allowed(text: tuple[int, ...]) -> np.ndarray:
    """The toy's mask by its definition, False everywhere behind a token it forbids."""
    for end, token in enumerate(text):
        if token == (2 * sum(text[:end]) + end + 1) % VOCAB:
            return np.zeros(VOCAB, bool)
    return np.arange(VOCAB) != (2 * sum(text) + len(text) + 1) % VOCAB


def test_masks_are_those_of_the_whole_text_in_whatever_order_they_are_asked():
    rng = np.random.default_rng(0)
    constraint = Constraint(ToyGrammar(), 2)
    contexts = [(5, 5), (5, 5, 0), (5, 5, 0, 2), (5, 5, 0, 2, 0), (5, 5)]
    for context in contexts:
        for number in rng.permutation(len(PATHS)):
            text = (*context[2:], *PATHS[number])
            assert constraint.mask(context, PATHS[number]).tolist() == allowed(text).tolist()
            for token in range(VOCAB):
                assert constraint.allows(token, context, PATHS[number]) == allowed(text)[token]


def test_states_of_rejected_drafts_are_forgotten():
    constraint = Constraint(ToyGrammar(), 0)
    context: tuple[int, ...] = ()
    for _ in range(50):
        for path in PATHS:
            constraint.mask(context, path)
        context = (*context, int(np.flatnonzero(constraint.mask(context))[0]))
    assert len(constraint._states) <= len(PATHS) * 3 + 2


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_law_is_the_targets_over_what_is_allowed(tensor, temperature):
    logits = np.random.default_rng(1).normal(size=(2, VOCAB))
    params = SamplingParams(temperature=temperature, structured_outputs=ToyGrammar())
    laws = LawPipeline(params, num_prompt_tokens=1, vocab_size=VOCAB)
    found = np.asarray(laws.laws(torch.tensor(logits) if tensor else logits, (0,), [(), (0,)]))
    for row, text in enumerate([(), (0,)]):
        masked = np.where(allowed(text), logits[row], -np.inf)
        expected = np.exp((masked - masked.max()) / (temperature or 1e-9))
        assert found[row] == pytest.approx(expected / expected.sum(), abs=1e-12)
    assert laws.can_forbid and laws.forbids(1, (0,)) and not laws.forbids(0, (0,))


def test_the_drafters_pipeline_shares_the_targets_states():
    params = SamplingParams(structured_outputs=ToyGrammar())
    leading = LawPipeline(params, num_prompt_tokens=1, vocab_size=VOCAB)
    following = leading.for_drafter()
    assert following.constraint is leading.constraint is copy.deepcopy(leading.constraint)


def test_behind_a_token_that_is_not_allowed_there_is_no_law():
    params = SamplingParams(structured_outputs=ToyGrammar())
    with pytest.raises(InvalidLogitsError, match="no token is allowed there"):
        LawPipeline(params, num_prompt_tokens=1, vocab_size=VOCAB).law(np.zeros(VOCAB), (0,), (1,))


def test_a_grammar_that_is_not_compiled_or_of_another_vocabulary_is_refused():
    asked = SamplingParams(structured_outputs={"regex": "a"})
    with pytest.raises(UsageError, match="structured_outputs needs a tokenizer"):
        LawPipeline(asked, num_prompt_tokens=1, vocab_size=VOCAB)
    with pytest.raises(UsageError, match="over 3 token ids, and the model has 8"):
        LawPipeline(
            SamplingParams(structured_outputs=ToyGrammar()), num_prompt_tokens=1, vocab_size=8
        )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "has none of them; it has exactly one of"),
        ({"regex": "a", "choice": ["b"]}, "has regex and choice; it has exactly one of"),
        ({"regexp": "a"}, "has no key 'regexp'"),
        ({"json": "{"}, "structured_outputs.json is no JSON"),
        ({"json": 3}, "structured_outputs.json is 3; allowed: a JSON schema"),
        ({"choice": []}, "structured_outputs.choice is .* at least one"),
        ({"regex": ""}, "structured_outputs.regex is ''; allowed: a string that is not empty"),
        ({"json_object": "yes"}, "structured_outputs.json_object is 'yes'; allowed: True or False"),
        ("regex", "structured_outputs is 'regex'; allowed: a mapping"),
    ],
)
def test_what_is_no_structured_output_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        SamplingParams(structured_outputs=given)


def test_what_was_asked_for_is_read_back():
    for given in (
        {"json": '{"type": "string"}'},
        {"choice": ["a", "b"]},
        {"json_object": True},
        {"regex": "a+"},
    ):
        assert StructuredOutputs.from_dict(given).as_dict() == given
    assert StructuredOutputs.from_dict({"json": {"type": "string"}}).as_dict() == {
        "json": '{"type": "string"}'
    }
