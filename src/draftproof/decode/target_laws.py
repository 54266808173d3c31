"""The target's laws after each node of one draft, made from one pass's logits, lazily and once."""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace, device

from draftproof.core.chance import Chance, Scalar
from draftproof.core.laws import overlap
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline, invalid_row
from draftproof.core.records import ROOT, Array, Draft, Verdict


class RowLaws:
    """`TargetLaws` over `logits` [len(draft) + 1, vocab], row 0 after the pending token, row i + 1
    after node i.

    Each row is processed with its own history: the context and the tokens on the way to its node.
    After a draft that ends the text nothing is processed: the law there is one-hot on that very
    token, which nobody emits again. Any other row may have no law either (a grammar has no
    continuation behind a draft that the target rejects, or behind a stop string): what making it
    raised, or an accelerator holds back, is kept, and counts only if the text goes that way; see
    `within_law`."""

    def __init__(
        self, pipeline: LawPipeline, logits: Array, context: Sequence[int], draft: Draft
    ) -> None:
        self._pipeline, self._logits, self._context, self._draft = pipeline, logits, context, draft
        self._rows: dict[int, Array] = {}
        self._draws: dict[int, int] | None = None
        self._errors: dict[int, Exception] = {}
        self._held: dict[int, Array] = {}

    def row(self, node: int) -> Array:
        if node not in self._rows:
            self._rows[node] = (
                self._ended(node) if node in self._draft.ends else self._row_if_any(node)
            )
        return self._rows[node]

    def rows(self, nodes: Sequence[int]) -> Array:
        asked = [node for node in nodes if node not in self._draft.ends]
        try:
            paths = [self._draft.tokens_to(node) for node in asked]
            laws = self._pipeline.laws(
                self._logits[[node + 1 for node in asked]], self._context, paths
            )
            held = self._hold(asked)
            if held is not None:  # flat, as below
                laws = array_namespace(laws).where(held[:, None], 1.0 / laws.shape[-1], laws)
            self._rows |= {node: laws[i] for i, node in enumerate(asked)}
            if len(asked) == len(nodes):
                return laws
        except Exception:  # a caller's processor may raise anything
            pass
        return array_namespace(self._logits).stack([self.row(node) for node in nodes])

    def within_law(self, verdict: Verdict) -> Verdict:
        """`verdict`, or what of it comes before the first row on its way that has no law: the next
        round meets that row first, as plain decoding would. Raises what kept the row after the
        pending token from having one."""
        self._look_at_held()
        way = (ROOT, *verdict.path)
        lawless = next((place for place, node in enumerate(way) if node in self._errors), None)
        if lawless is None:
            return verdict
        if lawless == 0:  # held back by an accelerator
            raise self._errors[ROOT]
        return Verdict(verdict.path[: lawless - 1], self._draft.tokens[way[lawless]])

    def _ended(self, node: int) -> Array:
        xp = array_namespace(self._logits)
        places = xp.arange(self._logits.shape[-1], device=device(self._logits))
        dtype = xp.float64 if self._logits.dtype == xp.float64 else xp.float32
        return xp.astype(places == self._draft.tokens[node], dtype)

    def _hold(self, nodes: Sequence[int]) -> Array | None:
        """Keep which of the rows just made an accelerator holds back, and give them [len(nodes)]
        bool."""
        held_back = self._pipeline.held_back()
        if not held_back:
            return None
        held = held_back[-1]  # of this call: others may have made laws with the same pipeline
        self._held |= {node: held[i : i + 1] for i, node in enumerate(nodes)}
        return held

    def _look_at_held(self) -> None:
        """Make errors of the rows that an accelerator held back: one wait for all of them."""
        if not self._held:
            return
        nodes = list(self._held)
        lawless = (
            array_namespace(self._held[nodes[0]])
            .concat([self._held[node] for node in nodes])
            .tolist()
        )
        self._errors |= {
            node: invalid_row() for node, without in zip(nodes, lawless, strict=True) if without
        }
        self._held = {}

    def _row_if_any(self, node: int) -> Array:
        """The law after `node`; where there is none a flat one, which no draft that can be accepted
        leads to."""
        try:
            law = self._pipeline.law(
                self._logits[node + 1], self._context, self._draft.tokens_to(node)
            )
            held = self._hold([node])
            return (
                law if held is None else array_namespace(law).where(held, 1.0 / law.shape[-1], law)
            )
        except Exception as error:
            if node == ROOT:
                raise  # every text goes there
            self._errors[node] = error
            flat = array_namespace(self._logits).ones_like(self._logits[0])
            return LawPipeline(SamplingParams(), num_prompt_tokens=0, vocab_size=len(flat)).law(
                flat, ()
            )

    def draw(self, node: int, chance: Chance) -> Scalar:
        if node in self._draft.ends:
            return self._draft.tokens[node]
        if not self._on_accelerator:
            return (
                self._best_if_any(node)
                if self._pipeline.greedy
                else chance.draw_target(self.row(node), self._depth(node))
            )
        if self._draws is None:
            nodes = [node for node in range(ROOT, len(self._draft)) if node not in self._draft.ends]
            self._draws = dict(zip(nodes, self._all_draws(nodes, chance), strict=True))
        return self._draws[node]

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
        return getattr(self._logits, "is_cuda", False) or str(device(self._logits)).startswith(
            ("mps", "xpu")
        )

    def _all_draws(self, nodes: Sequence[int], chance: Chance) -> list[int]:
        """The tokens after all `nodes` at once: one wait for the device instead of one a level."""
        if self._pipeline.greedy:
            return self._all_best(nodes)
        laws = self.rows(nodes)
        draws = [chance.draw_target(laws[i], self._depth(node)) for i, node in enumerate(nodes)]
        return [int(token) for token in array_namespace(laws).stack(draws).tolist()]

    def _all_best(self, nodes: Sequence[int]) -> list[int]:
        try:
            logits = self._logits[[node + 1 for node in nodes]]
            return self._pipeline.greedy_tokens(
                logits, self._context, [self._draft.tokens_to(node) for node in nodes]
            )
        except Exception:
            # one row has none, or a caller's processor raised: counts only if the text goes there
            return [self._best_if_any(node) for node in nodes]

    def _best_if_any(self, node: int) -> int:
        try:
            row = self._logits[node + 1][None, :]
            return self._pipeline.greedy_tokens(row, self._context, [self._draft.tokens_to(node)])[
                0
            ]
        except Exception as error:
            if node == ROOT:
                raise
            self._errors[node] = error
            return 0
