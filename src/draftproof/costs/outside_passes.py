"""What rounds take outside the passes of models: laws, rule, bookkeeping, the drafter's own work.
Read off real rounds, as a fixed part and a part for every draft."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from draftproof.core.records import Seconds
from draftproof.drafters.protocol import Drafter
from draftproof.models.protocol import LanguageModel, Step
from draftproof.models.steps import device_kind, wait_for


@dataclass(frozen=True)
class Outside:
    """Seconds of a round outside forwards: `fixed` + `each` * drafts. plain: those of a plain
    round."""

    fixed: float = 0.0
    each: float = 0.0
    plain: float = 0.0


def fit_outside(plain: Sequence[float], rounds: Sequence[tuple[int, float]]) -> Outside:
    """The line through (drafts, seconds outside forwards): least squares on the medians of each
    count, never sloping down."""
    base = median(plain) if plain else 0.0
    by_count: dict[int, list[float]] = {}
    for drafts, seconds in rounds:
        by_count.setdefault(drafts, []).append(seconds)
    points = [(count, median(seconds)) for count, seconds in sorted(by_count.items()) if count]
    if not points:
        return Outside(base, 0.0, base)
    if len(points) == 1:
        return Outside(points[0][1], 0.0, base)
    weights = [len(by_count[count]) ** 0.5 for count, _ in points]
    slope, fixed = np.polyfit([c for c, _ in points], [s for _, s in points], 1, w=weights)
    if slope < 0 or fixed < 0:
        return Outside(float(np.mean([s for _, s in points])), 0.0, base)
    return Outside(float(fixed), float(slope), base)


@contextmanager
def passes_waited_for(target: LanguageModel, drafter: Drafter | None) -> Iterator[None]:
    """Within, a pass on a GPU is over when it returns, so that a round's seconds stand where they
    are spent, in its passes. Else they would stand where the round first looks at a number;
    decoding itself leaves it so, for waiting costs time."""
    members = () if drafter is None else drafter.members.values()
    models: list[Any] = [target, *(member.model for member in members if member.model is not None)]
    with ExitStack() as restored:
        for model in models:
            if device_kind(model.device) == "cuda":
                restored.callback(setattr, model, "extend_many", model.extend_many)
                model.extend_many = partial(_waited_for, model.extend_many, model.device)
        yield


def _waited_for(extend_many: Callable[..., Any], device: Any, steps: Sequence[Step]) -> Any:
    outputs = extend_many(steps)
    wait_for(device)
    return outputs


def outside_passes(seconds: Seconds, drafter: Drafter | None) -> float:
    """A round's work outside the passes of models that are timed by themselves; a head's are
    not."""
    apart = drafter is not None and drafter.model is not None
    return seconds.rest + seconds.draft - (seconds.draft_forward if apart else 0.0)
