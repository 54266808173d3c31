"""Laws of whole decoders: exactly, by enumeration, or by samples with both error rates stated and
fixed sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import chi2, ncx2

from draftproof import SamplingParams
from draftproof.core.enumerate import EnumeratingChance, outcomes
from draftproof.decode.passes import drive
from generations import generation_of

FALSE_ALARM = 1e-6
"""Probability that a right law is called wrong, in each check. About 60 checks in the suite: 6e-5
in all."""


def assert_law(
    samples: Sequence[Any], law: Mapping[Any, float], fault: Mapping[Any, float], miss: float = 1e-3
) -> None:
    """Chi-square of `samples` against `law`, and proof beforehand that `fault` would be missed with
    probability <= `miss`.

    Outcomes of probability zero must not occur at all."""
    support = [outcome for outcome, mass in law.items() if mass > 0]
    threshold = chi2.isf(FALSE_ALARM, len(support) - 1)
    assert miss_rate(len(samples), law, fault, threshold) <= miss, (
        "the sample is too small to see the fault"
    )
    counts = Counter(samples)
    assert set(counts) <= set(support), f"impossible outcomes: {set(counts) - set(support)}"
    statistic = sum(
        (counts[o] - len(samples) * law[o]) ** 2 / (len(samples) * law[o]) for o in support
    )
    assert statistic <= threshold, (
        f"chi-square {statistic:.1f} > {threshold:.1f}: {dict(counts)} for {dict(law)}"
    )


def miss_rate(
    size: int, law: Mapping[Any, float], fault: Mapping[Any, float], threshold: float
) -> float:
    """How often `size` samples of `fault` would pass as `law`: 0 when the fault emits what the law
    forbids often enough."""
    support = [outcome for outcome, mass in law.items() if mass > 0]
    forbidden = sum(mass for outcome, mass in fault.items() if law.get(outcome, 0.0) == 0)
    distance = size * sum((fault.get(o, 0.0) - law[o]) ** 2 / law[o] for o in support)
    return float((1 - forbidden) ** size * ncx2.cdf(threshold, len(support) - 1, distance))


def draw_many(
    decoder: Any, prompt: Sequence[int], size: int, **params: Any
) -> list[tuple[int, ...]]:
    """The token ids of `size` independent samples."""
    result = decoder.generate(list(prompt), SamplingParams(n=size, **({"seed": 0} | params)))
    return [output.token_ids for output in result.outputs]


def exact_law(
    decoder: Any, prompt: Sequence[int], num_tokens: int, **params: Any
) -> dict[tuple[int, ...], float]:
    """The law of the first `num_tokens` tokens a decoder emits, by walking every outcome of its
    chance: no statistics needed.

    Every outcome runs the decoder's own loop on its own models from the prompt on."""
    settings = SamplingParams(**({"seed": 0, "max_tokens": num_tokens} | params))

    def run(chance: EnumeratingChance) -> tuple[int, ...]:
        def at(start: int) -> EnumeratingChance:
            chance.start = start
            return chance

        session = decoder.target.open()
        generation = generation_of(decoder, session, prompt, settings)
        generation.chance_at = at
        while not generation.finished and len(generation.context) < len(prompt) + num_tokens:
            drive(generation.round())
        generation.close()
        session.close()
        return tuple(generation.context[len(prompt) :][:num_tokens])

    law: dict[tuple[int, ...], float] = {}
    for outcome, tokens in outcomes(run, len(prompt)):
        law[tokens] = law.get(tokens, 0.0) + outcome.probability
    return law


def assert_same_law(
    found: Mapping[Any, float], law: Mapping[Any, float], tolerance: float = 2e-6
) -> None:
    """Total variation below `tolerance`; the default is what float32 laws of a handful of tokens
    leave."""
    tv = 0.5 * sum(abs(found.get(key, 0.0) - law.get(key, 0.0)) for key in {*found, *law})
    assert tv <= tolerance, f"TV {tv:.2e}: {dict(found)} instead of {dict(law)}"
