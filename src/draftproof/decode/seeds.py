"""Seeds of requests that run together: no two requests of one call share coins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from draftproof.core.chance import copy_seed
from draftproof.core.params import SamplingParams


def with_seeds_of_their_own(
    requests: Sequence[tuple[tuple[int, ...], SamplingParams]],
) -> list[tuple[tuple[int, ...], SamplingParams]]:
    """The same prompts; of those that are equal and have the same seed, the first keeps it and each further one gets a seed
    made from it and from how many came before, which its result reports: alone with that seed its text is the same."""
    taken: set[Hashable] = set()
    copies: Counter[Hashable] = Counter()
    found = []
    for prompt, params in requests:
        assert params.seed is not None
        seed, asked = params.seed, (prompt, params.seed)
        while (prompt, seed) in taken:
            copies[asked] += 1
            seed = copy_seed(params.seed, copies[asked])
        taken.add((prompt, seed))
        found.append((prompt, replace(params, seed=seed)))
    return found
