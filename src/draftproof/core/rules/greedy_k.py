"""`greedy_k`: the draft's k - 1 likeliest tokens as constants and one draw from the rest (Hu et
al., 2502.18779).

Let T be the k - 1 likeliest tokens of the draft law and Q' that law without T, renormalised. The
single-draft rule runs with Q', which is zero on T: x drawn from Q' is accepted with min(1,
P(x)/Q'(x)), else Y ~ (P - Q')_+, which holds all of P on T; when Y is in T, the walk goes on below
it. Exact because the single-draft rule is. Accepts P(T) + sum over the rest of min(P, Q'), the most
possible for candidates chosen so; best where laws are peaked. Where the draft law has no mass
outside T, Q' is empty and Y is drawn from P. Fixed candidates are the case without a draw.
"""

from __future__ import annotations

import numpy as np

from draftproof.core.chance import Chance, Purpose
from draftproof.core.expected_chains import by_token
from draftproof.core.expected_trees import constants_and_one, fixed
from draftproof.core.laws import residual
from draftproof.core.records import Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.rules.stated import Foretold, Formula, Stated
from draftproof.core.siblings import descend, sibling_law, widened


class GreedyK(Rule):
    name = "greedy_k"
    lossless = True
    trees = True
    coupled = False
    text_follows_seed = False
    selections: frozenset[Selection] = frozenset({"fixed", "top_k_plus_one"})

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        return descend(self._choose, draft, target_laws, chance)

    def _choose(
        self, node: int, draft: Draft, target_laws: TargetLaws, chance: Chance
    ) -> tuple[int | None, int]:
        """The child of `node` that is accepted (None: none) and the token emitted after `node`."""
        law = widened(target_laws.row(node))
        children = draft.children.get(node, ())
        if children and draft.selection == "top_k_plus_one":
            drawn = children[-1]
            token, rest = draft.tokens[drawn], sibling_law(draft, drawn, law)
            if chance.bernoulli(float(law[token] / rest[token]), Purpose.ACCEPT, drawn):
                return drawn, token
            law = residual(law, rest)
        token = int(chance.draw(law, Purpose.REPLACEMENT, node + 1))
        return draft.child(node, token), token


STATED = Stated(
    GreedyK(),
    Formula(by_token, {"fixed": fixed, "top_k_plus_one": constants_and_one(np.minimum)}),
    natural=frozenset({("chain", "top_k_plus_one"), ("tree", "top_k_plus_one")}),
    foretold=Foretold("ratio", "ratio"),
)
