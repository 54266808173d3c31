"""The kinds of draft every rule is proven against, each as a drafter that runs and as a plain
description of what it does.

The description, `plan(context, path)`, says what comes under a drafted path: a law to draw from, a
token to guess, or None to stop. The proof computes the expected length from it, independently of
the drafter's code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from draftproof.audit.guessing import (
    Expecting,
    cached_guess,
    expected_guess,
    guessed_kinds,
    stored_table,
)
from draftproof.audit.kinds import Kind as Kind
from draftproof.audit.kinds import Plan as Plan
from draftproof.audit.kinds import TreeKind as TreeKind
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Array, Selection
from draftproof.core.tree import TreeShape
from draftproof.drafters.auto import Auto
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.ngram_cache import NGramCache
from draftproof.drafters.protocol import Drafter, DraftSession, Memory, Request
from draftproof.drafters.registry import proofs
from draftproof.models.protocol import LanguageModel, Output, Step
from draftproof.models.table import TableModel


class PlannedDrafter(Drafter):
    """A drafter that does what a plan says."""

    selections: frozenset[Selection] = frozenset({"iid", "fixed"})
    memories: tuple[Memory, ...] = ()

    def __init__(self, name: str, plan: Plan) -> None:
        self.name, self.plan = name, plan

    def open(self, request: Request) -> PlannedSession:
        return PlannedSession(self.plan)


class PlannedSession(DraftSession):
    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def propose(
        self, context: Sequence[int], draft: DraftBuilder
    ) -> Generator[Step, Output, None] | None:
        while draft.room > 0:
            choice = self._plan(tuple(context), draft.path())
            if choice is None:
                return None
            if isinstance(choice, int):
                draft.guess(choice)
            else:
                draft.draw(choice)
        return None

    def state_key(self) -> Hashable:
        return ()

    def fork(self) -> PlannedSession:
        return self  # a plan reads the context only


class PlannedTree(Drafter):
    """A drafter that grows a shape from the laws a plan gives, through the builder like any other.
    Laws are kept: the proof asks for the same ones thousands of times."""

    trees = True
    memories: tuple[Memory, ...] = ()

    def __init__(self, shape: TreeShape, selection: Selection, plan: Plan) -> None:
        self.name, self.shape, self.selection, self._plan = "planned_tree", shape, selection, plan
        self.selections = frozenset({selection})
        self._laws: dict[Any, Any] = {}

    def open(self, request: Request) -> PlannedTreeSession:
        return PlannedTreeSession(self)

    def law(self, context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        if (context, path) not in self._laws:
            self._laws[context, path] = self._plan(context, path)
        return self._laws[context, path]


class PlannedTreeSession(PlannedSession):
    def __init__(self, drafter: PlannedTree) -> None:
        self._drafter = drafter

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        drafter = self._drafter
        placed = {ROOT: ROOT}
        for parent, children in drafter.shape.children.items():
            if parent not in placed or draft.room_under(placed[parent]) <= 0:
                continue
            node = placed[parent]
            law = drafter.law(tuple(context), draft.path(node))
            if drafter.selection == "fixed":
                nodes = [draft.guess(token, node) for token in likeliest(law, len(children))]
            else:
                nodes = list(draft.draw_children(law, len(children), drafter.selection, node))
            placed.update(zip(children, nodes, strict=False))


def likeliest(law: Any, count: int) -> list[int]:
    """The `count` likeliest possible tokens, the lowest id first among equals."""
    order = np.argsort(-np.asarray(law), kind="stable")[:count]
    return [int(token) for token in order if law[int(token)] > 0]


TREES: dict[str, TreeShape] = {
    "chain": TreeShape.chain(3),
    "[2]": TreeShape.from_levels((2,)),
    "[3]": TreeShape.from_levels((3,)),
    "[4]": TreeShape.from_levels((4,)),
    "[3]+1": TreeShape((-1, -1, -1, 2)),
    "[2,1]": TreeShape.from_levels((2, 1)),
    "lopsided": TreeShape((-1, -1, 0, 0)),
    "[2,2]": TreeShape.from_levels((2, 2)),
    "[2,1,1]": TreeShape.from_levels((2, 1, 1)),
    "[2,2]-1": TreeShape((-1, -1, 0, 0, 1)),
    "[2,1,1]-1": TreeShape((-1, -1, 0, 1, 2)),
}
"""The shapes that rules for trees are proven on; the last two stand for those of six nodes where
five are the most. `[3]+1` has one node under its third sibling."""


def tree_kind(
    name: str, draft: TableModel, laws: LawPipeline, wrap: Callable[[TableModel], LanguageModel]
) -> TreeKind:
    """The kind called "<selection> <shape>", or "model <selection> <shape>" for the small-model
    drafter itself."""
    *by, selection, shape_name = name.split(" ")
    shape = TREES[shape_name]

    def plan(context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        return laws.law(draft.logits(context + path), context, path)

    chosen = cast(Selection, selection)
    drafter: Drafter = PlannedTree(shape, chosen, plan)
    if by:
        drafter = DraftModel(
            wrap(draft),
            "greedy" if chosen == "fixed" else "probabilistic",
            tree=shape,
            selection=chosen,
        )
    return TreeKind(name, drafter, plan, shape=shape, selection=chosen)


def kind_named(
    name: str,
    target: TableModel,
    draft: TableModel,
    laws: LawPipeline,
    wrap: Callable[[TableModel], LanguageModel] = lambda model: model,
) -> Kind:
    """One kind of draft, a chain's or a tree's."""
    if name.split(" ")[-1] in TREES:
        return tree_kind(name, draft, laws, wrap)
    listed = kinds(target, draft, laws, wrap)
    return listed[name] if name in listed else guessed_kinds(laws)[name]


def kinds(
    target: TableModel,
    draft: TableModel,
    laws: LawPipeline,
    wrap: Callable[[TableModel], LanguageModel],
) -> dict[str, Kind]:
    """Every kind of draft for one pair under one request's parameters, those that drafters' files
    describe by a guess among them: all are in the proof table, each of a single drafter under every
    rule. `wrap` makes the model the drafter really runs."""

    def law_of(model: TableModel) -> Callable[[tuple[int, ...], tuple[int, ...]], Any]:
        return lambda context, path: laws.law(model.logits(context + path), context, path)

    def shown(model: TableModel, law: Plan) -> Plan:
        """At temperature 0 no law is needed to draft, and the model's own is shown."""
        return (lambda context, path: model.law(context + path)) if laws.greedy else law

    q_law, p_law = law_of(draft), law_of(target)
    narrow = TableModel(
        lambda prefix: _narrowed(draft.law(prefix)), vocab_size=draft.vocab_size, name="narrow"
    )
    narrow_law = law_of(narrow)

    def best(context: tuple[int, ...], path: tuple[int, ...]) -> int:
        return int(np.argmax(q_law(context, path)))

    def stops_after(context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        return None if path and path[-1] == 0 else q_law(context, path)

    def sure(law: Any, depth: int) -> bool:
        return law is None or float(max(law.tolist())) > 0.45

    def stops_before(context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        law = q_law(context, path)
        return law if sure(law, len(path)) else None

    sampled = DraftModel(wrap(draft))
    listed = [
        Kind("sampled", sampled, q_law, shows=shown(draft, q_law)),
        Kind("greedy", DraftModel(wrap(draft), "greedy"), best, shows=shown(draft, q_law)),
        Kind("narrow", DraftModel(wrap(narrow)), narrow_law, shows=shown(narrow, narrow_law)),
        Kind("same", DraftModel(wrap(target)), p_law, shows=shown(target, p_law)),
        Kind(
            "empty", PlannedDrafter("empty", lambda context, path: None), lambda context, path: None
        ),
        Kind("stops_before", sampled, stops_before, sure),
        Kind("stops_after", PlannedDrafter("stops_after", stops_after), stops_after),
        Kind(
            "ngram_cache",
            NGramCache(stored_table()),
            lambda context, path: cached_guess(context, path, laws),
        ),
        Kind("prediction", Expecting(), lambda context, path: expected_guess(context, path, laws)),
        *(
            Kind(name, proof.drafter(), partial(_guess, proof.guess, laws))
            for name, proof in proofs().items()
            if proof.guess is not None
        ),
    ]
    found = {kind.name: kind for kind in listed}
    both = {"ngram": found["ngram"], "draft_model": found["sampled"]}
    auto = Auto({name: kind.drafter for name, kind in both.items()})
    return found | {"auto": Kind("auto", auto, q_law, members=both)}


def _guess(
    guess: Any, laws: LawPipeline, context: tuple[int, ...], path: tuple[int, ...]
) -> int | None:
    token: int | None = guess(context, path, laws)
    return token


def _narrowed(law: Array) -> Array:
    """The law without its least likely token: a draft whose support misses some of the target's."""
    kept = np.where(np.arange(len(law)) == int(np.argmin(law)), 0.0, law)
    return kept / kept.sum()
