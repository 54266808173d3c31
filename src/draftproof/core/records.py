"""The frozen records that travel around one round: Draft -> Verdict -> Round.

A *draft* is a token tree given by parents; a chain is the tree with one branch. Node numbers index
`Draft.tokens`; `ROOT` stands for the pending token, the last committed one, which the target reads
in the same pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Array = Any
"""A NumPy array or a torch tensor; `array_api_compat` gives the namespace of either."""

ROOT = -1

Selection = Literal["fixed", "iid", "without_replacement", "top_k_plus_one"]
"""How the children of a node came about: constants given the context, or drawn from the recorded
draft law."""

Origin = Literal["draft", "replacement", "bonus", "plain"]
"""Where an emitted token came from; `plain` when the round had no draft."""


@dataclass(frozen=True)
class Draft:
    """Proposed tokens as a tree.

    tokens: one id a node. parents: the node each hangs under (`ROOT` for the first level), always
    smaller than the node. laws: parent -> the law [vocab] its children were drawn from; empty when
    `selection` is "fixed". ends: the nodes whose token ends the text if it is accepted; nothing
    hangs under them, and there is no law after them.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    laws: Mapping[int, Array] = field(default_factory=dict, compare=False, repr=False)
    selection: Selection = "fixed"
    ends: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Node (or ROOT) -> its children in the order they were proposed."""
        found: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            found.setdefault(parent, []).append(node)
        return found

    def child(self, node: int, token: int) -> int | None:
        """The first child of `node` that proposes `token`, or None."""
        return next((c for c in self.children.get(node, ()) if self.tokens[c] == token), None)

    def nodes_to(self, node: int) -> tuple[int, ...]:
        """The nodes from the first level down to `node`; () for ROOT."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def tokens_to(self, node: int) -> tuple[int, ...]:
        """The tokens on the way to `node`, itself included."""
        return tuple(self.tokens[n] for n in self.nodes_to(node))


@dataclass(frozen=True)
class Beside:
    """Tokens the target reads in the verifying pass beside the draft, for the drafter to learn
    from: never verified or kept.

    tokens: one id a node. parents: the node of these each hangs under, `ROOT` for the pending
    token. wanted: the nodes whose rows are wanted. No drafted token hangs under them, so no
    verified row sees them.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    wanted: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Verdict:
    """What a rule decided: the accepted nodes from the root down, and the one token drawn after
    them."""

    path: tuple[int, ...]
    token: int

    def origin(self, draft: Draft) -> Origin:
        """`bonus` when every draft on the way was accepted, `replacement` after a rejection,
        `plain` without a draft."""
        if not draft.tokens:
            return "plain"
        last = self.path[-1] if self.path else ROOT
        return "replacement" if draft.children.get(last) else "bonus"


@dataclass(frozen=True)
class Seconds:
    """Wall-clock seconds of one round. `draft_forward` is the part of `draft` spent inside model
    forwards. A GPU's passes are not waited for: their time counts where their numbers are first
    looked at, in `draft` and `rest`."""

    draft: float = 0.0
    draft_forward: float = 0.0
    verify: float = 0.0
    rest: float = 0.0


@dataclass(frozen=True)
class Round:
    """One propose-verify-commit, after stopping: everything the statistics and the recorder read.

    start: committed length (prompt included) when the round began. draft_tokens, draft_parents:
    what was proposed. tokens, origins: what was emitted, cut at the stop. num_accepted_tokens:
    accepted drafts among them. num_accepted_after_end: drafts the rule accepted behind the token
    that ended the text; they are in no text. reached: how many draft positions were verified before
    the round ended (accepted, plus the rejected one). overlaps: 1 - TV(target_law, draft_law) at
    each reached position of the path; empty when not computed. reads_prompt: the target pass read
    (part of) the prompt too, so its time is not a round's.
    note: why the draft is shorter than asked, when a drafter or the budget has a reason to give.
    drafter: which of several drafters drafted. length_reason: why the draft is as long as it is,
    where the length adapts. num_read_beside: tokens the target read beside the draft because the
    drafter learns from them.
    """

    start: int
    draft_tokens: tuple[int, ...]
    draft_parents: tuple[int, ...]
    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    num_accepted_tokens: int
    reached: int
    overlaps: tuple[float, ...] = ()
    num_invalid_draft_laws: int = 0
    reads_prompt: bool = False
    note: str | None = None
    drafter: str | None = None
    length_reason: str | None = None
    seconds: Seconds = field(default=Seconds(), compare=False)
    num_read_beside: int = 0
    num_accepted_after_end: int = 0


@dataclass(frozen=True)
class Observation:
    """What a target pass showed about tokens that are now committed; given to
    `DraftSession.observe`.

    start: absolute position of `tokens[0]`. tokens: committed tokens the target has now read (after
    the prompt: the whole prompt but its last token is pending; after a round: the old pending token
    and the accepted path).
    hidden: layer id -> [len(tokens), width], for the layers in `Wants.hidden`.
    row_tokens, row_parents, top_ids: every row of the verifying pass, rejected ones included: its
    token, its parent row (-1: the context) and the target's `Wants.top_ids` best ids [rows,
    top_ids].
    beside_top_ids: the same for the `wanted` nodes of what the drafter had read beside the draft;
    None when it had nothing read, or when the target's context had no room for it.
    round: the finished round, or None after the prompt.
    """

    start: int
    tokens: Sequence[int]
    hidden: Mapping[int, Array] = field(default_factory=dict)
    row_tokens: Sequence[int] = ()
    row_parents: Sequence[int] = ()
    top_ids: Array | None = None
    beside_top_ids: Array | None = None
    round: Round | None = None
