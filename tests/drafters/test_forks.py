"""Sessions that branch. `test_contract.py` asks every drafter of the package; here are what one may
keep, and faults."""

from __future__ import annotations

from collections import deque
from copy import copy, deepcopy
from dataclasses import dataclass

import numpy as np
import pytest

from draftproof import TableModel
from draftproof.drafters.protocol import Drafter, DraftSession
from draftproof.drafters.stores.automaton import SuffixAutomaton
from draftproof.drafters.stores.expected import ExpectedText
from draftproof.drafters.stores.ngram_tables import GrowingTable
from forks import check_forks, check_forks_of_a_draft

UNEVEN = TableModel(np.random.default_rng(3).dirichlet(np.ones(8), 8), name="uneven")


def automaton(tokens):
    made = SuffixAutomaton(6)
    made.extend(tokens)
    return made


def table(tokens):
    made = GrowingTable()
    made.extend(tokens)
    return made


def expected(tokens):
    made = ExpectedText(TEXT)
    for token in tokens:
        made.read(token)
    return made


TEXT = np.random.default_rng(4).integers(0, 3, 60).tolist()


@pytest.mark.parametrize("made", [automaton, table, expected])
def test_a_fork_of_what_is_counted_counts_on_its_own(made):
    """Down to every number of it: two that go on differently are as if each had been made alone."""
    stem = made(TEXT[:20])
    one, other = stem.fork(), stem.fork()
    for first, second in zip(TEXT[20:40], TEXT[40:60], strict=True):
        for store, token in ((one, first), (other, second)):
            store.read(token) if isinstance(store, ExpectedText) else store.extend([token])
    assert vars(one) == vars(made(TEXT[:40])) and vars(other) == vars(made(TEXT[:20] + TEXT[40:60]))
    assert vars(stem) == vars(made(TEXT[:20]))


@dataclass
class Last:
    token: int = 0


class Keeping(Drafter, DraftSession):
    """Drafts a token that depends on everything it was told, kept in one of three ways. fork_by:
    how it copies itself."""

    name, selections, memories = "keeping", frozenset({"fixed"}), ()

    def __init__(self, keep, fork_by=deepcopy):
        self.keep, self.fork_by, self.kept = keep, fork_by, None

    def open(self, request):
        opened = Keeping(self.keep, self.fork_by)
        opened.kept = {"a deque": deque([0], 4), "an array": np.zeros(8, int), "an object": Last()}[
            self.keep
        ]
        return opened

    def propose(self, context, draft):
        draft.guess(sum(self.state_key()) % 8)

    def observe(self, seen):
        token = 1 + seen.tokens[-1]
        if isinstance(self.kept, deque):
            self.kept.append(token)
        elif isinstance(self.kept, Last):
            self.kept.token += token
        else:
            self.kept[token % 8] += token

    def state_key(self):
        return (
            (self.kept.token,)
            if isinstance(self.kept, Last)
            else tuple(int(one) for one in self.kept)
        )

    def fork(self):
        return self.fork_by(self)


KEPT = ("a deque", "an array", "an object")


@pytest.mark.parametrize("keep", KEPT)
def test_whatever_a_drafter_keeps_is_its_own_to_fork(keep):
    """Nobody guesses from outside what its state is."""
    check_forks(Keeping(keep), UNEVEN)
    check_forks_of_a_draft(Keeping(keep), UNEVEN)


@pytest.mark.parametrize("keep", KEPT)
@pytest.mark.parametrize("fork_by", [copy, lambda session: session], ids=["shallow", "itself"])
def test_a_fork_that_shares_state_is_seen(keep, fork_by):
    with pytest.raises(AssertionError):
        check_forks(Keeping(keep, fork_by), UNEVEN)
    with pytest.raises(AssertionError):
        check_forks_of_a_draft(Keeping(keep, fork_by), UNEVEN)
