"""Stretch, reference: fading counts of tested and accepted drafts, fading times, and the
formula."""

from __future__ import annotations

KEEP_ACCEPTANCE = 0.8  # weight of the past after one more round: about five rounds are remembered
KEEP_COST = 0.95


class AdaptiveLength:
    """alpha = accepted / tested and c = draft step / target pass, both over a fading past."""

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length
        self.accepted, self.tested = 0.7, 1.0  # one draft's worth of belief to begin with
        self.draft_step, self.target_pass = 0.0, 1.0
        self.rounds = 0

    def choose(self) -> int:
        """The length with the highest expected speedup."""
        alpha, cost = self.accepted / self.tested, self.draft_step / self.target_pass
        return max(
            range(1, self.max_length + 1),
            key=lambda k: sum(alpha**i for i in range(k + 1)) / (k * cost + 1),
        )

    def update(
        self, drafted: int, accepted: int, draft_seconds: float, verify_seconds: float
    ) -> None:
        """Add one round and let the others fade."""
        self.accepted = KEEP_ACCEPTANCE * self.accepted + accepted
        self.tested = KEEP_ACCEPTANCE * self.tested + min(drafted, accepted + 1)
        keep = KEEP_COST if self.rounds else 0.0
        self.draft_step = keep * self.draft_step + (1 - keep) * draft_seconds / drafted
        self.target_pass = keep * self.target_pass + (1 - keep) * verify_seconds
        self.rounds += 1
