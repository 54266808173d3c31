"""`eagle` and `eagle3`: a head reads the target's own hidden states and goes on from its own output
(2401.15077, 2503.01840).

The states come from the passes that verified earlier drafts, through `observe`; there is no second
forward of the target. A round first reads the rows whose true features are new (the replacement or
bonus has none yet: its row carries the feature of the token before it), then drafts a chain,
sampled or greedy, or EAGLE-2's tree: the likeliest `top_k` continuations of the `top_k` best nodes
of each level, of all of which the best `num_nodes` stay. That choice is a function of context and
logits alone, so its nodes are fixed guesses and `match` verifies them exactly; sampled trees pruned
by confidence would not be exact.

Before the first target pass there are no features, so the round that reads the prompt has no draft.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from copy import copy
from typing import Any, Literal

import torch

from draftproof.core.pipeline import unprocessed_law
from draftproof.core.records import ROOT, Array, Observation, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import (
    Drafter,
    DraftSession,
    Foreseeing,
    Foreseen,
    Memory,
    Renewable,
    Request,
    Wants,
)
from draftproof.errors import InvalidLogitsError, UsageError
from draftproof.heads.feature_head import FeatureHead
from draftproof.heads.passes import FEATURES, FeaturePasses, HeadStep
from draftproof.models.protocol import Output, Step

CHANCE = 0.5
"""Share of a head's drafts accepted once reached, before a request's own rounds are known: heads
reach .3 to .8 (benchmarks/record.md, docs/default_head.md)."""

DraftSampleMethod = Literal["probabilistic", "greedy"]


class Eagle(Drafter):
    """head: the network, over the target that will be decoded. num_nodes: nodes of a dynamic tree,
    0 for a chain; top_k: continuations of a node that are looked at. draft_sample_method: of a
    chain, as for draft models."""

    def __init__(
        self,
        head: FeatureHead,
        draft_sample_method: DraftSampleMethod = "probabilistic",
        *,
        num_nodes: int = 0,
        top_k: int = 10,
        name: str = "eagle",
    ) -> None:
        if draft_sample_method not in ("probabilistic", "greedy"):
            raise UsageError(
                f"draft_sample_method {draft_sample_method!r} is unknown; allowed: "
                "probabilistic, greedy"
            )
        if num_nodes < 0 or top_k < 1:
            raise UsageError(
                f"a dynamic tree has num_nodes from 0 and top_k from 1; got {num_nodes} and {top_k}"
            )
        self.name, self.head, self.draft_sample_method = name, head, draft_sample_method
        self.num_nodes, self.top_k, self.trees = num_nodes, top_k, num_nodes > 0
        fixed = self.trees or draft_sample_method == "greedy"
        self.selections: frozenset[Selection] = frozenset({"fixed"} if fixed else {"iid", "fixed"})
        self.wants = Wants(hidden=tuple(dict.fromkeys(head.hidden_layers)))
        self.memories: tuple[Memory, ...] = ()
        self.network = head
        self.passes = FeaturePasses(head, name)

    def session_bytes(self, num_tokens: int) -> int:
        """What the head's rows of a text take: keys, values and features."""
        head: Any = self.head
        layer = head.layers[0].self_attn
        width = layer.k_proj.out_features + layer.v_proj.out_features + layer.o_proj.out_features
        return int(num_tokens * width * layer.k_proj.weight.element_size())

    def most_read(self, depth: int) -> int:
        """The most tokens of a draft of at most `depth` levels."""
        levels = (self.top_k ** min(level + 1, 2) for level in range(depth))
        return min(self.num_nodes, sum(levels)) if self.trees else depth

    def open(self, request: Request) -> EagleSession:
        return EagleSession(self, request)


class EagleSession(DraftSession, Foreseeing, Renewable):
    """One request: rows read with true features, and features that wait to be read.

    Features of rows that were read are kept too: a chat that goes on elsewhere reads the last row
    before that place again, with another token."""

    def __init__(self, drafter: Eagle, request: Request) -> None:
        self._drafter, self._laws = drafter, request.laws
        self._asks_greedy = drafter.draft_sample_method == "greedy"
        self._greedy = self._asks_greedy or request.laws.greedy
        self._rows = drafter.passes.open()
        self._forget()

    def _forget(self) -> None:
        self._rows.rollback(0)
        self._first = self._true_rows = 0
        self._read: tuple[Any, ...] = ()
        self._waiting: Any = None
        self._shown = False

    @property
    def _known(self) -> int:
        """Position after the last token whose feature is known."""
        return self._first + self._true_rows + (0 if self._waiting is None else len(self._waiting))

    def foresee(self, context: Sequence[int]) -> Foreseen:
        """Nothing before the target has shown the features of the text; then drafts as heads'
        usually are."""
        return (
            Foreseen(1, chance=CHANCE)
            if self._shown and self._known >= len(context) - 1
            else Foreseen(0)
        )

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> Generator[Step, Output, None]:
        if not self._shown:
            return  # as in every text's first round, which is no news
        if self._known < len(context) - 1:
            draft.note("the target has not shown all features yet")
            return
        longest = self._drafter.head.longest
        if longest is not None and len(context) + draft.room > longest:
            draft.note(f"the text outgrew the head's {longest} positions: decoding plainly")
            return
        last = yield self._true_rows_step(context)
        self._read = (*self._read, self._waiting)
        self._true_rows, self._waiting = self._rows.length, None
        try:
            yield from (self._propose_tree if self._drafter.trees else self._propose_chain)(
                context, draft, last
            )
        except InvalidLogitsError as error:
            draft.invalid_law(error)

    def _true_rows_step(self, context: Sequence[int]) -> Step:
        """The pass over the rows whose features are new, for what follows the last of them."""
        start, end = self._first + self._true_rows, self._known
        self._rows.rollback(self._true_rows)
        return self._step(
            context[start + 1 : end + 1], self._waiting, range(start, end), rows=(end - start - 1,)
        )

    def _step(
        self,
        tokens: Sequence[int],
        features: Any,
        positions: Sequence[int],
        *,
        rows: Sequence[int] | None = None,
        sees: Any = None,
    ) -> Step:
        return HeadStep(
            self._rows, tuple(tokens), rows=rows, features=features, positions=positions, sees=sees
        )

    def _propose_chain(
        self, context: Sequence[int], draft: DraftBuilder, last: Output
    ) -> Generator[Step, Output, None]:
        position = len(context) - 1
        while self._grow(last.logits[0], context, draft) and draft.room > 0:
            last = yield self._step(draft.path()[-1:], last.hidden[FEATURES][-1:], (position,))
            position += 1

    def _grow(self, logits: Array, context: Sequence[int], draft: DraftBuilder) -> bool:
        """Add one token to the chain; False when the length policy says stop."""
        path = draft.path()
        law = None if self._laws.greedy else self._laws.law(logits, context, path)
        self._laws.check()
        if not draft.go_on(unprocessed_law(logits) if law is None and draft.weighs_laws else law):
            return False
        if self._greedy or law is None:
            draft.guess(self._laws.greedy_tokens(logits[None, :], context, [path])[0])
        else:
            draft.draw(law)
        return True

    def _propose_tree(
        self, context: Sequence[int], draft: DraftBuilder, last: Output
    ) -> Generator[Step, Output, None]:
        """Expand level by level, then keep the best nodes of all levels and hand them to the
        builder."""
        tree = _Candidates(self._laws, context, self._drafter.top_k, draft)
        depth = draft.room_under(ROOT)
        frontier = tree.expand([ROOT], last.logits)
        base = self._rows.length
        features = {ROOT: last.hidden[FEATURES][-1:]}
        read: list[int] = []
        for level in range(1, depth):
            if not frontier:
                break
            output = yield self._level_step(
                tree, frontier, read, base, features, len(context) - 2 + level
            )
            features |= {
                node: output.hidden[FEATURES][i : i + 1] for i, node in enumerate(frontier)
            }
            read += frontier
            frontier = tree.expand(frontier, output.logits)
        placed = {ROOT: ROOT}
        for node in tree.best(self._drafter.num_nodes):
            # the target's context holds no more in one pass
            if draft.room_under(placed[tree.parents[node]]) <= 0:
                return
            placed[node] = draft.guess(tree.tokens[node], placed[tree.parents[node]])

    def _level_step(
        self,
        tree: _Candidates,
        level: Sequence[int],
        read: Sequence[int],
        base: int,
        features: dict[int, Any],
        position: int,
    ) -> Step:
        """The pass over one level's nodes, each seeing the true rows, the drafted rows above it,
        and itself."""
        place = {node: base + i for i, node in enumerate((*read, *level))}
        sees = torch.zeros(len(level), base + len(read) + len(level), dtype=torch.bool)
        sees[:, :base] = True
        for row, node in enumerate(level):
            above = node
            while above != ROOT:
                sees[row, place[above]] = True
                above = tree.parents[above]
        above_them = torch.cat([features[tree.parents[node]] for node in level])
        tokens = [tree.tokens[node] for node in level]
        return self._step(
            tokens, above_them, [position] * len(level), sees=sees.to(above_them.device)
        )

    def observe(self, seen: Observation) -> None:
        """Keep the features of tokens now read for good. When the session began in the middle of a
        text (its prompt read for another sample), the head reads from there on."""
        if not seen.hidden:
            return
        with torch.no_grad():
            fused = self._drafter.head.fuse(seen.hidden)
        if seen.start != self._known:
            self._forget()
            self._first = seen.start
        self._waiting = fused if self._waiting is None else torch.cat([self._waiting, fused])
        self._shown = True

    def state_key(self) -> Hashable:
        return self._first, self._known, self._shown

    def fork(self) -> EagleSession:
        other = copy(self)  # features are replaced, never written to
        other._rows = self._rows.fork()
        return other

    def renew(self, request: Request, kept: int) -> None:
        """Keep the features of the tokens that stay, and all rows but the last of them, whose token
        may be another one now. As after opening, nothing is drafted before the target has read the
        rest of the prompt."""
        self._laws, self._greedy = request.laws, self._asks_greedy or request.laws.greedy
        features = [*self._read, *([] if self._waiting is None else [self._waiting])]
        count = kept - self._first
        if not features or count <= 0:
            self._forget()
            return
        known = torch.cat(features)[:count]
        self._true_rows = min(self._true_rows, len(known) - 1)
        self._rows.rollback(self._true_rows)
        self._read, self._waiting = (known[: self._true_rows],), known[self._true_rows :]
        self._shown = False

    def close(self) -> None:
        self._forget()
        self._rows.close()


class _Candidates:
    """EAGLE-2's candidates, level after level: token, parent, and the sum of log probabilities on
    the way."""

    def __init__(self, laws: Any, context: Sequence[int], top_k: int, draft: DraftBuilder) -> None:
        self._laws, self._context, self._top_k, self._draft = laws, context, top_k, draft
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._scores: list[float] = []

    def expand(self, frontier: Sequence[int], logits: Any) -> list[int]:
        """Add the `top_k` likeliest allowed children of each node of the frontier; the `top_k` best
        of them come next, but for those that end the text."""
        added: list[int] = []
        chances = logits.double().log_softmax(dim=-1)
        for row, node in enumerate(frontier):
            tokens = self._laws.best_tokens(
                logits[row], self._context, self._path(node), self._top_k
            )
            above = 0.0 if node == ROOT else self._scores[node]
            for token, chance in zip(tokens, chances[row, tokens].tolist(), strict=True):
                added.append(len(self.tokens))
                self.tokens.append(token)
                self.parents.append(node)
                self._scores.append(above + chance)
        going_on = [
            node
            for node in added
            if not self._draft.ends_text(self.tokens[node], len(self._path(node)))
        ]
        return self._ranked(going_on)[: self._top_k]

    def best(self, count: int) -> list[int]:
        """The `count` best nodes of all levels in the order they were added. A score never exceeds
        its parent's, and among equals the earlier node wins, so no node is kept without its
        parent."""
        return sorted(self._ranked(range(len(self.tokens)))[:count])

    def _ranked(self, nodes: Sequence[int]) -> list[int]:
        return sorted(nodes, key=lambda node: (-self._scores[node], node))

    def _path(self, node: int) -> tuple[int, ...]:
        path: list[int] = []
        while node != ROOT:
            path.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(path))
