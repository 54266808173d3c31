"""`lab`: the best length for one running estimate of the acceptance rate and one cost ratio.

The formula of 2211.17192 with the measured price of verification, as if every draft were accepted
independently with the same chance. It is the simplest rule that adapts; `survival` needs neither
assumption.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftproof.core.formulas import best_draft_length
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.lengths.fixed import Fixed


class Lab(Fixed):
    """argmax over k of expected_tokens(alpha, k) / (T(k + 1) / T(1) + k c)."""

    name = "lab"

    def __init__(self, costs: RoundCosts) -> None:
        super().__init__()
        self.costs = costs

    def length(self, longest: int) -> int:
        alpha = self.acceptance.of(None).overall
        return int(
            best_draft_length(alpha, self.costs.draft + self.costs.each, longest, self._verify)
        )

    def reckon_with(self, costs: RoundCosts) -> None:
        self.costs = costs

    def _verify(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """The price of a round's pass and of what comes with every round that drafts."""
        return np.array(
            [self.costs.verify_ratio(int(n)) + (self.costs.fixed if n > 1 else 0.0) for n in tokens]
        )
