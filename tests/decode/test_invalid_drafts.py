"""A draft model that gives NaN is reported whatever decides about lengths, and the text goes on
without it."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel

COSTS = {"verify": {"1": 1, "2": 1.0, "4": 1.5}, "draft": 0.05, "fixed": 0.0}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("adaptive", [None, "heuristic", "lab", "survival", "live"])
def test_nan_is_reported(adaptive, temperature):
    target, draft = TableModel([[0.4, 0.3, 0.3]] * 3), TableModel([[0.4, 0.3, 0.3]] * 3)
    draft.logits = lambda prefix: np.full(3, np.nan)
    changes = {} if adaptive is None else {"adaptive": adaptive, "costs": COSTS}
    made = SpeculativeDecoder(
        draft, target, speculative_config={"num_speculative_tokens": 2, **changes}
    )
    result = made.generate([0], SamplingParams(max_tokens=8, temperature=temperature, seed=1))
    assert len(result.token_ids) == 8
    assert result.stats.num_invalid_draft_laws == 7 and result.stats.num_draft_tokens == 0
