"""`medusa`: independent heads on the target's last hidden state guess the next tokens, one head a
position (2401.10774).

The state comes from the pass that verified the last draft, through `observe`. Drafts are a chain of
the likeliest tokens, or a sparse product tree: the child in place j below any node of level i is
the j-th likeliest token of head i. Heads know nothing of what the levels above chose, so everything
is a constant given the context: fixed guesses, verified exactly by `match`. (The typical acceptance
of the paper is a rule of its own, and a lossy one.)

Before the first target pass there is no state, so the round that reads the prompt has no draft.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from copy import copy
from typing import Any

from draftproof.core.records import ROOT, Array, Observation, Selection
from draftproof.core.tree import TreeShape
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
from draftproof.heads.feature_head import as_tensor
from draftproof.heads.medusa import Medusa as MedusaHeads
from draftproof.heads.passes import HeadStep, MedusaPasses
from draftproof.models.protocol import Output, Step

CHANCE = 0.5
"""Share of its drafts accepted once reached, before a request's own rounds are known."""


class Medusa(Drafter):
    """heads: the networks. tree: the shape of drafts, at most one level a head; None for a chain of
    the draft length."""

    name = "medusa"
    selections: frozenset[Selection] = frozenset({"fixed"})
    memories: tuple[Memory, ...] = ()

    def __init__(self, heads: MedusaHeads, *, tree: TreeShape | None = None) -> None:
        if tree is not None and tree.depth > heads.config.num_heads:
            raise UsageError(
                f"the tree has {tree.depth} levels, but there are "
                f"{heads.config.num_heads} heads, one a level"
            )
        self.heads, self.tree = heads, tree
        self.trees = tree is not None and not tree.is_chain
        self.wants = Wants(hidden=heads.hidden_layers)
        self.network, self.tokens_a_step = heads, heads.config.num_heads
        self.passes = MedusaPasses(heads, self.name)

    def open(self, request: Request) -> MedusaSession:
        return MedusaSession(self, request)


class MedusaSession(DraftSession, Foreseeing, Renewable):
    """One request: the target's state after the last token it has read."""

    def __init__(self, drafter: Medusa, request: Request) -> None:
        self._heads, self._laws = drafter.heads, request.laws
        self._tree = drafter.tree if drafter.trees else None
        self._session = drafter.passes.open()
        self._state: Any = None
        self._known = 0

    def foresee(self, context: Sequence[int]) -> Foreseen:
        """Nothing before the target has shown its state, as in every text's first round; then
        drafts as heads' usually are."""
        return (
            Foreseen(1, chance=CHANCE)
            if self._state is not None and self._known == len(context) - 1
            else Foreseen(0)
        )

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> Generator[Step, Output, None]:
        if self.foresee(context).strength == 0:
            return
        num_heads = self._heads.config.num_heads
        depth = min(draft.room_under(ROOT), num_heads)
        if draft.room_under(ROOT) > num_heads:
            draft.note(f"there are {num_heads} heads, so no draft is longer")
        shape = self._tree or TreeShape.chain(depth)
        placed = {ROOT: ROOT}
        try:
            for level in range(depth):
                parents = (
                    [ROOT]
                    if level == 0
                    else [node for node in shape.levels[level - 1] if node in placed]
                )
                parents = [
                    node
                    for node in parents
                    if node in shape.children and draft.room_under(placed[node]) > 0
                ]
                if not parents:
                    return
                output = yield self._step(level)
                self._grow(shape, parents, output.logits[0], context, draft, placed)
        except InvalidLogitsError as error:
            draft.invalid_law(error)

    def _step(self, level: int) -> Step:
        return HeadStep(self._session, (), features=self._state, positions=(level,))

    def _grow(
        self,
        shape: TreeShape,
        parents: Sequence[int],
        logits: Array,
        context: Sequence[int],
        draft: DraftBuilder,
        placed: dict[int, int],
    ) -> None:
        """One level: below each of `parents` the likeliest tokens of `logits`, its head's, as many
        as the shape has places.

        placed: node of the shape -> node of the draft. Penalties and bans are applied with each
        node's own path."""
        most = max(len(shape.children[node]) for node in parents)
        shared = (
            None if self._laws.reads_history else self._laws.best_tokens(logits, context, (), most)
        )
        for node in parents:
            if not draft.go_on(None, placed[node]):
                continue
            children = shape.children[node]
            path = draft.path(placed[node])
            tokens = (
                self._laws.best_tokens(logits, context, path, len(children))
                if shared is None
                else shared
            )
            for child, token in zip(children, tokens, strict=False):
                if draft.room_under(placed[node]) > 0:
                    placed[child] = draft.guess(token, placed[node])

    def observe(self, seen: Observation) -> None:
        layer = self._heads.config.hidden_layer
        if layer in seen.hidden:
            self._state = as_tensor(seen.hidden[layer][-1], self._heads.lm_heads[0].weight)  # type: ignore[arg-type]
            self._known = seen.start + len(seen.tokens)

    def state_key(self) -> Hashable:
        return self._known

    def fork(self) -> MedusaSession:
        other = copy(self)  # the state is replaced, never written to
        other._session = self._session.fork()
        return other

    def renew(self, request: Request, kept: int) -> None:
        """Only the state after the last token read is ever kept, and the round that reads a prompt
        drafts nothing."""
        self._laws = request.laws
        self._state, self._known = None, 0

    def close(self) -> None:
        self._state, self._known = None, 0
