"""`rrs`: recursive rejection sampling down a tree, siblings tried in the order they were drawn.

At a node with target law P: a sibling x drawn from Q is accepted with min(1, P(x)/Q(x)); after a rejection P becomes
(P - Q)_+ normalised and the next sibling is tried; when none is left the token is drawn from P (i.i.d. siblings: SpecInfer,
2305.09781; without replacement: Sequoia 2402.12374 and RSD 2402.14160). Proof: one trial emits min(P, Q)(x) and leaves the
residual, which does not depend on the rejected token; so the next sibling still comes from its own Q, which without
replacement is the recorded law less the earlier siblings, renormalised. Sorting siblings after the draw would break this.
A fixed candidate has a one-hot Q. One level accepts 1 - prod_i (1 - sum min(P_i, Q_i)).
"""

from __future__ import annotations

from array_api_compat import array_namespace

from draftproof.core.chance import Chance, Purpose
from draftproof.core.records import ROOT, Array, Draft, Selection, Verdict
from draftproof.core.rules.protocol import TargetLaws
from draftproof.core.siblings import sibling_law


class RecursiveRejection:
    name = "rrs"
    lossless = True
    trees = True
    coupled = False
    selections: frozenset[Selection] = frozenset({"fixed", "iid", "without_replacement"})

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        if not draft.tokens:
            return Verdict((), int(target_laws.draw(ROOT, chance)))
        path: list[int] = []
        while True:
            accepted, law = self._try_children(path[-1] if path else ROOT, draft, target_laws, chance)
            if accepted is None:
                return Verdict(tuple(path), int(chance.draw(law, Purpose.REPLACEMENT, 0)))
            path.append(accepted)

    def _try_children(self, node: int, draft: Draft, target_laws: TargetLaws, chance: Chance) -> tuple[int | None, Array]:
        """The accepted child of `node`, or None, and the law [vocab] that the rejections left."""
        law = target_laws.row(node)
        xp = array_namespace(law)
        law = xp.astype(law, xp.float64)
        for child in draft.children.get(node, ()):
            token, drawn_from = draft.tokens[child], sibling_law(draft, child, law)
            if chance.bernoulli(float(law[token] / drawn_from[token]), Purpose.ACCEPT, child):
                return child, law
            left = law - drawn_from
            left = xp.where(left > 0, left, xp.zeros_like(left))
            mass = xp.sum(left)
            law = left / mass if float(mass) > 0 else law  # no mass: rounding, as in `residual`
        return None, law
