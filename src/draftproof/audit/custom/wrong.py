"""The first context at which a law goes wrong, and the way of chance that leads there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from draftproof.audit.custom.branching import Branch
from draftproof.audit.exact import TOLERANCE, Law

Text = tuple[int, ...]
Expand = Callable[[Any], Iterable[tuple[float, Any, tuple[Branch, ...]]]]
"""A state of a loop -> every outcome of its next round: (probability, the state after it, the
choices of chance)."""


MOST_WAYS = 6
"""Ways of chance that are told."""


@dataclass(frozen=True)
class Way:
    """Choices of chance in order, and the probability of them all."""

    probability: float
    choices: tuple[Branch, ...]


@dataclass(frozen=True)
class FirstWrong:
    """emitted: the tokens after the prompt. target_law, loop_law: token -> probability of coming
    next; None: the text ends. token: what the loop gives too often. ways: those by which chance
    leads there, the likeliest first."""

    emitted: Text
    target_law: dict[int | None, float]
    loop_law: dict[int | None, float]
    token: int | None
    ways: tuple[Way, ...]


def first_wrong(
    law: Law, reference: Law, start: Any, expand: Expand, text_of: Callable[[Any], Text]
) -> FirstWrong | None:
    """Where `law` first leaves `reference`: after the fewest tokens, there where most probability
    is displaced.

    start: the loop's state before its first round; text_of: what a state has emitted."""
    ours, theirs = conditionals(law), conditionals(reference)
    displaced: list[tuple[int, float, Text]] = []
    for text in {*ours, *theirs}:
        mass, wanted = ours.get(text, {}), theirs.get(text, {})
        moved = sum(
            abs(mass.get(token, 0.0) - wanted.get(token, 0.0)) for token in {*mass, *wanted}
        )
        if moved > TOLERANCE:
            displaced.append((len(text), -moved, text))
    for _, _, text in sorted(displaced):
        mine, right = _shares(ours.get(text, {})), _shares(theirs.get(text, {}))
        excess = {token: mine[token] - right.get(token, 0.0) for token in mine}
        if not excess or max(abs(value) for value in excess.values()) <= TOLERANCE:
            continue  # its tokens come in the right shares: what is wrong came before it
        token = max(excess, key=lambda one: excess[one])
        wanted_text = text if token is None else (*text, token)
        return FirstWrong(text, right, mine, token, ways_to(start, expand, text_of, wanted_text))
    return None


def conditionals(law: Law) -> dict[Text, dict[int | None, float]]:
    """Beginning of a text -> mass of what comes next; None where the text ends there before the
    horizon."""
    longest = max(map(len, law), default=0)
    found: dict[Text, dict[int | None, float]] = defaultdict(lambda: defaultdict(float))
    for text, mass in law.items():
        for length, token in enumerate(text):
            found[text[:length]][token] += mass
        if len(text) < longest:
            found[text][None] += mass
    return {text: dict(following) for text, following in found.items()}


def _shares(masses: dict[int | None, float]) -> dict[int | None, float]:
    total = sum(masses.values())
    order = sorted(masses, key=lambda token: (token is None, token or 0))
    return {token: masses[token] / total for token in order if total > 0}


def ways_to(
    start: Any, expand: Expand, text_of: Callable[[Any], Text], wanted: Text
) -> tuple[Way, ...]:
    """The likeliest ways of chance from `start` to a text that begins with `wanted`, the likeliest
    first."""
    known: dict[Text, tuple[Way, ...]] = {}

    def ways(state: Any) -> tuple[Way, ...]:
        text = text_of(state)
        if len(text) >= len(wanted):
            return (Way(1.0, ()),)
        if text not in known:
            known[text] = ()
            found = []
            for probability, after, choices in expand(state):
                reached = text_of(after)
                together = min(len(reached), len(wanted))
                if len(reached) > len(text) and reached[:together] == wanted[:together]:
                    found += [
                        Way(probability * rest.probability, (*choices, *rest.choices))
                        for rest in ways(after)
                    ]
            known[text] = tuple(sorted(found, key=lambda one: -one.probability)[:MOST_WAYS])
        return known[text]

    return ways(start)
