"""`rrs`: recursive rejection sampling down a tree, siblings tried in the order they were drawn.

At a node with target law P: a sibling x drawn from Q is accepted with min(1, P(x)/Q(x)); after a
rejection P becomes (P - Q)_+ normalised and the next sibling is tried; when none is left the token
is drawn from P (i.i.d. siblings: SpecInfer, 2305.09781; without replacement: Sequoia 2402.12374 and
RSD 2402.14160). Proof: one trial emits min(P, Q)(x) and leaves the residual, which does not depend
on the rejected token; so the next sibling still comes from its own Q, which without replacement is
the recorded law less the earlier siblings, renormalised. Sorting siblings after the draw would
break this. A fixed candidate has a one-hot Q. One level accepts 1 - prod_i (1 - sum min(P_i, Q_i)).
"""

from __future__ import annotations

from draftproof.core.chance import Chance, Purpose
from draftproof.core.expected_chains import by_token
from draftproof.core.expected_trees import fixed, rrs_iid, rrs_in_turn
from draftproof.core.records import Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.rules.stated import Foretold, Formula, Stated
from draftproof.core.siblings import descend, remainder, sibling_law, widened


class RecursiveRejection(Rule):
    name = "rrs"
    lossless = True
    trees = True
    coupled = False
    text_follows_seed = False
    selections: frozenset[Selection] = frozenset({"fixed", "iid", "without_replacement"})

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        return descend(self._choose, draft, target_laws, chance)

    def _choose(
        self, node: int, draft: Draft, target_laws: TargetLaws, chance: Chance
    ) -> tuple[int | None, int]:
        """The child of `node` that is accepted (None: none) and the token emitted after `node`."""
        law = widened(target_laws.row(node))
        for child in draft.children.get(node, ()):
            token, drawn_from = draft.tokens[child], sibling_law(draft, child, law)
            if chance.bernoulli(float(law[token] / drawn_from[token]), Purpose.ACCEPT, child):
                return child, token
            left, mass = remainder(law, drawn_from)
            law = left / mass if mass > 0 else law  # no mass: rounding, as in `residual`
        return None, int(chance.draw(law, Purpose.REPLACEMENT, 0))


STATED = Stated(
    RecursiveRejection(),
    Formula(by_token, {"fixed": fixed, "iid": rrs_iid, "without_replacement": rrs_in_turn}),
    foretold=Foretold("ratio", "ratio"),
)
