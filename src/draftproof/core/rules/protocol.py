"""What a verification rule is: it sees a draft and the target's laws, and decides what is kept.

A rule must return the target's law exactly, position by position or as a block, for every draft
whose selection it accepts; `lossless` says whether it does. Chance enters only through the `Chance`
it is handed, so the enumerator can walk every outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from draftproof.core.chance import Chance, Scalar
from draftproof.core.records import Array, Draft, Selection, Verdict


class TargetLaws(Protocol):
    """The target's laws after each node of one draft, processed lazily: only visited nodes cost
    anything."""

    def row(self, node: int) -> Array:
        """The law [vocab] of the token after `node` (`ROOT`: after the pending token)."""

    def rows(self, nodes: Sequence[int]) -> Array:
        """The laws [len(nodes), vocab] after several nodes."""

    def draw(self, node: int, chance: Chance) -> Scalar:
        """The target's own token after `node`, the one plain decoding would draw at that
        position."""


class Rule(ABC):
    """name: as reports show it. lossless: the output law is the target's. selections: kinds of
    draft it may verify. trees: whether it takes drafts that branch. coupled: whether drafter and
    target must draw with shared noise (`CoupledChance`). text_follows_seed: every token it emits is
    the target's own draw at its position, so that the text for a seed is plain decoding's whatever
    is drafted. Under any other rule drafts and their lengths shape the text, though not its law.

    A rule of your own subclasses this one; name, lossless and selections have no default."""

    name: str
    lossless: bool
    selections: frozenset[Selection]
    trees: bool = False
    coupled: bool = False
    text_follows_seed: bool = False

    @abstractmethod
    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        """Decide one draft. The verdict's path starts at a first-level node; its token follows the
        last accepted one."""
