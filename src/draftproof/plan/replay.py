"""A drafter without a model, replayed over a recorded text: no forwards, the same code that drafts when decoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftproof.core.chance import KeyedChance, stream_key
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Draft, Observation
from draftproof.decode.drive import drive
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Drafter, DraftSession, Request
from draftproof.models.protocol import LanguageModel
from draftproof.plan.forcing import Text
from draftproof.plan.rounds import Trace


def replay(
    drafter: Drafter, target: LanguageModel, text: Text, params: SamplingParams, longest: int, max_nodes: int | None = None
) -> Trace:
    """Ask `drafter` at every position of the answer for drafts of up to `longest` levels and see which are the text.

    max_nodes: most tokens of a draft, for trees; None is a chain.

    Given the text, a fixed guess is accepted exactly where it is the token: a chain up to its first miss, a tree along the
    branch that follows the text."""
    laws = LawPipeline(
        params, num_prompt_tokens=len(text.prompt), vocab_size=target.vocab_size, eos_token_ids=target.eos_token_ids
    )
    session = drafter.open(Request(text.prompt, params, laws, target))
    n = len(text.answer)
    accept, drafted, nodes = np.zeros((n, longest)), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    overlaps = np.full(n, np.nan)
    whole = [*text.prompt, *text.answer]
    try:
        for s in range(n):
            start = len(text.prompt) + s
            draft = _propose(session, whole[:start], min(longest, n - 1 - s), target.vocab_size, params, max_nodes)
            nodes[s], drafted[s] = len(draft), max((len(draft.nodes_to(node)) for node in range(len(draft))), default=0)
            hits = _hits(draft, text.answer[s:])
            accept[s, :hits] = 1.0
            overlaps[s] = float(hits > 0) if len(draft) else np.nan
            _tell(session, whole, start, first=s == 0)
    finally:
        session.close()
    return Trace(accept, drafted, overlaps, nodes if drafter.trees else None)


def _propose(
    session: DraftSession, context: Sequence[int], longest: int, vocab_size: int, params: SamplingParams, max_nodes: int | None
) -> Draft:
    chance = KeyedChance(stream_key(params.seed or 0, 0), len(context))
    builder = DraftBuilder(chance, depth=longest, vocab_size=vocab_size, max_nodes=max_nodes)
    proposal = session.propose(context, builder) if builder.room > 0 else None
    if proposal is not None:
        drive(proposal)
    return builder.build()


def _hits(draft: Draft, tokens: Sequence[int]) -> int:
    """How many tokens of the text a branch of the draft follows."""
    node, hits = ROOT, 0
    for token in tokens:
        child = draft.child(node, token)
        if child is None:
            break
        node, hits = child, hits + 1
    return hits


def _tell(session: DraftSession, whole: Sequence[int], start: int, first: bool) -> None:
    """What `observe` would have said once the token at `start` is committed: the target has read all before it."""
    begin = 0 if first else start - 1
    session.observe(Observation(start=begin, tokens=tuple(whole[begin:start])))
