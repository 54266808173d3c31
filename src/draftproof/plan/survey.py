"""T(n) / T(1) for n = 1 .. 32 at the context lengths that the texts meet.

Predictions rest on passes as long as the drafts that were asked for, at the median context. This
goes on from there: what longer drafts would cost to verify, and whether that depends on how far a
text has come. One short visit a context, so its figures are for reading, with no interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from draftproof.costs.pass_timer import PassTimer, pass_lengths
from draftproof.costs.timings import Timings
from draftproof.costs.verify_curve import VerifyCurve
from draftproof.models.protocol import LanguageModel
from draftproof.plan.forcing import Text

LONGEST_PASS = 32
TURNS = 2
NEAR = 1.25
"""Contexts whose lengths are within this factor are one."""


def contexts_met(texts: Sequence[Text], most: int) -> tuple[int, ...]:
    """Tokens before a pass, near the shortest and the longest of a reading of `texts`: the tenth
    percentile of the prompts' lengths and the ninetieth of the texts', at most `most`; their mean
    alone where they are near each other."""
    begin = float(np.percentile([len(text.prompt) for text in texts], 10))
    end = float(np.percentile([len(text.prompt) + len(text.answer) for text in texts], 90))
    low, high = (max(1, min(round(length), most)) for length in (begin, end))
    return (low, high) if high > NEAR * low else (max(1, (low + high) // 2),)


def survey(
    target: LanguageModel,
    texts: Sequence[Text],
    most: int,
    tell: Callable[[str, int, int], None],
    *,
    batch: int = 1,
) -> dict[int, VerifyCurve]:
    """Context length -> T(n) / T(1) of target passes over 1 .. 32 tokens behind it, fewer where the
    model's context ends.

    most: tokens of the longest context; tell: told of every context; batch: sequences in a pass."""
    if target.max_length is not None:
        most = max(1, min(most, target.max_length - LONGEST_PASS, target.max_length // 2))
    found, lengths = {}, contexts_met(texts, most)
    ids = [token for text in texts for token in (*text.prompt, *text.answer)]
    for place, length in enumerate(lengths):
        tell(f"timing passes of up to {LONGEST_PASS} tokens", place, len(lengths))
        longest = (
            LONGEST_PASS
            if target.max_length is None
            else min(LONGEST_PASS, target.max_length - length)
        )
        context = [ids[i % len(ids)] for i in range(length)]
        with PassTimer(target, context, pass_lengths(longest), batch=batch) as timer:
            found[length] = Timings((timer.visit(TURNS),)).curve
    return found
