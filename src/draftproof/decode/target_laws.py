"""The target's laws after each node of one draft, made from one pass's logits, lazily and once."""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace, device

from draftproof.core.chance import Chance, Scalar
from draftproof.core.laws import overlap
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Array, Draft


class RowLaws:
    """`TargetLaws` over `logits` [len(draft) + 1, vocab], row 0 after the pending token, row i + 1 after node i.

    Each row is processed with its own history: the context and the tokens on the way to its node. A row behind a draft that is
    not accepted may have no law at all (a grammar has no continuation there): what making it raised is kept, and raised by
    `check` only if the text went that way."""

    def __init__(self, pipeline: LawPipeline, logits: Array, context: Sequence[int], draft: Draft) -> None:
        self._pipeline, self._logits, self._context, self._draft = pipeline, logits, context, draft
        self._rows: dict[int, Array] = {}
        self._draws: list[int] | None = None
        self._errors: dict[int, Exception] = {}

    def row(self, node: int) -> Array:
        if node not in self._rows:
            path = self._draft.tokens_to(node)
            self._rows[node] = self._pipeline.law(self._logits[node + 1], self._context, path)
        return self._rows[node]

    def rows(self, nodes: Sequence[int]) -> Array:
        try:
            paths = [self._draft.tokens_to(node) for node in nodes]
            laws = self._pipeline.laws(self._logits[[node + 1 for node in nodes]], self._context, paths)
            self._rows = {node: laws[i] for i, node in enumerate(nodes)}
            return laws
        except Exception:  # a caller's processor may raise anything
            return array_namespace(self._logits).stack([self._row_if_any(node) for node in nodes])

    def check(self, path: Sequence[int]) -> None:
        """Raise what kept a row on the accepted `path` from having a law."""
        for node in (ROOT, *path):
            if node in self._errors:
                raise self._errors[node]
        self._pipeline.check()

    def _row_if_any(self, node: int) -> Array:
        """The law after `node`; where there is none a flat one, which no draft that can be accepted leads to."""
        try:
            return self.row(node)
        except Exception as error:
            self._errors[node] = error
            flat = array_namespace(self._logits).ones_like(self._logits[0])
            return LawPipeline(SamplingParams(), num_prompt_tokens=0, vocab_size=len(flat)).law(flat, ())

    def draw(self, node: int, chance: Chance) -> Scalar:
        depth = len(self._draft.nodes_to(node))
        if not self._on_accelerator:
            if self._pipeline.greedy:
                return self._pipeline.greedy_tokens(
                    self._logits[node + 1][None, :], self._context, [self._draft.tokens_to(node)]
                )[0]
            return chance.draw_target(self.row(node), depth)
        if self._draws is None:
            self._draws = self._all_draws(chance)
        return self._draws[node + 1]

    def overlap(self, node: int, accepted: bool) -> float:
        """1 - TV between the target's law and the draft's where `node` was proposed."""
        if self._pipeline.greedy:
            return float(accepted)
        parent = self._draft.parents[node]
        if self._draft.selection == "fixed":
            return float(self.row(parent)[self._draft.tokens[node]])
        return float(overlap(self.row(parent), self._draft.laws[parent]))

    @property
    def _on_accelerator(self) -> bool:
        return getattr(self._logits, "is_cuda", False) or str(device(self._logits)).startswith(("mps", "xpu"))

    def _all_draws(self, chance: Chance) -> list[int]:
        """Every row's token at once: one wait for the device instead of one a level."""
        nodes = range(ROOT, len(self._draft))
        paths = [self._draft.tokens_to(node) for node in nodes]
        if self._pipeline.greedy:
            return self._pipeline.greedy_tokens(self._logits, self._context, paths)
        laws = self.rows(tuple(nodes))
        xp = array_namespace(laws)
        draws = [chance.draw_target(laws[i], len(path)) for i, path in enumerate(paths)]
        return [int(token) for token in xp.stack(draws).tolist()]
