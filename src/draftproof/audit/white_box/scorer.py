"""The target's laws at every place of a recorded round, computed anew by the auditor's own copy of
the target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.engines.rounds import RecordedRound
from draftproof.core.laws import as_numpy
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Draft
from draftproof.core.siblings import sibling_law
from draftproof.decode.target_laws import RowLaws
from draftproof.decode.ties import BLOCKS, last_logits
from draftproof.models.protocol import LanguageModel, Session, Step, extend

Vector = NDArray[np.float64]


class Scorer:
    """Reads a text round by round, its drafts beside it. One session a text; drafts never stay in
    it."""

    def __init__(self, target: LanguageModel, params: SamplingParams) -> None:
        self.target, self.params = target, params
        self._session: Session | None = None
        self._pipeline: LawPipeline | None = None

    def laws(self, seen: RecordedRound) -> ScoredLaws:
        """The target's laws after the pending token and after each draft."""
        session, pipeline = self._at(seen)
        draft, unread = seen.draft, seen.context[session.length :]
        first = len(unread) - 1
        parents = (
            None
            if draft.is_chain
            else (*range(-1, first), *(first + 1 + parent for parent in draft.parents))
        )
        rows = range(first, first + 1 + len(draft))
        output = extend(Step(session, (*unread, *draft.tokens), parents, rows))
        session.keep(range(len(unread)))
        return ScoredLaws(pipeline, output.logits, seen.context, draft)

    def rounding(self, tokens: tuple[int, ...]) -> float:
        """How much a pass over several tokens moves log-probabilities against passes over one: the
        root of the mean square in nats, weighted by the law, over the last places of `tokens`."""
        single, most = _log_laws(self.target, tokens, 1), 0.0
        for size in BLOCKS:
            block = _log_laws(self.target, tokens, size)
            moved = np.where(
                np.isfinite(single), single - np.where(np.isfinite(block), block, 0.0), 0.0
            )
            most = max(most, float(np.sqrt((np.exp(single) * moved**2).sum(axis=1).mean())))
        return most

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _at(self, seen: RecordedRound) -> tuple[Session, LawPipeline]:
        """The session, holding a prefix of the round's context that leaves at least the pending
        token unread."""
        if self._session is None or len(seen.context) == len(seen.prompt):
            self.close()
            self._session = self.target.open()
            self._pipeline = LawPipeline(
                self.params,
                num_prompt_tokens=len(seen.prompt),
                vocab_size=self.target.vocab_size,
                eos_token_ids=self.target.eos_token_ids,
            )
        assert self._pipeline is not None
        return self._session, self._pipeline


class ScoredLaws(RowLaws):
    """The target's laws of one round, and what they would be with one mistake."""

    def vector(self, node: int) -> Vector:
        """The law after `node` [vocab], float64."""
        return np.array(as_numpy(self.row(node)), dtype=np.float64)

    def stale(self, node: int) -> Vector | None:
        """The law after `node` if penalties and processors saw the text as it was when the round
        began; None where they see none of it, or nothing new."""
        if node == ROOT or not self._pipeline.reads_history or node in self._draft.ends:
            return None
        return np.array(
            as_numpy(self._pipeline.law(self._logits[node + 1], self._context, ())),
            dtype=np.float64,
        )


def _log_laws(target: LanguageModel, tokens: tuple[int, ...], block: int) -> NDArray[np.float64]:
    """Log-probabilities [n, vocab] after the last tokens, read `block` tokens at a time."""
    logits = last_logits(target, tokens, block)
    top = logits.max(axis=1, keepdims=True)
    shifted: NDArray[np.float64] = (
        logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    )
    return shifted


def claimed_law(draft: Draft, node: int, like: Vector) -> Vector:
    """The law [vocab], float64, that the engine claims `node` was drawn from, given its earlier
    siblings."""
    return np.asarray(as_numpy(sibling_law(draft, node, like)), dtype=np.float64)
