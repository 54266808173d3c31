"""Two models read one text block by block: where a block begins changes nothing, penalties over the
answer included."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof import SamplingParams, TableModel
from draftproof.plan import forcing
from draftproof.plan.acceptance import Judge
from draftproof.plan.forcing import Text, force

RNG = np.random.default_rng(3)
TARGET, DRAFT = (
    TableModel(RNG.dirichlet(np.full(6, 0.7), size=6), name=name) for name in ("target", "draft")
)
TEXT = Text((0, 1), (2, 2, 5, 1, 2, 0, 5, 5, 3))


@pytest.mark.parametrize("temperature", [1.0, 0.0])
@pytest.mark.parametrize(
    "penalty",
    [{"repetition_penalty": 1.8}, {"frequency_penalty": 0.9}, {"bad_words_ids": [[2, 2]]}],
)
def test_a_block_knows_the_answer_before_it(monkeypatch, penalty, temperature):
    params = SamplingParams(temperature=temperature, **penalty)
    judges = [Judge("match"), Judge("token")]
    (whole,) = force(TARGET, DRAFT, [TEXT], params, judges)
    for block in (1, 2, 5):
        monkeypatch.setattr(forcing, "BLOCK", block)
        (found,) = force(TARGET, DRAFT, [TEXT], params, judges)
        assert found.overlaps == pytest.approx(whole.overlaps, abs=1e-12)
        np.testing.assert_allclose(found.chances, whole.chances, atol=1e-12)
