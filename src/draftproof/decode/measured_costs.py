"""The table of costs of a pair, measured once when it is loaded, for drafts whose length adapts.

Medians of a few passes. The table becomes part of the configuration (`speculative_config["costs"]`), so that a recorded run can
be repeated on another day, when the same machine would be measured a little differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from draftproof.core.params import SamplingParams
from draftproof.core.round_costs import RoundCosts
from draftproof.drafters.protocol import Drafter
from draftproof.models.protocol import LanguageModel, Session, Step

if TYPE_CHECKING:
    from draftproof.decode.decoder import SpeculativeDecoder

LENGTHS = (1, 2, 3, 5, 9, 17, 33, 65)
"""Tokens in a verifying pass; in between, straight lines."""
REPEATS = 3
CONTEXT = 48
CHUNK = 64
"""Tokens of the pass that shows what reading a prompt takes."""
TOKENS = 5
"""Tokens of the texts that show what a round takes outside forward passes."""

Clock = Callable[[], float]


def measured_costs(decoder: SpeculativeDecoder, clock: Clock = perf_counter) -> dict[str, RoundCosts]:
    """Drafter -> costs, of every drafter `decoder` has, on this machine as it is now."""
    assert decoder.drafter is not None
    found = {}
    for name, drafter in members(decoder.drafter).items():
        longest = len(drafter.tree) if drafter.trees and hasattr(drafter, "tree") else decoder.config.num_speculative_tokens
        costs = pass_costs(decoder.target, _draft_model(drafter), longest, clock)
        found[name] = replace(costs, fixed=_outside(decoder, drafter))
    return found


def _draft_model(drafter: Drafter) -> LanguageModel | None:
    """The model whose passes drafting takes; without one, drafting counts as work outside passes."""
    model = getattr(drafter, "model", None)
    return model if hasattr(model, "extend_many") else None


def members(drafter: Drafter) -> Mapping[str, Drafter]:
    """The drafters that `drafter` chooses from, or itself, by name."""
    several: Mapping[str, Drafter] | None = getattr(drafter, "members", None)
    return {drafter.name: drafter} if several is None else several


def pass_costs(target: LanguageModel, draft: LanguageModel | None, longest: int, clock: Clock = perf_counter) -> RoundCosts:
    """Passes of the target over up to `longest` drafts, steps of the draft model, and what reading costs both."""
    room = min([CONTEXT + CHUNK, *(m.max_length for m in (target, draft) if m is not None and m.max_length is not None)])
    context = [(37 * i + 11) % target.vocab_size for i in range(max(room // 3, 1))]
    most = max(min(longest + 1, room - len(context)), 1)
    chunk = max(min(CHUNK, room - len(context)), 2)
    lengths = {n for n in LENGTHS if n <= most} | {most}
    wanted = {"target": (target, sorted(lengths | {chunk}))} | ({} if draft is None else {"draft": (draft, [1, chunk])})
    times = _times(wanted, context, clock)
    step = times["target", 1]

    def reading(name: str) -> float:
        return max(times[name, chunk] - times[name, 1], 0.0) / (chunk - 1) / step

    ratios = np.maximum.accumulate([times["target", n] / step for n in sorted(lengths)])  # a longer pass is never quicker
    return RoundCosts(
        verify=tuple(zip(sorted(lengths), ratios.tolist(), strict=True)),
        draft=0.0 if draft is None else times["draft", 1] / step,
        read=0.0 if draft is None else reading("draft"),
        prompt=reading("target"),
    )


def _times(
    wanted: Mapping[str, tuple[LanguageModel, list[int]]], context: list[int], clock: Clock
) -> dict[tuple[str, int], float]:
    """(name, tokens) -> median seconds of a pass after `context`. Every repeat goes through all of them, so that a slow stretch
    of the machine hits all alike; the first warms up."""
    times: dict[tuple[str, int], list[float]] = {}
    sessions: dict[str, Session] = {name: model.open() for name, (model, _) in wanted.items()}
    try:
        for name, session in sessions.items():
            wanted[name][0].extend_many([Step(session, tuple(context), rows=(len(context) - 1,))])
        for _ in range(REPEATS + 1):
            for name, (model, lengths) in wanted.items():
                for n in lengths:
                    times.setdefault((name, n), []).append(_timed(model, sessions[name], context, n, clock))
    finally:
        for session in sessions.values():
            session.close()
    return {key: median(found[1:]) for key, found in times.items()}


def _timed(model: LanguageModel, session: Session, context: list[int], n: int, clock: Clock) -> float:
    """Seconds of one pass over `n` tokens after `context`; as in decoding, until one number of its last row is known."""
    session.rollback(len(context))
    began = clock()
    (output,) = model.extend_many([Step(session, tuple(context[i % len(context)] for i in range(n)), rows=(n - 1,))])
    float(output.logits[-1, 0])
    return clock() - began


def _outside(decoder: SpeculativeDecoder, drafter: Drafter) -> float:
    """What a round that drafts takes outside passes, beyond a plain round, in plain tokens; from the decoder's own rounds."""
    limit = decoder.target.max_length
    size = 4 * max(min(8, (limit or 64) // 16), 1)
    prompt = [(i % 4) % decoder.target.vocab_size for i in range(size)]
    params = SamplingParams(max_tokens=2 * TOKENS, ignore_eos=True, seed=0, temperature=1.0)
    trial = type(decoder)(drafter, decoder.target, speculative_config={"num_speculative_tokens": 2})
    plain = [r.seconds for r in trial.plain.generate(prompt, replace(params, max_tokens=TOKENS)).rounds if not r.reads_prompt]
    rounds: list[Any] = [r for r in trial.generate(prompt, params).rounds if not r.reads_prompt and r.draft_tokens]
    if not plain or not rounds:
        return 0.0
    extra = median(r.seconds.rest + r.seconds.draft - r.seconds.draft_forward for r in rounds) - median(s.rest for s in plain)
    return max(extra, 0.0) / median(s.verify for s in plain)
