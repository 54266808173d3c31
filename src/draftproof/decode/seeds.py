"""Seeds of requests that run together: no two requests of one call share coins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from draftproof.core.chance import copy_seed
from draftproof.decode.request import GenerationRequest


def with_seeds_of_their_own(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    """The same requests; of those whose prompt and seed are equal, the first keeps the seed and
    each further one gets a seed made from it and from how many came before, which its result
    reports: alone with that seed its text is the same."""
    taken: set[Hashable] = set()
    copies: Counter[Hashable] = Counter()
    made = []
    for request in requests:
        seed, asked = request.seed, (request.prompt_token_ids, request.seed)
        while (request.prompt_token_ids, seed) in taken:
            copies[asked] += 1
            seed = copy_seed(request.seed, copies[asked])
        taken.add((request.prompt_token_ids, seed))
        made.append(replace(request, params=replace(request.params, seed=seed)))
    return made
