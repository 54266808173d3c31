"""A drafter asked over a recorded text, at every place where a round may begin: the same code that
drafts when decoding.

Fixed guesses are accepted where they are the text. A drawn chain is made to draw the text itself:
given that the drafts before were accepted, they are the text, so the laws it draws from are those
of a real round, and what they and the target's laws give the text's token is its chance of having
been an accepted draft. What drafters want to see of the target's passes comes from one reading of
the text; the rows of rejected drafts, which feed some of them in a real run, are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from draftproof.core.laws import overlap
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Array, Draft
from draftproof.decode.passes import drive
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Drafter, DraftSession, Request
from draftproof.models.protocol import LanguageModel
from draftproof.plan.acceptance import Judge
from draftproof.plan.forcing import Floats, Text, to_numpy
from draftproof.plan.rounds import Trace, kept_shares
from draftproof.plan.shown import Shown, show


def replay(
    drafter: Drafter,
    target: LanguageModel,
    text: Text,
    params: SamplingParams,
    longest: int,
    max_nodes: int | None = None,
    judge: Judge | None = None,
) -> Trace:
    """Ask `drafter` at every position of the answer for drafts of up to `longest` levels and see
    which are the text.

    max_nodes: most tokens of a draft, for trees; None is a chain. judge: of drawn chains; None when
    all drafts are fixed."""
    laws = LawPipeline(
        params,
        num_prompt_tokens=len(text.prompt),
        vocab_size=target.vocab_size,
        eos_token_ids=target.eos_token_ids,
    )
    draws = judge is not None and not judge.fixed
    shown = show(target, text, drafter.wants, laws if draws else None)
    session = drafter.open(Request(text.prompt, params, laws, target))
    n = len(text.answer)
    accept, drafted = np.zeros((n, longest)), np.zeros(n, dtype=np.int64)
    nodes = np.zeros(n, dtype=np.int64)
    overlaps = np.full(n, np.nan)
    whole = [*text.prompt, *text.answer]
    try:
        for s in range(n):
            if s:
                session.observe(shown.before(s))
            room = min(longest, n - 1 - s)
            draft = _propose(
                session,
                whole[: len(text.prompt) + s],
                text.answer[s:],
                room,
                target.vocab_size,
                max_nodes,
            )
            if draft.laws and judge is not None:
                drafted[s] = nodes[s] = room
                accept[s], overlaps[s] = _drawn(draft, judge, shown, s, longest)
                continue
            nodes[s] = len(draft)
            drafted[s] = max((len(draft.nodes_to(node)) for node in range(len(draft))), default=0)
            hits = _hits(draft, text.answer[s:])
            accept[s, :hits] = 1.0
            overlaps[s] = float(hits > 0) if len(draft) else np.nan
    finally:
        session.close()
    if judge is not None and judge.joint and text.own:
        accept = kept_shares(accept)
    return Trace(accept, drafted, overlaps, nodes if drafter.trees else None)


class _LeftTheText(Exception):
    """The draft law gives the text's next token nothing."""


class _Following:
    """Chance that draws the text: `tokens` from the first drafted position on."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens

    def draw_draft(self, law: Array, node: int, depth: int) -> int:
        token = self._tokens[depth]
        if not law[token] > 0:
            raise _LeftTheText
        return token


def _propose(
    session: DraftSession,
    context: Sequence[int],
    tokens: Sequence[int],
    longest: int,
    vocab_size: int,
    max_nodes: int | None,
) -> Draft:
    """The draft after `context`; a drawn one ends where its law gives the text's token nothing."""
    builder = DraftBuilder(
        _Following(tokens),  # type: ignore[arg-type]
        depth=longest,
        vocab_size=vocab_size,
        max_nodes=max_nodes,
    )
    with suppress(_LeftTheText):
        proposal = session.propose(context, builder) if builder.room > 0 else None
        if proposal is not None:
            drive(proposal)
    return builder.build()


def _drawn(
    draft: Draft, judge: Judge, shown: Shown, start: int, longest: int
) -> tuple[Floats, float]:
    """Chances [longest] of a drawn chain that followed the text, and the overlap of the first laws.

    On a given answer the chances of its tokens say nothing about what the target would emit;
    overlaps stand in."""
    chances = np.zeros(longest)
    chances[: len(draft)] = chances_along(draft, judge, shown, start, len(draft))
    return chances, float(overlap(shown.laws[start], to_numpy(draft.laws[ROOT])))


def chances_along(draft: Draft, judge: Judge, shown: Shown, start: int, count: int) -> list[float]:
    """The chance of each of the first `count` tokens of a drawn chain, which are the text from its
    token `start` on, of having been an accepted draft."""
    found = []
    for depth, token in enumerate(draft.tokens[:count]):
        ours, theirs = shown.laws[start + depth], to_numpy(draft.laws[depth - 1 if depth else ROOT])
        at_token = (
            judge.laws(ours[None], theirs[None], np.array([token]))[0, 0]
            if shown.text.own
            else overlap(ours, theirs)
        )
        found.append(float(at_token))
    return found


def _hits(draft: Draft, tokens: Sequence[int]) -> int:
    """How many tokens of the text a branch of the draft follows."""
    node, hits = ROOT, 0
    for token in tokens:
        child = draft.child(node, token)
        if child is None:
            break
        node, hits = child, hits + 1
    return hits
