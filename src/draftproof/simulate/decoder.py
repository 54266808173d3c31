"""`SimulatedSpeculativeDecoder`: speculative decoding without models, for its counts, its clock and
the law of its tokens.

A round drafts, is verified in one target pass, and emits the accepted drafts and one more token:
the replacement of the first rejected draft, or the bonus when none was rejected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.core.formulas import checked_length
from draftproof.errors import UsageError
from draftproof.simulate.acceptance import IndependentAcceptance
from draftproof.simulate.generation import VerifyCost, run_generation


@dataclass(frozen=True)
class SimulatedRound:
    """drafted: drafts proposed. accepted: drafts kept. tokens: ids emitted, one more than
    accepted."""

    drafted: int
    accepted: int
    tokens: tuple[int, ...]


class SimulatedSpeculativeDecoder:
    """acceptance_rate: alpha, the chance that a draft is accepted. vocab_size: token ids are
    0..vocab_size - 1.

    The tokens come from a pair of laws with overlap alpha: with U uniform over all ids, A over the
    lower half and B over the upper half, target_law = alpha U + (1 - alpha) A and draft_law = alpha
    U + (1 - alpha) B. Hence an accepted draft has law U, a replacement A, a bonus the target's.
    seed: equal seeds give equal runs."""

    def __init__(
        self,
        acceptance_rate: float = 0.75,
        vocab_size: int = 1000,
        *,
        seed: int | tuple[int, ...] = 0,
    ) -> None:
        self.acceptance_rate = acceptance_rate
        self.vocab_size = int(checked_length("vocab_size", vocab_size, least=1))
        process = IndependentAcceptance(acceptance_rate)
        if self.vocab_size == 1 and acceptance_rate < 1:
            raise UsageError(
                "vocab_size 1 leaves a single law, by which every draft is accepted: "
                "acceptance_rate must be 1"
            )
        self._rng = np.random.default_rng(seed)
        self._next_round = process.open(self._rng)
        self._lower = (self.vocab_size + 1) // 2

    @property
    def target_law(self) -> NDArray[np.float64]:
        """[vocab_size]; the law of every emitted token."""
        half = np.arange(self.vocab_size) < self._lower
        return (
            self.acceptance_rate / self.vocab_size + (1 - self.acceptance_rate) * half / self._lower
        )

    @property
    def draft_law(self) -> NDArray[np.float64]:
        """[vocab_size]; its overlap with `target_law` is `acceptance_rate`."""
        half = np.arange(self.vocab_size) >= self._lower
        rest: NDArray[np.float64] = (1 - self.acceptance_rate) * half / max(1, half.sum())
        return self.acceptance_rate / self.vocab_size + rest

    def simulate_round(self, num_draft: int = 5) -> int:
        """Tokens that one round emits: 1 to num_draft + 1."""
        return len(self.draw_round(num_draft).tokens)

    def draw_round(self, num_draft: int = 5) -> SimulatedRound:
        """One round with its counts and its tokens."""
        drafted, accepted = self._next_round(int(checked_length("num_draft", num_draft)))
        tokens = self._rng.integers(self.vocab_size, size=accepted + 1)
        if accepted < drafted or self._rng.random() >= self.acceptance_rate:
            tokens[-1] = self._rng.integers(self._lower)
        return SimulatedRound(drafted, accepted, tuple(tokens.tolist()))

    def simulate_generation(
        self,
        total_tokens: int,
        num_draft: int = 5,
        draft_time_ms: float = 5,
        target_time_ms: float = 100,
        verify_ratio: VerifyCost | None = None,
    ) -> dict[str, float]:
        """Generate exactly `total_tokens`; keys and costs as in `run_generation`."""
        return run_generation(
            self._next_round, total_tokens, num_draft, draft_time_ms, target_time_ms, verify_ratio
        )
