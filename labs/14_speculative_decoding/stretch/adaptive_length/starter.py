"""Stretch: how long a draft? Watch acceptance and cost while decoding, and choose every round
anew."""

from __future__ import annotations


class AdaptiveLength:
    """Chooses the draft length of the next round from running estimates of alpha and c.

    Exactness does not care which length you choose, as long as you choose BEFORE the drafts of that
    round are drawn: from past rounds, yes; from the drafts themselves, no."""

    def __init__(self, max_length: int) -> None:
        """max_length: the longest draft that may be chosen."""
        raise NotImplementedError(
            "AdaptiveLength is still to be written: what must be remembered of past rounds?"
        )

    def choose(self) -> int:
        """The length of the next draft, 1 to max_length: the one with the highest expected speedup
        (README.md, part 4).

        Never 0: a round without drafts teaches nothing about acceptance."""
        raise NotImplementedError(
            "choose is still to be written: evaluate expected_speedup for every length"
        )

    def update(
        self, drafted: int, accepted: int, draft_seconds: float, verify_seconds: float
    ) -> None:
        """Told how a round went. draft_seconds: of all its draft steps together; verify_seconds: of
        its target pass.

        Of `drafted` drafts only accepted + 1 were looked at when one was rejected. Text changes:
        let old rounds fade."""
        raise NotImplementedError(
            "update is still to be written: how many drafts did this round really test?"
        )
