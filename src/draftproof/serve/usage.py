"""What a request took: tokens read, tokens written, and what became of a prediction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from draftproof.core.records import Round
from draftproof.decode.result import Completion

PREDICTION = "prediction"


def prediction_tokens(rounds: Iterable[Round], method: str) -> tuple[int, int]:
    """Tokens of the prediction that are in the text, and those that were drafted from it and are
    not. method: what drafts, where rounds do not say."""
    drafted = [record for record in rounds if (record.drafter or method) == PREDICTION]
    accepted = sum(record.num_accepted_tokens for record in drafted)
    return accepted, sum(len(record.draft_tokens) for record in drafted) - accepted


class Usage:
    """Counts of one request, as its texts grow."""

    def __init__(self) -> None:
        self.prompt = self.cached = self.completion = self.accepted = self.rejected = 0

    def end(self, completion: Completion) -> None:
        """A text has ended. What a prompt's first text had read already counts as cached; its
        others copy from it anyway."""
        if completion.index == 0:
            self.cached += completion.num_cached_tokens
        accepted, rejected = prediction_tokens(completion.rounds, completion.stats.method)
        self.accepted += accepted
        self.rejected += rejected

    def as_dict(self) -> dict[str, Any]:
        """OpenAI's `usage`."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {
                "accepted_prediction_tokens": self.accepted,
                "rejected_prediction_tokens": self.rejected,
                "reasoning_tokens": 0,
            },
        }
