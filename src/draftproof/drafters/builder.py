"""`DraftBuilder`: the only way to add a token to a draft.

`draw` and `draw_children` sample and record the law they sampled from, so the law in the acceptance
ratio is the law of the draw. `go_on` asks whether to draw before the token is known. All drawn
children of a node come from one call, which is given their number before the first of them, since a
rule that reckons with the number of siblings would be biased by one chosen after a look. Nothing
can be removed, so a draft cannot be discarded after looking at it: both conditions of exactness
(independence and adaptedness, 2211.17192 appendix A) hold by construction.
"""

from __future__ import annotations

from collections.abc import Callable

from array_api_compat import array_namespace, is_numpy_array

from draftproof.core.chance import Chance
from draftproof.core.laws import as_numpy, in_memory
from draftproof.core.records import ROOT, Array, Beside, Draft, Selection
from draftproof.core.siblings import without
from draftproof.core.truncate import largest_ids
from draftproof.errors import InvalidLogitsError, UsageError

LengthPolicy = Callable[[Array | None, int], bool]
"""(draft law about to be drawn from, None at temperature 0; depth) -> whether to draw. May look at
laws and past rounds, never at this draft's tokens."""


class DraftBuilder:
    """One round's draft under construction.

    chance: of this round. depth: how deep the draft may grow (the draft length, remaining tokens -
    1, the context limit). max_nodes: cap on nodes of a tree. vocab_size: allowed ids. policy: asked
    by `go_on`. worth: how many more levels after so many are worth their cost, before the drafter
    works for them; `room` gives no more. ends: whether a token at a level of the draft (the first
    is 1) ends the text; nothing fits under such a token."""

    def __init__(
        self,
        chance: Chance,
        *,
        depth: int,
        vocab_size: int,
        max_nodes: int | None = None,
        policy: LengthPolicy | None = None,
        worth: Callable[[int], int] | None = None,
        ends: Callable[[int, int], bool] | None = None,
    ) -> None:
        self._chance, self._depth, self._vocab_size = chance, max(depth, 0), vocab_size
        self._policy, self._worth, self._ends = policy, worth, ends
        self._max_nodes = self._depth if max_nodes is None else max_nodes
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._depths: list[int] = []
        self._ended: set[int] = set()
        self._laws: dict[int, Array] = {}
        self._selection: Selection | None = None
        self._beside: list[tuple[int, int, bool]] = []
        self.num_invalid_laws = 0
        self.notes: list[str] = []

    @property
    def newest(self) -> int:
        """The newest node; `ROOT` while there is none."""
        return len(self._tokens) - 1

    @property
    def num_nodes(self) -> int:
        return len(self._tokens)

    def token(self, node: int) -> int:
        return self._tokens[node]

    def parent(self, node: int) -> int:
        return self._parents[node]

    def nodes_to(self, node: int) -> tuple[int, ...]:
        """The nodes from the first level down to `node`; () for `ROOT`."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self._parents[node]
        return tuple(reversed(nodes))

    @property
    def room(self) -> int:
        """How many more tokens fit under the newest node."""
        return self.room_under(self.newest)

    def room_under(self, node: int) -> int:
        """How many more levels may be added under `node` (`ROOT`: all): they fit, and seem worth
        their cost so far."""
        room, depth = self._space_under(node), self._depth_of(node)
        return room if self._worth is None or room <= 0 else min(room, self._worth(depth))

    @property
    def weighs_laws(self) -> bool:
        """Whether `go_on` looks at laws: then it is worth one even where, at temperature 0, none is
        needed to draft."""
        return self._worth is not None

    def ends_text(self, token: int, depth: int) -> bool:
        """Whether `token` at level `depth` (the first is 1) would end the text: for drafters that
        plan before they add."""
        return self._ends is not None and self._ends(token, depth)

    def _space_under(self, node: int) -> int:
        if node in self._ended:
            return 0
        return min(self._depth - self._depth_of(node), self._max_nodes - len(self._tokens))

    def path(self, node: int | None = None) -> tuple[int, ...]:
        """The drafted tokens down to `node` (default: the newest)."""
        return tuple(self._tokens[n] for n in self.nodes_to(self.newest if node is None else node))

    def go_on(self, law: Array | None, parent: int | None = None) -> bool:
        """Whether to draw from `law` under `parent` (default: the newest node): there is room and
        the length policy agrees."""
        parent = self.newest if parent is None else parent
        return self._space_under(parent) > 0 and (
            self._policy is None or self._policy(law, self._depth_of(parent))
        )

    def draw(self, law: Array, parent: int | None = None) -> int:
        """Sample the one child of `parent` (default: the newest node) from `law` [vocab]; record
        that law. Returns the token.

        What is recorded is a copy that sums to 1, so neither a drafter that reuses its buffer nor
        one that cuts tokens without renormalising changes the law in the ratio. UsageError for what
        is no law over the vocabulary."""
        parent = self._place(parent, "iid")
        return self._draw(self._law_of_children(parent, law), parent)

    def draw_children(
        self, law: Array, count: int, selection: Selection, parent: int | None = None
    ) -> range:
        """Sample up to `count` children of `parent` from `law` [vocab], recorded once. Returns
        their nodes, in draw order.

        iid: independent draws. without_replacement: each drawn token leaves the law, which is
        renormalised. top_k_plus_one: the count - 1 likeliest tokens, then one draw from the rest.
        Fewer come where the support or the draft's room ends."""
        parent = self._place(parent, selection)
        if selection == "fixed":
            raise UsageError(
                "draw_children() draws children from their law; guess() adds fixed ones"
            )
        law = self._law_of_children(parent, law)
        first = len(self._tokens)
        fits = min(count, self._max_nodes - first)
        taken = _likeliest(law, fits - 1) if selection == "top_k_plus_one" else []
        for token in taken:
            self._add(token, parent)
        while len(self._tokens) - first < fits:
            left = without(law, taken) if selection != "iid" else law
            if taken and not bool((left > 0).any()):
                break
            taken = [*taken, self._draw(left, parent)]
        return range(first, len(self._tokens))

    def guess(self, token: int, parent: int | None = None) -> int:
        """Add the constant `token` under `parent` (default: the newest node). Returns its node."""
        parent = self._place(parent, "fixed")
        if not hasattr(token, "__index__") or not 0 <= token < self._vocab_size:
            raise UsageError(
                f"a drafter proposed token {token}; ids go from 0 to {self._vocab_size - 1}"
            )
        self._add(int(token), parent)
        return len(self._tokens) - 1

    def read_beside(self, token: int, parent: int = ROOT, *, wanted: bool = True) -> int:
        """Have the target read `token` beside the draft, under the pending token (`ROOT`) or an
        earlier node read so.

        Returns its node. It is no draft: never verified or kept; `observe` brings the target's top
        ids after it if `wanted`."""
        if not ROOT <= parent < len(self._beside):
            raise UsageError(
                f"node {parent} is not read beside the draft; nodes go from {ROOT} to "
                f"{len(self._beside) - 1}"
            )
        if not hasattr(token, "__index__") or not 0 <= token < self._vocab_size:
            raise UsageError(
                f"a drafter wants token {token} read; ids go from 0 to {self._vocab_size - 1}"
            )
        self._beside.append((int(token), parent, wanted))
        return len(self._beside) - 1

    def beside(self) -> Beside:
        """What the target is to read beside the draft."""
        tokens, parents, wanted = zip(*self._beside, strict=True) if self._beside else ((), (), ())
        return Beside(tokens, parents, tuple(node for node, asked in enumerate(wanted) if asked))

    def invalid_law(self, error: InvalidLogitsError) -> None:
        """A drafter met NaN or a row without any allowed token: the draft ends here, and the
        statistics say so."""
        self.num_invalid_laws += 1
        self.note(f"draft ended early: {error.fault}")

    def note(self, reason: str) -> None:
        """Say, for the statistics, why the draft is shorter than asked."""
        self.notes.append(reason)

    def build(self) -> Draft:
        """The finished draft."""
        return Draft(
            tuple(self._tokens),
            tuple(self._parents),
            dict(self._laws),
            self._selection or "fixed",
            frozenset(self._ended),
        )

    def _place(self, parent: int | None, selection: Selection) -> int:
        parent = self.newest if parent is None else parent
        if not ROOT <= parent < len(self._tokens):
            raise UsageError(
                f"node {parent} is not in the draft; nodes go from {ROOT} to "
                f"{len(self._tokens) - 1}"
            )
        if self._space_under(parent) <= 0:
            raise UsageError("the draft is full: ask `room` before adding a token")
        if self._selection not in (None, selection):
            raise UsageError(
                "one draft is either drawn or guessed, not both: a rule must know how "
                "every token came about"
            )
        self._selection = selection
        return parent

    def _law_of_children(self, parent: int, law: Array) -> Array:
        """`law` as recorded for the children of `parent`, once."""
        if parent in self._laws:
            raise UsageError(
                "the children of a node are drawn once, in one call, their number fixed "
                "before the first is seen: "
                "draw_children(law, count, selection, parent)"
            )
        self._laws[parent] = self._recorded(law)
        return self._laws[parent]

    def _recorded(self, law: Array) -> Array:
        """A copy of `law` of our own, normalised, in float32 or float64."""
        if not hasattr(law, "shape") or tuple(law.shape) != (self._vocab_size,):
            shape = list(law.shape) if hasattr(law, "shape") else type(law).__name__
            raise UsageError(
                f"a drafter drew from a law of shape {shape}; a law is an array "
                f"[{self._vocab_size}]"
            )
        xp = array_namespace(law)
        law = law if law.dtype in (xp.float32, xp.float64) else xp.astype(law, xp.float32)
        total = xp.sum(law, dtype=xp.float64)
        if not in_memory(law):
            return law / xp.astype(total, law.dtype)
        if not (0 < float(total) < float("inf") and float(law.min()) >= 0):
            raise UsageError(
                "a drafter drew from a law with NaN, a negative entry or no mass; report "
                "it by invalid_law() instead"
            )
        law = law / float(total)
        if is_numpy_array(law):
            law.flags.writeable = False
        return law

    def _draw(self, law: Array, parent: int) -> int:
        token = int(self._chance.draw_draft(law, len(self._tokens), self._depth_of(parent)))
        self._add(token, parent)
        return token

    def _depth_of(self, node: int) -> int:
        return 0 if node == ROOT else self._depths[node]

    def _add(self, token: int, parent: int) -> None:
        if self.ends_text(token, 1 + self._depth_of(parent)):
            self._ended.add(len(self._tokens))
        self._depths.append(1 + self._depth_of(parent))
        self._tokens.append(token)
        self._parents.append(parent)


def _likeliest(law: Array, count: int) -> list[int]:
    """The `count` likeliest tokens of `law` [vocab] that have mass, the likeliest first, the lowest
    id among equals."""
    law = as_numpy(law)
    if is_numpy_array(law):
        order = largest_ids(law, count)
    else:
        order = array_namespace(law).argsort(law, descending=True, stable=True)[: max(count, 0)]
    return [
        int(token)
        for token, mass in zip(order.tolist(), law[order].tolist(), strict=True)
        if mass > 0
    ]
