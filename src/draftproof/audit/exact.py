"""The exact output law of the whole decode loop, by walking every outcome of every round.

What runs is `Generation.round` itself, with the enumerating source in place of keyed chance. Rounds
are memoised on (context, drafter state), so a few dozen rounds stand for all runs.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.drafting import Kind, TreeKind, kind_named
from draftproof.audit.formulas import expected_tokens_of_round, expected_tokens_of_tree, formula_of
from draftproof.audit.remembered import RememberedLaws
from draftproof.audit.toys import pairs
from draftproof.core.chance import Purpose
from draftproof.core.enumerate import (
    Choice,
    EnumeratingChance,
    KeyFunction,
    Known,
    outcomes,
    round_key,
)
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.rules import RULES
from draftproof.core.rules.protocol import Rule
from draftproof.decode.generation import Generation, Proposed
from draftproof.decode.passes import drive
from draftproof.decode.stopping import Stopper
from draftproof.drafters.protocol import Request
from draftproof.models.protocol import LanguageModel
from draftproof.models.table import TableModel

PROMPT = (0, 1, 0)
HORIZON = 4
TOLERANCE = 1e-12
Law = dict[tuple[int, ...], float]


@dataclass(frozen=True)
class Case:
    """One cell of the proof table. `rule` is a name in RULES; `params` a name in
    `table.PARAMETERS`.

    length: the controller of draft lengths, a name in `lengths.CONTROLLERS`; None: every draft is
    as long as it may be. horizon: tokens whose law is compared. rounds: how many rounds are walked
    before the target itself goes on (None: all). One round that leaves the target's law whatever
    follows it is, by induction, all of them; trees are proven that way, since a round of a tree has
    thousands of outcomes."""

    rule: str
    draft: str
    pair: str
    params: str
    sampling: SamplingParams
    num_speculative_tokens: int = 2
    horizon: int = HORIZON
    rounds: int | None = None
    length: str | None = None


@dataclass(frozen=True)
class Proof:
    """tv: total variation between the loop's law of the first tokens and the target's.
    length_error: largest difference between a round's expected tokens and the rule's formula.
    rounds: how many distinct rounds were walked."""

    case: Case
    tv: float
    length_error: float
    rounds: int

    @property
    def holds(self) -> bool:
        return self.tv <= TOLERANCE and self.length_holds

    @property
    def length_holds(self) -> bool:
        return self.length_error <= formula_of(self.case.rule).tolerance


@dataclass
class Harness:
    """A generation to enumerate, with what the reference needs. Mutants replace single parts of
    it."""

    target: TableModel
    kind: Kind
    laws: LawPipeline
    generation: Generation
    rule_name: str
    ends: frozenset[int]
    horizon: int = HORIZON
    rounds: int | None = None
    share: bool = False
    key: KeyFunction = round_key

    def target_row(self, context: tuple[int, ...], path: tuple[int, ...]) -> NDArray[np.float64]:
        """The target's law after `context` and a drafted path."""
        return np.asarray(self.laws.law(self.target.logits(context + path), context, path))

    def expected_tokens(self, generation: Generation, depth: int) -> float:
        """Of the round that `generation` is about to make with drafts at most `depth` long, by the
        rule's formula."""
        context = tuple(generation.context)
        if isinstance(self.kind, TreeKind):
            return expected_tokens_of_tree(
                self.rule_name, self.kind, self.target_row, context, depth, self.ends
            )
        return expected_tokens_of_round(
            self.rule_name, self.target_row, self.kind.plan, context, depth, self.ends
        )


def harness(
    case: Case,
    wrap: Callable[[TableModel], LanguageModel] = lambda model: model,
    rule: Rule | None = None,
) -> Harness:
    """The generation of `case`, ready for its first round. `wrap` may turn the models into torch
    ones."""
    pair = pairs()[case.pair]
    model = wrap(pair.target)
    laws, drafts = (RememberedLaws(case.sampling, **laws_of(model)) for _ in range(2))
    kind = kind_named(case.draft, pair.target, pair.draft, drafts, wrap)
    most = len(kind.shape) if isinstance(kind, TreeKind) else None
    generation = begun(case, model, kind, laws, drafts, max_nodes=most, rule=rule)
    return Harness(
        pair.target,
        kind,
        laws,
        generation,
        case.rule,
        ends_of(case, model),
        case.horizon,
        case.rounds,
    )


def laws_of(model: LanguageModel) -> dict[str, Any]:
    """What a law pipeline of the toys is made with beside the parameters."""
    return dict(
        num_prompt_tokens=len(PROMPT),
        vocab_size=model.vocab_size,
        eos_token_ids=model.eos_token_ids,
    )


def ends_of(case: Case, model: LanguageModel) -> frozenset[int]:
    """The tokens that end a text of `case`."""
    ends = () if case.sampling.ignore_eos else model.eos_token_ids
    return frozenset((*ends, *(case.sampling.stop_token_ids or ())))


def begun(
    case: Case,
    model: LanguageModel,
    kind: Kind,
    laws: LawPipeline,
    drafts: LawPipeline,
    *,
    max_nodes: int | None,
    rule: Rule | None = None,
) -> Generation:
    """The generation of `case`, before its first round. laws, drafts: the target's pipeline and the
    drafter's. rule: another one than the case names."""
    limit = case.sampling.max_tokens or case.horizon
    return Generation(
        session=model.open(),
        context=list(PROMPT),
        params=case.sampling,
        pipeline=laws,
        stopper=Stopper(case.sampling, eos_token_ids=model.eos_token_ids, limit=limit),
        rule=rule or RULES[case.rule],
        chance_at=no_chance,
        drafting=kind.drafter.open(Request(PROMPT, case.sampling, drafts, model)),
        wants=kind.drafter.wants,
        num_speculative_tokens=case.num_speculative_tokens,
        max_nodes=max_nodes,
        policy=kind.policy,
    )


def prove(case: Case, wrap: Callable[[TableModel], LanguageModel] = lambda model: model) -> Proof:
    """Enumerate one case and compare it with the target and the formula."""
    return compare(case, harness(case, wrap))


def compare(case: Case, made: Harness) -> Proof:
    """The proof of an already made harness."""
    walk = Walk(made)
    law = walk.law()
    return Proof(case, total_variation(law, target_law(made)), walk.length_error, len(walk.seen))


class Walk:
    """Enumerates a harness round by round."""

    def __init__(self, made: Harness) -> None:
        self.made = made
        self.seen: dict[Any, Law] = {}
        self.completions: dict[tuple[int, ...], Law] = {}
        self.length_error = 0.0

    def law(self) -> Law:
        """The law of the first `horizon` tokens (shorter where the text ended)."""
        return self._after(self.made.generation, {}, 0)

    def _after(self, generation: Generation, known: Known, done: int) -> Law:
        emitted = tuple(generation.context[len(PROMPT) :])
        if len(emitted) >= self.made.horizon or generation.finished:
            return {emitted[: self.made.horizon]: 1.0}
        if self.made.rounds is not None and done >= self.made.rounds:
            return self._completed(emitted)
        states = tuple(
            part.state_key()
            for part in (generation.drafting, generation.length)
            if part is not None
        )
        key = (emitted, states, tuple(sorted(known.items())))
        if key not in self.seen:
            self.seen[key] = self._expand(generation, known, done)
        return self.seen[key]

    def _completed(self, emitted: tuple[int, ...]) -> Law:
        """The target's own continuation of what was emitted."""
        if emitted not in self.completions:
            self.completions[emitted] = target_law(self.made, emitted)
        return self.completions[emitted]

    def _expand(self, generation: Generation, known: Known, done: int) -> Law:
        law: Law = defaultdict(float)
        length = total = 0.0
        start = len(generation.context)
        for probability, after, left, _ in self.rounds(generation, known):
            total += probability
            length += probability * (len(after.context) - start)
            for tokens, mass in self._after(after, left, done + 1).items():
                law[tokens] += probability * mass
        self._check_length(generation, length, total)
        return dict(law)

    def rounds(
        self, generation: Generation, known: Known
    ) -> Iterator[tuple[float, Generation, Known, tuple[Choice, ...]]]:
        """Every outcome of one round, run on copies: (probability, the generation after it, keys
        that could come again, its choices). The drafting is run once for each draft that can come,
        and what follows once for each outcome of it."""
        made, start = self.made, len(generation.context)

        def propose(chance: EnumeratingChance) -> tuple[Generation, Proposed]:
            after = fork(generation)
            return after, drive(after.propose(chance))

        for drawn, (drafted, proposed) in outcomes(
            propose, start, known, share=made.share, key=made.key
        ):
            settle = partial(_settle, drafted, proposed)
            for outcome, after in outcomes(
                settle, start, drawn.known, share=made.share, key=made.key
            ):
                open_keys = {
                    k: v
                    for k, v in outcome.known.items()
                    if _may_repeat(k, len(after.context), made.key)
                }
                yield (
                    drawn.probability * outcome.probability,
                    after,
                    open_keys,
                    (*drawn.choices, *outcome.choices),
                )

    def _check_length(self, generation: Generation, length: float, total: float) -> None:
        made = self.made
        depth = min(generation.num_speculative_tokens, generation.stopper.remaining - 1)
        expected = made.expected_tokens(generation, depth)
        self.length_error = max(self.length_error, abs(length - expected), abs(total - 1.0))


def _settle(drafted: Generation, proposed: Proposed, chance: EnumeratingChance) -> Generation:
    """The second half of a round, on a fork."""
    after = fork(drafted)
    drive(after.settle(proposed, chance))
    return after


def fork(generation: Generation) -> Generation:
    """A generation that goes its own way from here; models, laws and rule are shared."""
    return replace(
        generation,
        session=generation.session.fork(),
        context=list(generation.context),
        stopper=copy.copy(generation.stopper),
        drafting=None if generation.drafting is None else generation.drafting.fork(),
        length=copy.deepcopy(generation.length),
        logprobs=list(generation.logprobs),
        prompt_logprobs=list(generation.prompt_logprobs),
    )


def target_law(made: Harness, emitted: tuple[int, ...] = ()) -> Law:
    """The target's own law of the first `horizon` tokens after `emitted` under the parameters,
    ended by end tokens."""
    law: Law = {}

    def walk(emitted: tuple[int, ...], mass: float) -> None:
        limit = made.generation.params.max_tokens or made.horizon
        ended = (
            bool(emitted)
            and emitted[-1] in made.ends
            and len(emitted) >= made.generation.params.min_tokens
        )
        if len(emitted) >= min(made.horizon, limit) or ended:
            law[emitted] = law.get(emitted, 0.0) + mass
            return
        for token, chance in enumerate(made.target_row((*PROMPT, *emitted), ()).tolist()):
            if chance > 0:
                walk((*emitted, token), mass * chance)

    walk(emitted, 1.0)
    return law


def total_variation(one: Law, other: Law) -> float:
    """Half the sum of absolute differences."""
    return 0.5 * sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other})


def _may_repeat(key: tuple[int, int, int], length: int, function: KeyFunction) -> bool:
    """Whether a later round, starting at `length` or beyond, could ask for this key again. Keys
    that carry the start of their round cannot; keys by position can, from `length` on."""
    by_position = key[0] == Purpose.TARGET or function is not round_key
    return by_position and key[1] >= length


def no_chance(start: int) -> Any:
    raise AssertionError("a round was run outside the enumeration")
