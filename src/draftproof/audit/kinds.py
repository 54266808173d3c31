"""What a kind of draft is to the proof: a drafter that runs, and a plain description of what it
does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from draftproof.core.expected_chains import Plan as Plan
from draftproof.core.records import Selection
from draftproof.core.tree import TreeShape
from draftproof.drafters.builder import LengthPolicy
from draftproof.drafters.protocol import Drafter


@dataclass(frozen=True)
class Kind:
    """A drafter, its description, and the length policy it runs under. shows: the law it shows to a
    length controller under a path; None if none. members: of a drafter of several, their
    descriptions."""

    name: str
    drafter: Drafter
    plan: Plan
    policy: LengthPolicy | None = None
    shows: Plan | None = None
    members: Mapping[str, Kind] = field(default_factory=dict)


@dataclass(frozen=True)
class TreeKind(Kind):
    """A kind whose drafts have a fixed shape; `plan` gives the law every node's children come
    from."""

    shape: TreeShape = TreeShape((-1,))
    selection: Selection = "fixed"


@dataclass(frozen=True)
class GuessedKind(TreeKind):
    """A kind whose guesses form a tree that depends on the context. paths(context, depth): every
    drafted path at most `depth` long. `shape` only caps the nodes."""

    paths: Callable[[tuple[int, ...], int], list[tuple[int, ...]]] = lambda context, depth: []
