"""The exact law of one round of a rule, from plain functions of the drafted path: no model, no
decode loop."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np

from draftproof.core.enumerate import outcomes
from draftproof.core.records import ROOT
from draftproof.core.rules import RULES
from draftproof.drafters.builder import DraftBuilder


class PathLaws:
    """Target laws from a function of the drafted path."""

    def __init__(self, law, draft):
        self._law, self._draft = law, draft

    def row(self, node):
        return self._law(self._draft.tokens_to(node))

    def rows(self, nodes):
        return np.stack([self.row(node) for node in nodes])

    def draw(self, node, chance):
        return chance.draw_target(self.row(node), len(self._draft.nodes_to(node)))


def drafted(q, shape, selection, chance):
    """A draft of `shape` whose children are drawn by `selection` from q(path), or are its likeliest
    tokens."""
    builder = DraftBuilder(chance, depth=shape.depth, vocab_size=len(q(())), max_nodes=len(shape))
    placed = {ROOT: ROOT}
    for parent, children in shape.children.items():
        if parent in placed:
            node = placed[parent]
            law = q(builder.path(node))
            if selection == "fixed":
                nodes = [
                    builder.guess(int(token), node)
                    for token in np.argsort(-law, kind="stable")[: len(children)]
                ]
            else:
                nodes = builder.draw_children(law, len(children), selection, node)
            placed.update(zip(children, nodes, strict=False))
    return builder.build()


def tv_of_round(rule, p, q, shape, selection):
    """Total variation between the law of the next shape.depth + 1 tokens and the target's; after a
    round that emits fewer the target itself goes on. p, q: drafted path -> law [vocab]."""

    def run(chance):
        draft = drafted(q, shape, selection, chance)
        verdict = RULES[rule].verify(draft, PathLaws(p, draft), chance)
        return (*(draft.tokens[node] for node in verdict.path), verdict.token)

    emitted = defaultdict(float)
    for outcome, tokens in outcomes(run, 5):
        emitted[tokens] += outcome.probability
    texts = list(product(range(len(p(()))), repeat=shape.depth + 1))
    law = {
        text: sum(
            emitted.get(text[:n], 0.0) * chance_of(text, n, p) for n in range(1, len(text) + 1)
        )
        for text in texts
    }
    return 0.5 * sum(abs(mass - chance_of(text, 0, p)) for text, mass in law.items())


def chance_of(text, done, p):
    """That the target writes the rest of `text` after its first `done` tokens."""
    return float(np.prod([normalised(p(text[:i]))[text[i]] for i in range(done, len(text))]))


def normalised(law):
    return law / law.sum()
