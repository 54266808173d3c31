"""The target's laws after each node of one draft, made from one pass's logits, lazily and once."""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace, device

from draftproof.core.chance import Chance, Scalar
from draftproof.core.laws import overlap
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline, refuse_invalid
from draftproof.core.records import ROOT, Array, Draft


class RowLaws:
    """`TargetLaws` over `logits` [len(draft) + 1, vocab], row 0 after the pending token, row i + 1 after node i.

    Each row is processed with its own history: the context and the tokens on the way to its node. A row behind a draft that is
    not accepted may have no law at all (a grammar has no continuation there): what making it raised, or an accelerator holds
    back, is kept, and raised by `check` only if the text went that way."""

    def __init__(self, pipeline: LawPipeline, logits: Array, context: Sequence[int], draft: Draft) -> None:
        self._pipeline, self._logits, self._context, self._draft = pipeline, logits, context, draft
        self._rows: dict[int, Array] = {}
        self._draws: list[int] | None = None
        self._errors: dict[int, Exception] = {}
        self._held: dict[int, Array] = {}

    def row(self, node: int) -> Array:
        if node not in self._rows:
            path = self._draft.tokens_to(node)
            self._rows[node] = self._pipeline.law(self._logits[node + 1], self._context, path)
            self._hold([node])
        return self._rows[node]

    def rows(self, nodes: Sequence[int]) -> Array:
        try:
            paths = [self._draft.tokens_to(node) for node in nodes]
            laws = self._pipeline.laws(self._logits[[node + 1 for node in nodes]], self._context, paths)
            held = self._hold(nodes)
            if held is not None:  # flat, as below
                laws = array_namespace(laws).where(held[:, None], 1.0 / laws.shape[-1], laws)
            self._rows = {node: laws[i] for i, node in enumerate(nodes)}
            return laws
        except Exception:  # a caller's processor may raise anything
            return array_namespace(self._logits).stack([self._row_if_any(node) for node in nodes])

    def _hold(self, nodes: Sequence[int]) -> Array | None:
        """Keep for `check` which of the rows just made an accelerator holds back, and give them [len(nodes)] bool."""
        held = next(iter(self._pipeline.held_back()), None)
        if held is not None:
            self._held |= {node: held[i : i + 1] for i, node in enumerate(nodes)}
        return held

    def check(self, path: Sequence[int]) -> None:
        """Raise what kept a row on the accepted `path` from having a law."""
        way = (ROOT, *path)
        for node in way:
            if node in self._errors:
                raise self._errors[node]
        refuse_invalid([self._held[node] for node in way if node in self._held])

    def _row_if_any(self, node: int) -> Array:
        """The law after `node`; where there is none a flat one, which no draft that can be accepted leads to."""
        try:
            return self.row(node)
        except Exception as error:
            self._errors[node] = error
            flat = array_namespace(self._logits).ones_like(self._logits[0])
            return LawPipeline(SamplingParams(), num_prompt_tokens=0, vocab_size=len(flat)).law(flat, ())

    def draw(self, node: int, chance: Chance) -> Scalar:
        if not self._on_accelerator:
            return self._best(node) if self._pipeline.greedy else chance.draw_target(self.row(node), self._depth(node))
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

    def _depth(self, node: int) -> int:
        return len(self._draft.nodes_to(node))

    @property
    def _on_accelerator(self) -> bool:
        return getattr(self._logits, "is_cuda", False) or str(device(self._logits)).startswith(("mps", "xpu"))

    def _all_draws(self, chance: Chance) -> list[int]:
        """Every row's token at once: one wait for the device instead of one a level."""
        nodes = tuple(range(ROOT, len(self._draft)))
        if self._pipeline.greedy:
            return self._all_best(nodes)
        laws = self.rows(nodes)
        draws = [chance.draw_target(laws[i], self._depth(node)) for i, node in enumerate(nodes)]
        return [int(token) for token in array_namespace(laws).stack(draws).tolist()]

    def _all_best(self, nodes: Sequence[int]) -> list[int]:
        try:
            return self._pipeline.greedy_tokens(self._logits, self._context, [self._draft.tokens_to(node) for node in nodes])
        except Exception:  # one row has none, or a caller's processor raised: it counts only if the text goes that way
            return [self._best_if_any(node) for node in nodes]

    def _best_if_any(self, node: int) -> int:
        try:
            return self._best(node)
        except Exception as error:
            self._errors[node] = error
            return 0

    def _best(self, node: int) -> int:
        row = self._logits[node + 1][None, :]
        return self._pipeline.greedy_tokens(row, self._context, [self._draft.tokens_to(node)])[0]
