"""`traversal`: tree verification from the leaves to the root (Weng et al., 2505.12398). On a chain
it is `block`.

A node is visited with a success probability r and a law P. Its children are tried in draw order:
child x, drawn from Q, is visited with min(1, r P(x)/Q(x)) and its own target law; when its whole
subtree fails, w = (r P - Q)_+ with mass S gives the new r = S/(S + 1 - r) and P = w/S. When all
children have failed, a coin of r emits Y ~ P here, else the failure is handed up.

Claim: a visit succeeds with probability exactly r, and then what follows the node has law P
continued by the target. The first child contributes min(r P, Q); its failure has probability 1 - r
+ S, and by induction the rest contributes (1 - r + S) * S/(S + 1 - r) * w/S = w; min(r P, Q) + w =
r P. After a failure r and P do not depend on the token that failed, so siblings without replacement
keep the claim. The root is visited with r = 1 and never fails.
"""

from __future__ import annotations

from draftproof.core.chance import Chance, Purpose
from draftproof.core.expected_chains import by_block
from draftproof.core.expected_trees import by_every_tree
from draftproof.core.records import ROOT, Array, Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.rules.stated import Foretold, Formula, Stated
from draftproof.core.siblings import remainder, sibling_law, widened


class Traversal(Rule):
    name = "traversal"
    lossless = True
    trees = True
    coupled = False
    text_follows_seed = False
    selections: frozenset[Selection] = frozenset({"fixed", "iid", "without_replacement"})

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        if not draft.tokens:
            return Verdict((), int(target_laws.draw(ROOT, chance)))
        ended = _visit(ROOT, 1.0, draft, target_laws, chance)
        if ended is None:  # rounding: the root fails with probability 0
            return Verdict((), int(chance.draw(target_laws.row(ROOT), Purpose.REPLACEMENT, 0)))
        node, law = ended
        return Verdict(draft.nodes_to(node), int(chance.draw(law, Purpose.REPLACEMENT, 0)))


def _visit(
    node: int, success: float, draft: Draft, target_laws: TargetLaws, chance: Chance
) -> tuple[int, Array] | None:
    """The node below which the round ends and the law [vocab] of the token there; None with
    probability 1 - success."""
    law = widened(target_laws.row(node))
    for child in draft.children.get(node, ()):
        token, drawn_from = draft.tokens[child], sibling_law(draft, child, law)
        reach = min(1.0, success * float(law[token]) / float(drawn_from[token]))
        ended = _visit(child, reach, draft, target_laws, chance) if reach > 0 else None
        if ended is not None:
            return ended
        left, mass = remainder(success * law, drawn_from)
        if mass == 0.0:
            return None
        success, law = mass / (mass + (1.0 - success)), left / mass
    if node == ROOT or chance.bernoulli(success, Purpose.ACCEPT, node):
        return node, law
    return None


STATED = Stated(
    Traversal(),
    Formula(by_block, tree=by_every_tree),
    natural=frozenset({("tree", "iid"), ("tree", "without_replacement")}),
    foretold=Foretold("joint", "ratio"),
)
