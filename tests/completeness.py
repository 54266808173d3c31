"""Which drafters the default proof runs, and the sentence about one that it does not."""

from __future__ import annotations

from functools import cache

from draftproof.audit import cells, heads, table
from draftproof.audit.cells import harness_of

A_CELL = (
    "state proof= in the drafter's METHODS (docs/add_a_drafter.md), or, where it needs a "
    "model, a head or a store, in audit/"
)
NO_DRAFTERS = {"builder", "heads", "options", "protocol", "registry"}


@cache
def cells_by_draft():
    """One case of the default proof for every kind of draft in it."""
    coverings = (
        table.covering,
        table.tree_covering,
        table.guessed_covering,
        cells.other_covering,
        cells.head_covering,
    )
    cases = [case for covering in (*coverings, cells.length_covering) for case in covering()]
    return {case.draft: case for case in [*cases, *heads.head_cases(("plain",))]}


@cache
def proven_drafters():
    """The drafters that run in those cells."""
    return tuple(harness_of(case).kind.drafter for case in cells_by_draft().values())


def check_method(method):
    """AssertionError that names a method without a cell."""
    names = {drafter.name for drafter in proven_drafters()}
    assert method in names, f"method {method!r} is not in the proof: {A_CELL}"


def check_drafter(module):
    """AssertionError that names a file of drafters of which nothing has a cell."""
    proven = {kind.__module__ for drafter in proven_drafters() for kind in type(drafter).__mro__}
    if module not in NO_DRAFTERS:
        assert f"draftproof.drafters.{module}" in proven, (
            f"src/draftproof/drafters/{module}.py is not in the proof: {A_CELL}"
        )
