"""Drafts whose length or drafter is chosen round by round, over a recorded text: the rounds that
decoding would have made.

The drafters' and the length controller's own code runs, from the first round to the last; only the
target is replaced, by what it once wrote and by one reading of that. Fixed guesses are accepted
where they are the text. Drawn drafts are made to draw the text, and each is accepted by a coin: the
chance that, given the text, its token was an accepted draft (`acceptance.py`). So on one table of
costs the rounds of greedy text, and of any text under `match`, are those of a real run; others have
its law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from draftproof.core.chance import KeyedChance
from draftproof.core.laws import overlap
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Array, Draft, Origin, Round
from draftproof.decode.length import LengthController, Situation
from draftproof.decode.passes import drive
from draftproof.drafters.auto import AutoSession
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Drafter, DraftSession, Request
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.plan.acceptance import Judge
from draftproof.plan.forcing import Text, to_numpy
from draftproof.plan.replay import chances_along
from draftproof.plan.shown import Shown, show


@dataclass
class Walk:
    """rounds: one after another. times: of each, in plain tokens' time, by the table of costs that
    prices them. overlaps [n]: at the tokens where a round with drafts began, how much of the first
    draft's law is the target's (of a guess, whether it was right); nan elsewhere."""

    rounds: list[Round] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    overlaps: list[float] = field(default_factory=list)


class _Along(KeyedChance):
    """Chance that draws the text as long as the draft law has it. left: at which depth it had
    not."""

    def __init__(self, tokens: Sequence[int], start: int) -> None:
        super().__init__((0, 0), start)
        self._tokens = tokens
        self.left: int | None = None

    def draw_draft(self, law: Array, node: int, depth: int) -> int:
        if self.left is None and depth < len(self._tokens) and law[self._tokens[depth]] > 0:
            return self._tokens[depth]
        self.left = depth if self.left is None else self.left
        return int(law.argmax())


def walk(
    drafter: Drafter,
    controller: LengthController,
    target: LanguageModel,
    text: Text,
    params: SamplingParams,
    longest: int,
    max_tokens: int | None = None,
    *,
    judge: Judge | None = None,
    rng: np.random.Generator | None = None,
    prices: LengthController | None = None,
    shown: Shown | None = None,
) -> Walk:
    """The rounds in which `drafter`, led by `controller`, comes through the answer of `text`.

    longest: the longest draft. max_tokens: the limit the text was written under, by default its
    length. judge, rng: of drafts that are drawn, UsageError where there is one and no judge.
    prices: whose costs price the rounds, by default the controller's own. shown: what the target
    shows of the text, where it is known."""
    laws = laws_of(target, text, params)
    shown = (
        show(target, text, drafter.wants, laws if judge is not None and not judge.fixed else None)
        if shown is None
        else shown
    )
    session = drafter.open(Request(text.prompt, params, laws, target))
    whole, limit, at, told = (*text.prompt, *text.answer), max_tokens or len(text.answer), 0, 0
    found = Walk(overlaps=[np.nan] * len(text.answer))
    try:
        while at < len(text.answer):
            for place in range(told + 1, at + 1):
                session.observe(shown.before(place))
            told = at
            rest, context = text.answer[at:], whole[: len(text.prompt) + at]
            foreseen = controller.foreseen(session, context)
            room = Situation(len(context), min(longest, limit - at - 1), limit - at, foreseen)
            draft, chance = _draft(session, controller, room, context, rest, target.vocab_size)
            coins = _coins(draft, chance, shown, at, judge, rng) if draft.laws else None
            record = _round(draft, rest, len(context), controller, coins)
            found.times.append(
                (prices or controller).price(controller.choice, record, *controller.asked)
            )
            if draft.tokens:
                found.overlaps[at] = _overlap(draft, shown, at, record)
            controller.observe(record)
            found.rounds.append(record)
            at += len(record.tokens)
    finally:
        session.close()
    return found


def laws_of(target: LanguageModel, text: Text, params: SamplingParams) -> LawPipeline:
    """What makes laws of logits after the prompt of `text`."""
    return LawPipeline(
        params,
        num_prompt_tokens=len(text.prompt),
        vocab_size=target.vocab_size,
        eos_token_ids=target.eos_token_ids,
    )


def _draft(
    session: DraftSession,
    controller: LengthController,
    now: Situation,
    context: Sequence[int],
    rest: Sequence[int],
    vocab_size: int,
) -> tuple[Draft, _Along]:
    depth, chance = controller.begin(now), _Along(rest, len(context))
    if isinstance(session, AutoSession) and controller.choice is not None:
        session.choose(controller.choice)
    builder = DraftBuilder(
        chance, depth=depth, vocab_size=vocab_size, policy=controller.go_on, worth=controller.room
    )
    proposal = session.propose(context, builder) if builder.room > 0 else None
    if proposal is not None:
        drive(proposal)
    return builder.build(), chance


def _coins(
    draft: Draft,
    chance: _Along,
    shown: Shown,
    at: int,
    judge: Judge | None,
    rng: np.random.Generator | None,
) -> Sequence[bool]:
    """Whether each token of a drawn chain is accepted, once it is reached."""
    if judge is None or rng is None or judge.fixed or judge.joint:
        raise UsageError(
            "drafts that are drawn are followed along a text one by one: ask for greedy "
            "text, or the rule token or match"
        )
    on_text = len(draft) if chance.left is None else chance.left
    chances = chances_along(draft, judge, shown, at, on_text)
    return [bool(rng.random() < one) for one in chances]


def _overlap(draft: Draft, shown: Shown, at: int, record: Round) -> float:
    if draft.laws and shown.laws:
        return float(overlap(shown.laws[at], to_numpy(draft.laws[ROOT])))
    return float(record.num_accepted_tokens > 0)


def _round(
    draft: Draft,
    answer: Sequence[int],
    start: int,
    controller: LengthController,
    coins: Sequence[bool] | None,
) -> Round:
    """The round in which `draft` met the rest of the answer. coins: of a drawn chain."""
    node, accepted = ROOT, 0
    for depth, token in enumerate(answer):
        child = draft.child(node, token)
        if child is None or (coins is not None and not (depth < len(coins) and coins[depth])):
            break
        node, accepted = child, accepted + 1
    tokens = tuple(answer[: accepted + 1])
    last: Origin = (
        "plain" if not draft.tokens else "replacement" if draft.children.get(node) else "bonus"
    )
    drafts: list[Origin] = ["draft"] * accepted
    return Round(
        start=start,
        draft_tokens=draft.tokens,
        draft_parents=draft.parents,
        tokens=tokens,
        origins=(*drafts, last)[: len(tokens)],
        num_accepted_tokens=accepted,
        reached=min(accepted + 1, len(draft)),
        drafter=controller.choice,
        length_reason=controller.reason,
    )
