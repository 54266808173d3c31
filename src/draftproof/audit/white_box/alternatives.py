"""What an engine does when it does one thing wrong: the law of a draft, of an acceptance, of the
token after it, by fault.

Evidence is a likelihood ratio of such a law against the right one, so the fault whose law fits best
is the cause to name. Each function gives (cause, law) pairs; several laws may stand for one cause,
as temperatures do. They need not be normalised."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from draftproof.core.faults import (
    ACCEPTS_ALL,
    ARG_MAX,
    CUT_TAIL,
    INVERTED,
    NO_RESIDUAL,
    OFF_BY_ONE,
    TEMPERATURE,
    TEMPERATURES,
    WRONG_DRAFT_LAW,
    WRONG_RESIDUAL,
    cut_laws,
    one_hot,
    tempered,
)

Vector = NDArray[np.float64]
Alternative = tuple[str, Vector]

STALE = "stale processor: penalties or processors do not see the drafts before a position"
WRONG_TOKEN = "acceptance by another token's probabilities"
KEEPS_VERIFYING = "keeps verifying after a rejection: a later draft is emitted"
SAMPLE_AND_MATCH = "sample and match: a draft is kept when the target draws the same"


def of_draft(drawn_from: Vector, target: Vector, before: Vector | None) -> Iterator[Alternative]:
    """A draft that claims to come from `drawn_from`, where the target's law is `target`; before:
    the claim one place up."""
    yield from ((TEMPERATURE, tempered(drawn_from, temperature)) for temperature in TEMPERATURES)
    yield ARG_MAX, one_hot(int(drawn_from.argmax()), len(drawn_from))
    yield from ((CUT_TAIL, law) for law in cut_laws(drawn_from))
    yield WRONG_DRAFT_LAW, target
    yield WRONG_DRAFT_LAW, np.full_like(drawn_from, 1.0 / len(drawn_from))
    if before is not None:
        yield WRONG_DRAFT_LAW, before


def of_replacement(
    law: Vector,
    target: Vector,
    drawn_from: Vector | None,
    token: int,
    following: Vector | None,
    stale: Vector | None,
    later: list[int],
) -> Iterator[Alternative]:
    """The token after a rejected draft `token`. law: as it should be; target: the whole law there;
    drawn_from: the draft's, None for a constant; following: the target's law after `token`; stale:
    `target` with processors that saw less; later: the drafts behind the rejected one."""
    if later:
        yield KEEPS_VERIFYING, np.bincount(later, minlength=len(law)) / len(later)
    without = target.copy()
    without[token] = 0.0 if drawn_from is None else max(target[token] - drawn_from[token], 0.0)
    yield NO_RESIDUAL, target
    yield from ((TEMPERATURE, tempered(law, temperature)) for temperature in TEMPERATURES)
    yield ARG_MAX, one_hot(int(law.argmax()), len(law))
    yield ARG_MAX, one_hot(int(target.argmax()), len(target))
    if drawn_from is not None:
        yield WRONG_RESIDUAL, without
        yield WRONG_RESIDUAL, np.abs(target - drawn_from)
        yield WRONG_RESIDUAL, np.maximum(drawn_from - target, 0.0)
        for temperature in (0.5, 2.0):
            yield WRONG_DRAFT_LAW, np.maximum(target - tempered(drawn_from, temperature), 0.0)
    for cause, row in ((OFF_BY_ONE, following), (STALE, stale)):
        if row is not None:
            yield cause, row
            yield cause, np.maximum(row - (0.0 if drawn_from is None else drawn_from), 0.0)


def of_target_draw(
    target: Vector, before: Vector | None, stale: Vector | None
) -> Iterator[Alternative]:
    """A token drawn from the target's own law: a bonus, or one without a draft. before: the row one
    place up."""
    yield from ((TEMPERATURE, tempered(target, temperature)) for temperature in TEMPERATURES)
    yield ARG_MAX, one_hot(int(target.argmax()), len(target))
    yield from ((CUT_TAIL, law) for law in cut_laws(target))
    for cause, row in ((OFF_BY_ONE, before), (STALE, stale)):
        if row is not None:
            yield cause, row


def acceptances(
    tokens: tuple[int, ...],
    targets: list[Vector],
    drafts: list[Vector] | None,
    stale: list[Vector | None],
) -> Iterator[tuple[str, list[float]]]:
    """Probabilities of accepting each draft of a chain, by fault. targets: the target's laws at
    each draft and after the last; drafts: the claimed laws, None for constants; stale: the target's
    laws with processors that saw less."""
    places = range(len(tokens))

    def ratio(i: int, target: Vector, drawn_from: Vector | None, token: int) -> float:
        if drawn_from is None:
            return float(target[token])
        return min(1.0, float(target[token]) / max(float(drawn_from[token]), 1e-300))

    laws: list[Vector | None] = [None] * len(tokens) if drafts is None else list(drafts)
    yield ACCEPTS_ALL, [0.99] * len(tokens)
    yield ARG_MAX, [0.98 if int(targets[i].argmax()) == tokens[i] else 0.02 for i in places]
    yield OFF_BY_ONE, [ratio(i, targets[i + 1], laws[i], tokens[i]) for i in places]
    yield OFF_BY_ONE, [ratio(i, targets[max(i - 1, 0)], laws[i], tokens[i]) for i in places]
    yield (
        WRONG_TOKEN,
        [ratio(i, targets[i], laws[i], tokens[min(i + 1, len(tokens) - 1)]) for i in places],
    )
    for temperature in TEMPERATURES:
        yield (
            TEMPERATURE,
            [ratio(i, tempered(targets[i], temperature), laws[i], tokens[i]) for i in places],
        )
    if any(row is not None for row in stale):
        rows = [target if row is None else row for target, row in zip(targets, stale, strict=False)]
        yield STALE, [ratio(i, rows[i], laws[i], tokens[i]) for i in places]
    if drafts is not None:
        yield SAMPLE_AND_MATCH, [float(targets[i][tokens[i]]) for i in places]
        yield INVERTED, [ratio(i, drafts[i], targets[i], tokens[i]) for i in places]
        for temperature in (0.5, 2.0):
            yield (
                TEMPERATURE,
                [ratio(i, targets[i], tempered(drafts[i], temperature), tokens[i]) for i in places],
            )
