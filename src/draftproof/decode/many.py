"""Several prompts, or several samples of one, as one batch: from requests to results in the order in which they are ready."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from draftproof.decode.result import Result
from draftproof.decode.rows import Row, run_rows
from draftproof.decode.samples import Cancel, Sample
from draftproof.models.protocol import Session

if TYPE_CHECKING:
    from draftproof.core.params import SamplingParams
    from draftproof.decode.base import Decoder

Request = tuple[tuple[int, ...], "SamplingParams"]
"""A prompt's ids and complete parameters."""


def run_requests(
    decoder: Decoder, requests: Sequence[Request], batch_size: int, cancel: Cancel | None = None, *, raises: bool = False
) -> Iterator[tuple[int, Result]]:
    """The index and the Result of each request, as it ends; at most `batch_size` samples run at a time.

    A sample that fails for a reason of its own (memory, invalid logits) has finish_reason "error", and the others go on;
    or, if this `raises`, its error is raised and nothing goes on."""
    places = [(index, sample) for index, (_, params) in enumerate(requests) for sample in range(params.n)]
    rows = [
        Row(
            requests[index][0],
            partial(_open, decoder, requests[index], place, cancel),
            decoder.reads_states(requests[index][1]),
        )
        for index, place in places
    ]
    ended: dict[int, dict[int, Sample]] = {}
    for number, sample in run_rows(decoder.target, rows, batch_size, decoder.draft_schedule):
        if raises and sample.error is not None:
            raise sample.error
        index, place = places[number]
        ended.setdefault(index, {})[place] = sample
        if len(ended[index]) == requests[index][1].n:
            yield index, finished(decoder, requests[index], ended.pop(index))


def finished(decoder: Decoder, request: Request, samples: dict[int, Sample]) -> Result:
    """The Result of a request all of whose samples have ended."""
    ids, params = request
    ended = [sample for _, sample in sorted(samples.items())]
    outputs = [sample.completion(decoder.statistics([sample], params), params.logprobs is not None) for sample in ended]
    scored = samples[0].generation.prompt_logprobs
    assert params.seed is not None
    totals = decoder.statistics(ended, params)
    return Result(ids, tuple(outputs), params.seed, totals, tuple(scored) if scored else None)


def _open(decoder: Decoder, request: Request, index: int, cancel: Cancel | None, session: Session) -> Sample:
    ids, params = request
    return decoder.sample(session, ids, params, index, cancel=cancel)
