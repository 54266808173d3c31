"""Drafters whose guesses are read off stores, each with a plain description of what it proposes, by
brute force.

The description, `paths(context, depth)`, lists every drafted path. A fixed tree is verified by
taking its candidates one after another, whatever the rule, so a round's expected tokens are 1 + the
probability of every path, summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from draftproof.audit.kinds import GuessedKind
from draftproof.core.pipeline import LawPipeline
from draftproof.core.tree import TreeShape
from draftproof.drafters.ngram_cache import LAST_RESORT, LAX, STRICT
from draftproof.drafters.prediction import Prediction, PredictionSession
from draftproof.drafters.protocol import Drafter, Request
from draftproof.drafters.registry import proofs
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.expected import ExpectedText
from draftproof.drafters.stores.ngram_tables import StoredTable, build_tables
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.drafters.suffix import Suffix

Tokens = tuple[int, ...]

CORPUS: tuple[Tokens, ...] = (
    (0, 1, 0, 0, 1, 2, 0, 1, 0, 1, 1, 2, 2, 0, 1, 0),
    (1, 0, 1, 1, 0, 2, 1, 0, 0, 1, 1, 0, 1, 0, 2, 2, 1, 0, 1, 0),
    (2, 2, 1, 1, 0, 1, 0, 1, 2, 2, 0, 0, 0, 1, 0),
)
"""What the stores of the toys hold."""

NODES = 5
DEPTH, FACTOR, FLOOR = 6, 3.0, 0.3
"""Bounds small enough that all of them bite on contexts of a handful of tokens."""


def guessed_kinds(laws: LawPipeline) -> dict[str, GuessedKind]:
    """Every kind of draft whose guesses come out of a store that depends on the context alone,
    those that drafters' files describe by their paths among them: all of them are in the
    proof table under every rule that takes it."""
    arrays = [np.asarray(document) for document in CORPUS]
    retrieval = Retrieval(SuffixArray(build_suffix_array(arrays)), NODES)
    listed = [
        _kind(
            "suffix",
            Suffix(DEPTH, FACTOR, FLOOR),
            lambda c, d: suffix_paths(c, d, chain=True),
            laws,
        ),
        _kind(
            "suffix_tree",
            Suffix(DEPTH, FACTOR, FLOOR, tree=True),
            lambda c, d: suffix_paths(c, d, chain=False),
            laws,
        ),
        _kind("retrieval", retrieval, lambda c, d: retrieval_paths(c, d), laws),
        *(
            _kind(name, one.drafter(), one.paths, laws, one.nodes)
            for name, one in proofs().items()
            if one.paths is not None
        ),
    ]
    return {kind.name: kind for kind in listed}


def stored_table() -> StoredTable:
    """The corpus's n-grams."""
    return StoredTable(build_tables([np.asarray(document) for document in CORPUS]))


class Expecting(Prediction):
    """`prediction` for requests that all expect the same answer."""

    def __init__(self, answer: Tokens = CORPUS[0]) -> None:
        self.answer = answer

    def open(self, request: Request) -> PredictionSession:
        return super().open(
            replace(request, params=replace(request.params, prediction=self.answer))
        )


def expected_guess(context: Tokens, path: Tokens, laws: LawPipeline) -> int | None:
    """What `prediction` guesses after a path, the answer so far being followed from its beginning
    every time."""
    expected = ExpectedText(CORPUS[0])
    for token in context[laws.num_prompt_tokens :]:
        expected.read(token)
    guess = next(islice(expected.going_on(), len(path), None), None)
    return None if guess is None or laws.forbids(guess, context, path) else guess


def _kind(
    name: str,
    drafter: Drafter,
    paths: Callable[[Tokens, int], Sequence[Tokens]],
    laws: LawPipeline,
    nodes: int = NODES,
) -> GuessedKind:
    def allowed(context: Tokens, depth: int) -> list[Tokens]:
        return [
            p
            for p in paths(context, depth)
            if not any(laws.forbids(p[i], context, p[:i]) for i in range(len(p)))
        ]

    return GuessedKind(name, drafter, _no_plan, shape=TreeShape.chain(nodes), paths=allowed)


def _no_plan(context: Tokens, path: Tokens) -> None:
    raise AssertionError("a guessed tree is described by its paths")


def suffix_paths(context: Tokens, depth: int, *, chain: bool) -> list[Tokens]:
    """What `suffix` drafts: after every suffix the best-first paths, and of those the largest sum
    of shares."""
    best: list[Tokens] = []
    score = 0.0
    for length in range(min(DEPTH, len(context)), 0, -1):
        budget = min(depth, NODES, int(FACTOR * length), DEPTH - length)
        shares = _best_first(
            partial(_after_tail, context, context[-length:]), budget, budget, FLOOR, chain
        )
        if sum(shares.values()) > score:
            best, score = list(shares), sum(shares.values())
    return best


def _after_tail(context: Tokens, tail: Tokens, path: Tokens) -> dict[int, tuple[int, int]]:
    return _after([context], (*tail, *path))


def retrieval_paths(context: Tokens, depth: int) -> list[Tokens]:
    """What `retrieval` drafts: the best-first paths after the longest suffix of at least two tokens
    that the corpus holds."""
    for length in range(len(context), 1, -1):
        tail = context[-length:]
        if any(
            tail == document[i : i + length]
            for document in CORPUS
            for i in range(len(document) - length + 1)
        ):
            return list(
                _best_first(partial(_corpus_after, tail), NODES, min(depth, NODES), 0.0, False)
            )
    return []


def _corpus_after(tail: Tokens, path: Tokens) -> dict[int, tuple[int, int]]:
    """Counts after `tail + path` in the corpus, where one place is as recent as another."""
    return {token: (count, 0) for token, (count, _) in _after(CORPUS, (*tail, *path)).items()}


def _after(texts: Sequence[Tokens], stretch: Tokens) -> dict[int, tuple[int, int]]:
    """Token -> (how often it follows `stretch`, where it last does)."""
    found: dict[int, tuple[int, int]] = {}
    n = len(stretch)
    for text in texts:
        for end in range(n, len(text)):
            if text[end - n : end] == stretch:
                found[text[end]] = found.get(text[end], (0, 0))[0] + 1, end + 1
    return found


def _best_first(
    counts: Callable[[Tokens], dict[int, tuple[int, int]]],
    nodes: int,
    depth: int,
    floor: float,
    chain: bool,
) -> dict[Tokens, float]:
    """Paths with their shares: always the largest share that is left, of equals the more recent,
    then the lower id."""
    chosen: dict[Tokens, float] = {}
    offered: list[tuple[float, int, Tokens]] = []

    def offer(path: Tokens, share: float) -> None:
        after = counts(path) if len(path) < depth else {}
        total = sum(count for count, _ in after.values())
        ranked = sorted(after.items(), key=lambda item: item[1])
        for token, (count, recency) in ranked[-1:] if chain else ranked:
            if share * count >= floor * total:
                offered.append((-share * count / total, -recency, (*path, token)))

    offer((), 1.0)
    while offered and len(chosen) < nodes:
        pick = min(offered, key=lambda item: (item[0], item[1], item[2][-1]))
        offered.remove(pick)
        chosen[pick[2]] = -pick[0]
        offer(pick[2], -pick[0])
    return chosen


def cached_guess(context: Tokens, path: Tokens, laws: LawPipeline) -> int | None:
    """What `ngram_cache` guesses after a path: own counts of the longest n-gram that passes, else
    the corpus's."""
    recent = (*context, *path)[-4:]
    pair: Counter[int] = Counter(
        {token: count for token, (count, _) in _after(CORPUS, recent[-2:]).items()}
        if len(recent) > 1
        else {}
    )
    pair = pair if pair.total() >= 2 else Counter()  # rarer n-grams are not in a store
    passes: list[tuple[Any, int, tuple[int, int], Counter[int]]] = [
        ([context], n, LAX[n - 1], pair) for n in range(len(recent), 0, -1)
    ]
    passes += [(CORPUS, n, STRICT[n - 1], pair) for n in range(len(recent), 0, -1)]
    passes += [(CORPUS, 2, LAST_RESORT, Counter())] if len(recent) > 1 else []
    for texts, n, (least, percent), weights in passes:
        after = _after(texts, recent[-n:])
        total = sum(count for count, _ in after.values())
        passing = [
            (count * max(100 * weights[token], 1), recency if texts is not CORPUS else count, token)
            for token, (count, recency) in after.items()
            if total >= least and 100 * count >= percent * total
        ]
        if passing:
            token = max(passing)[-1]
            return None if laws.forbids(token, context, path) else token
    return None
