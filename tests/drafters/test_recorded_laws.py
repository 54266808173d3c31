"""The law in the ratio is that of the draw, whatever a drafter does with its buffer between two
siblings."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

import numpy as np
import pytest

from draftproof.core.chance import KeyedChance, stream_key
from draftproof.core.enumerate import outcomes
from draftproof.core.records import ROOT
from draftproof.core.rules import RULES
from draftproof.drafters.builder import DraftBuilder
from draftproof.errors import UsageError
from one_round import PathLaws

FIRST, THEN = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.1, 0.8])
TARGET = np.array([0.2, 0.3, 0.5])


def two_siblings(chance):
    """Two children of one node from a buffer that is written to in between; one where the builder
    refuses the second."""
    builder, buffer = DraftBuilder(chance, depth=1, vocab_size=3, max_nodes=2), FIRST.copy()
    builder.draw(buffer, parent=ROOT)
    buffer[:] = THEN
    with suppress(UsageError):
        builder.draw(buffer, parent=ROOT)
    return builder.build()


def test_the_first_law_stays_the_recorded_one():
    np.testing.assert_allclose(
        two_siblings(KeyedChance(stream_key(1, 0), 3)).laws[ROOT], FIRST, rtol=1e-15
    )


@pytest.mark.parametrize("rule", ["rrs", "k_seq", "traversal", "match"])
def test_the_law_of_the_text_is_the_targets(rule):
    def run(chance):
        draft = two_siblings(chance)
        verdict = RULES[rule].verify(draft, PathLaws(lambda path: TARGET, draft), chance)
        return (*(draft.tokens[node] for node in verdict.path), verdict.token)[0]

    law = defaultdict(float)
    for outcome, token in outcomes(run, 5):
        law[token] += outcome.probability
    assert [law[token] for token in range(3)] == pytest.approx(TARGET, abs=1e-15)
