"""The table of costs of a pair, measured once before its first text, for drafts whose length adapts
and cannot change the text (elsewhere costs are counted: `costs/counted_costs.py`), and for `live`.

Medians of some passes, as many as fit into a few seconds. The table becomes part of the
configuration (`speculative_config["costs"]`), so that a recorded run can be repeated on another
day, when the same machine would be measured a little differently.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from time import perf_counter

from draftproof.core.params import SamplingParams
from draftproof.core.records import Round, Seconds
from draftproof.costs.outside_passes import fit_outside, outside_passes, passes_waited_for
from draftproof.costs.pass_timer import Clock, PassTimer
from draftproof.costs.round_costs import RoundCosts
from draftproof.costs.verify_curve import VerifyCurve, rising
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.engine import Engine
from draftproof.decode.request import GenerationRequest
from draftproof.decode.speculation import Speculation
from draftproof.drafters.protocol import Drafter
from draftproof.models.protocol import LanguageModel

VERIFIED = (1, 2, 3, 5, 9, 17, 33, 65)
"""Tokens in a verifying pass; in between, straight lines."""
MOST_TURNS, ENOUGH_SECONDS = 12, 2.0
"""Passes are timed until this much time is spent, at most so many times each."""
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
            found[name] = with_rounds(timed[passes], target, member)
    return found


def pass_costs(
    target: LanguageModel, draft: LanguageModel | None, longest: int, clock: Clock = perf_counter
) -> RoundCosts:
    """Passes of the target over up to `longest` drafts, steps of the draft model, and what reading
    costs both."""
    models = [model for model in (target, draft) if model is not None]
    room = min([CONTEXT + CHUNK, *(m.max_length for m in models if m.max_length is not None)])
    context = [(37 * i + 11) % target.vocab_size for i in range(max(room // 3, 1))]
    most = max(min(longest + 1, room - len(context)), 1)
    chunk = max(min(CHUNK, room - len(context)), 2)
    lengths = sorted({n for n in VERIFIED if n <= most} | {most})
    with PassTimer(
        target, context, lengths, draft, draft_lengths=(1, chunk), read=chunk, clock=clock
    ) as timer:
        visit = timer.visit(most=MOST_TURNS, seconds=ENOUGH_SECONDS)
    seconds, steps = (
        {n: median(times) for n, times in taken.items()} for taken in (visit.target, visit.draft)
    )
    curve = rising([seconds[n] for n in lengths])

    def reading(times: dict[int, float]) -> float:
        return max(times[chunk] - times[1], 0.0) / (chunk - 1) / curve[0]

    return RoundCosts(
        VerifyCurve.from_times(dict(zip(lengths, curve, strict=True))).points,
        draft=steps[1] / curve[0] if steps else 0.0,
        read=reading(steps) if steps else 0.0,
        prompt=reading(seconds),
    )


def with_rounds(passes: RoundCosts, target: LanguageModel, drafter: Drafter) -> RoundCosts:
    """The table with what a round that drafts takes outside passes, beyond a plain round, from the
    engine's own rounds.

    fixed: the round. Of a drafter that works on the target's states, which takes no pass of a model
    of its own, draft: a step; read: its work for each token that it has not read, seen in its first
    rounds after prompts of two lengths."""
    size = 4 * max(min(8, (target.max_length or 64) // 16), 1)
    longer = min(LONGER * size, (target.max_length or LONGER * size) - 2 * TOKENS)

    def trial(length: int, size: int = size) -> list[Seconds]:
        speculation = Speculation.of(SpeculativeConfig(num_speculative_tokens=length), drafter)
        rounds = _rounds(target, speculation, size, 2 * TOKENS)
        return [record.seconds for record in rounds if record.draft_tokens]

    plain = [record.seconds for record in _rounds(target, None, size, TOKENS)]
    short = trial(SHORT)
    if not plain or not short:
        return passes
    token = median(seconds.verify for seconds in plain)
    tried = {SHORT: short} | ({LONG: trial(LONG)} if drafter.wants.hidden else {})
    outside = fit_outside(
        [seconds.rest for seconds in plain],
        [
            (length, outside_passes(one, drafter))
            for length, taken in tried.items()
            for one in taken
        ],
    )
    passes = replace(passes, fixed=max(outside.fixed - outside.plain, 0.0) / token)
    if not drafter.wants.hidden:
        return passes
    read = 0.0
    if longer > size and (after := [trial(SHORT, longer) for _ in range(READINGS)]) and all(after):
        before = [short, *(trial(SHORT) for _ in range(READINGS - 1))]
        first = [
            min(outside_passes(rounds[0], drafter) for rounds in runs) for runs in (before, after)
        ]
        read = max(first[1] - first[0], 0.0) / (longer - size)
    return replace(passes, draft=outside.each / token, read=read / token)


def _rounds(
    target: LanguageModel, speculation: Speculation | None, size: int, max_tokens: int
) -> list[Round]:
    """The rounds of a text after a prompt of `size` tokens, all but the first, which reads it."""
    prompt = tuple((i % 4) % target.vocab_size for i in range(size))
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, seed=0, temperature=1.0)
    result = Engine(target, speculation, max_num_seqs=1).generate(GenerationRequest(prompt, params))
    return [record for record in result.rounds if not record.reads_prompt]
