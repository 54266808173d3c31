"""The table of costs of a pair, measured once before its first text, for drafts whose length adapts
and cannot change the text (elsewhere costs are counted: `counted_costs`), and for `live`.

Medians of some passes, as many as fit into a few seconds. The table becomes part of the
configuration (`speculative_config["costs"]`), so that a recorded run can be repeated on another
day, when the same machine would be measured a little differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from draftproof.core.params import SamplingParams
from draftproof.core.records import Round, Seconds
from draftproof.core.round_costs import RoundCosts
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.engine import Engine
from draftproof.decode.request import GenerationRequest
from draftproof.decode.speculation import Speculation
from draftproof.drafters.protocol import Drafter
from draftproof.models.protocol import LanguageModel, Session, Step
from draftproof.models.steps import device_kind, wait_for

LENGTHS = (1, 2, 3, 5, 9, 17, 33, 65)
"""Tokens in a verifying pass; in between, straight lines."""
LEAST_VISITS, MOST_VISITS = 3, 12
ENOUGH_SECONDS = 2.0
"""Passes are timed until this much time is spent, at least LEAST_VISITS and at most MOST_VISITS
times each."""
CONTEXT = 48
CHUNK = 64
"""Tokens of the pass that shows what reading a prompt takes."""
TOKENS = 5
"""Tokens of the texts that show what a round takes outside forward passes."""
LONGER, READINGS = 4, 3
"""How much longer the longer of two prompts is, and how often both are read, for what reading takes
a drafter."""
SHORT, LONG = 2, 6
"""Draft lengths of those texts; where drafting has steps outside passes, both, for what a step
takes."""

Clock = Callable[[], float]


def measured_costs(
    target: LanguageModel,
    drafter: Drafter,
    num_speculative_tokens: int,
    clock: Clock = perf_counter,
) -> dict[str, RoundCosts]:
    """Name -> costs, of every drafter that `drafter` is or chooses from, on this machine as it is
    now.

    num_speculative_tokens: the longest draft of those that have no limit of their own."""
    found: dict[str, RoundCosts] = {}
    timed: dict[tuple[LanguageModel | None, int], RoundCosts] = {}
    for name, member in drafter.members.items():
        passes = (member.model, member.most_read(drafter.limits.get(name, num_speculative_tokens)))
        if passes not in timed:
            timed[passes] = pass_costs(target, *passes, clock)
        with passes_waited_for(target, drafter):
            found[name] = replace(timed[passes], **_outside(target, member))
    return found


def pass_costs(
    target: LanguageModel, draft: LanguageModel | None, longest: int, clock: Clock = perf_counter
) -> RoundCosts:
    """Passes of the target over up to `longest` drafts, steps of the draft model, and what reading
    costs both."""
    room = min(
        [
            CONTEXT + CHUNK,
            *(m.max_length for m in (target, draft) if m is not None and m.max_length is not None),
        ]
    )
    context = [(37 * i + 11) % target.vocab_size for i in range(max(room // 3, 1))]
    most = max(min(longest + 1, room - len(context)), 1)
    chunk = max(min(CHUNK, room - len(context)), 2)
    lengths = {n for n in LENGTHS if n <= most} | {most}
    wanted = {"target": (target, sorted(lengths | {chunk}))} | (
        {} if draft is None else {"draft": (draft, [1, chunk])}
    )
    times = _times(wanted, context, clock)
    verify = rising([times["target", n] for n in sorted(lengths)])
    step = verify[0]

    def reading(name: str) -> float:
        return max(times[name, chunk] - times[name, 1], 0.0) / (chunk - 1) / step

    return RoundCosts(
        verify=tuple(zip(sorted(lengths), (time / step for time in verify), strict=True)),
        draft=0.0 if draft is None else times["draft", 1] / step,
        read=0.0 if draft is None else reading("draft"),
        prompt=reading("target"),
    )


def rising(times: Sequence[float]) -> list[float]:
    """The nearest values that never fall, since a longer pass is never quicker: neighbours that do
    are averaged. (A running maximum would make one slow pass the price of all longer ones.)"""
    blocks: list[tuple[float, int]] = []
    for time in times:
        blocks.append((time, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (one, n), (other, m) = blocks[-2:]
            blocks[-2:] = [((one * n + other * m) / (n + m), n + m)]
    return [value for value, count in blocks for _ in range(count)]


def _times(
    wanted: Mapping[str, tuple[LanguageModel, list[int]]], context: list[int], clock: Clock
) -> dict[tuple[str, int], float]:
    """(name, tokens) -> median seconds of a pass after `context`. Every visit goes through all of
    them, so that a slow stretch of the machine hits all alike; the first warms up."""
    times: dict[tuple[str, int], list[float]] = {}
    sessions: dict[str, Session] = {name: model.open() for name, (model, _) in wanted.items()}
    try:
        for name, session in sessions.items():
            wanted[name][0].extend_many([Step(session, tuple(context), rows=(len(context) - 1,))])
        began = clock()
        for visit in range(MOST_VISITS + 1):
            if visit > LEAST_VISITS and clock() - began > ENOUGH_SECONDS:
                break
            for name, (model, lengths) in wanted.items():
                for n in lengths:
                    times.setdefault((name, n), []).append(
                        _timed(model, sessions[name], context, n, clock)
                    )
    finally:
        for session in sessions.values():
            session.close()
    return {key: median(found[1:]) for key, found in times.items()}


def _timed(
    model: LanguageModel, session: Session, context: list[int], n: int, clock: Clock
) -> float:
    """Seconds of one pass over `n` tokens after `context`; as in decoding, until one number of its
    last row is known."""
    session.rollback(len(context))
    began = clock()
    (output,) = model.extend_many(
        [Step(session, tuple(context[i % len(context)] for i in range(n)), rows=(n - 1,))]
    )
    float(output.logits[-1, 0])
    return clock() - began


def _outside(target: LanguageModel, drafter: Drafter) -> dict[str, Any]:
    """What a round that drafts takes outside passes, beyond a plain round, in plain tokens; from
    the engine's own rounds.

    fixed: the round. draft: a step of a drafter that works on the target's states, which takes no
    pass of a model of its own. read: such a drafter's work for each token that it has not read,
    seen in its first rounds after prompts of two lengths."""
    size = 4 * max(min(8, (target.max_length or 64) // 16), 1)
    longer = min(LONGER * size, (target.max_length or LONGER * size) - 2 * TOKENS)

    def trial(length: int, size: int = size) -> list[Seconds]:
        speculation = Speculation.of(SpeculativeConfig(num_speculative_tokens=length), drafter)
        rounds = _rounds(target, speculation, size, 2 * TOKENS)
        return [record.seconds for record in rounds if record.draft_tokens]

    plain = [record.seconds for record in _rounds(target, None, size, TOKENS)]
    short = trial(SHORT)
    if not plain or not short:
        return {"fixed": 0.0}
    token, rest = median(s.verify for s in plain), median(s.rest for s in plain)

    def extra(rounds: Sequence[Seconds]) -> float:
        return median(outside_passes(s, drafter) for s in rounds) - rest

    if not drafter.wants.hidden:
        return {"fixed": max(extra(short), 0.0) / token}
    long = trial(LONG)
    step = max(extra(long) - extra(short), 0.0) / (LONG - SHORT) if long else 0.0
    read = 0.0
    if longer > size and (after := [trial(SHORT, longer) for _ in range(READINGS)]) and all(after):
        before = [short, *(trial(SHORT) for _ in range(READINGS - 1))]
        first = [
            min(outside_passes(rounds[0], drafter) for rounds in runs) for runs in (before, after)
        ]
        read = max(first[1] - first[0], 0.0) / (longer - size)
    return {
        "fixed": max(extra(short) - SHORT * step, 0.0) / token,
        "draft": step / token,
        "read": read / token,
    }


def _rounds(
    target: LanguageModel, speculation: Speculation | None, size: int, max_tokens: int
) -> list[Round]:
    """The rounds of a text after a prompt of `size` tokens, all but the first, which reads it."""
    prompt = tuple((i % 4) % target.vocab_size for i in range(size))
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, seed=0, temperature=1.0)
    result = Engine(target, speculation, max_num_seqs=1).generate(GenerationRequest(prompt, params))
    return [record for record in result.rounds if not record.reads_prompt]


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
