"""transformers' stopping criteria, asked after every committed token, as its own loop asks them.

A block of accepted drafts is thereby cut at the very token at which decoding one token at a time
would have stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import StoppingCriteriaList
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from draftproof.core.generation_config import ids_of
from draftproof.core.params import SamplingParams
from draftproof.decode.stopping import Finish, Stopper
from draftproof.hf.request import Row


def eos_token_ids(criteria: Sequence[Any], vocab_size: int) -> tuple[int, ...]:
    """The ids that end a text, from the prepared criteria; () when nothing does."""
    ids = [
        criterion.eos_token_id.flatten().tolist()
        for criterion in criteria
        if type(criterion) is EosTokenCriteria
    ]
    return ids_of(tuple(dict.fromkeys(token for some in ids for token in some)), vocab_size)


def max_length(criteria: Sequence[Any], config: Any) -> int:
    """Length of a padded row at which it ends: the least of the prepared limits."""
    limits = [
        criterion.max_length for criterion in criteria if type(criterion) is MaxLengthCriteria
    ]
    return min(limits) if limits else int(config.max_length)


def other_criteria(criteria: Sequence[Any]) -> StoppingCriteriaList:
    """Those that have to be called: strings, times and the caller's own."""
    return StoppingCriteriaList(
        [
            criterion
            for criterion in criteria
            if type(criterion) not in (EosTokenCriteria, MaxLengthCriteria)
        ]
    )


class CriteriaStopper(Stopper):
    """A `Stopper` that also asks `criteria` about the padded row [1, length], on `device`, with
    scores None."""

    def __init__(
        self,
        row: Row,
        *,
        eos: Sequence[int],
        limit: int,
        criteria: StoppingCriteriaList,
        device: torch.device,
    ) -> None:
        super().__init__(SamplingParams(max_tokens=limit), eos_token_ids=eos, limit=limit)
        self._criteria = criteria
        start = (*row.padding, *row.prompt)
        self._length = len(start)
        self._ids = torch.zeros((1, len(start) + limit), dtype=torch.long, device=device)
        self._ids[0, : len(start)] = torch.tensor(start, device=device)

    def push(self, token: int) -> Finish | None:
        """Commit one token; the finish, if it is the last."""
        finish = super().push(token)
        if self._criteria:
            self._ids[0, self._length] = token
            self._length += 1
            if bool(self._criteria(self._ids[:, : self._length], None).any()) and finish is None:
                self.finish = finish = Finish("stop")
        return finish
