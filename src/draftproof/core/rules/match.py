"""`match`: draw from the target, and go on while the draw is among the drafted candidates.

Exact for any draft that does not look at the coins, because every emitted token is the target's own
draw (the verification loop of llama.cpp; greedy verification is the case of a one-hot law). Accepts
a sampled draft with probability sum p*q, less than the token rule's sum min(p, q), but for fixed
candidates it is optimal: sum of p over them. Draws are keyed by position, so the text for a seed is
plain decoding's whatever the drafter. Does not read draft laws.
"""

from __future__ import annotations

from draftproof.core.chance import Chance
from draftproof.core.expected_chains import by_match
from draftproof.core.records import Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.rules.stated import MATCHED, Foretold, Formula, Stated
from draftproof.core.siblings import follow_target


class Match(Rule):
    name = "match"
    lossless = True
    trees = True
    coupled = False
    text_follows_seed = True
    selections: frozenset[Selection] = frozenset(
        {"fixed", "iid", "without_replacement", "top_k_plus_one"}
    )

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        return follow_target(draft, target_laws, chance)


STATED = Stated(
    Match(), Formula(by_match, MATCHED), foretold=Foretold("draw", "draw"), vllm="strict"
)
