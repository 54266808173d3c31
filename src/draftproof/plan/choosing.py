"""Drafts whose length or drafter is chosen round by round, over a recorded text: the rounds that decoding would have made.

The drafters' and the length controller's own code runs, from the first round to the last; only the target is replaced, by what
it once wrote and by one reading of that. Fixed guesses are accepted where they are the text (greedy text, or any text under
`match`), so on one table of costs the rounds are those of a real run. Drafts that are drawn are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.core.chance import KeyedChance
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Draft, Origin, Round
from draftproof.decode.drive import drive
from draftproof.decode.length import LengthController, Situation
from draftproof.drafters.auto import AutoSession
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Drafter, Request
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.plan.forcing import Text
from draftproof.plan.shown import show


def walk(
    drafter: Drafter,
    controller: LengthController,
    target: LanguageModel,
    text: Text,
    params: SamplingParams,
    longest: int,
    max_tokens: int | None = None,
) -> list[Round]:
    """The rounds in which `drafter`, led by `controller`, comes through the answer of `text`. longest: the longest draft.
    max_tokens: the limit the text was written under, by default its length."""
    laws = LawPipeline(
        params, num_prompt_tokens=len(text.prompt), vocab_size=target.vocab_size, eos_token_ids=target.eos_token_ids
    )
    shown = show(target, text, drafter.wants)
    session = drafter.open(Request(text.prompt, params, laws, target))
    whole, limit, at, told = (*text.prompt, *text.answer), max_tokens or len(text.answer), 0, 0
    rounds: list[Round] = []
    try:
        while at < len(text.answer):
            for place in range(told + 1, at + 1):
                session.observe(shown.before(place))
            told = at
            context = whole[: len(text.prompt) + at]
            foreseen = controller.foreseen(session, context)
            depth = controller.begin(Situation(len(context), min(longest, limit - at - 1), limit - at, foreseen))
            if isinstance(session, AutoSession) and controller.choice is not None:
                session.choose(controller.choice)
            builder = DraftBuilder(
                KeyedChance((0, 0), len(context)),
                depth=depth,
                vocab_size=target.vocab_size,
                policy=controller.go_on,
                worth=controller.room,
            )
            proposal = session.propose(context, builder) if builder.room > 0 else None
            if proposal is not None:
                drive(proposal)
            record = _round(builder.build(), text.answer[at:], len(context), controller)
            controller.observe(record)
            rounds.append(record)
            at += len(record.tokens)
    finally:
        session.close()
    return rounds


def _round(draft: Draft, answer: Sequence[int], start: int, controller: LengthController) -> Round:
    """The round in which `draft` met the rest of the answer."""
    if draft.laws:
        raise UsageError("drafts that are drawn cannot be followed along a text; ask for greedy text or the rule match")
    node, accepted = ROOT, 0
    for token in answer:
        child = draft.child(node, token)
        if child is None:
            break
        node, accepted = child, accepted + 1
    tokens = tuple(answer[: accepted + 1])
    last: Origin = "plain" if not draft.tokens else "replacement" if draft.children.get(node) else "bonus"
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
