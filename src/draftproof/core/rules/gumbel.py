"""`gumbel`: target and drafter pick by the same noise, so they agree often although neither knows
the other.

The noise G[t][x] is keyed by (seed, sample, absolute position t, token x). The drafter proposes arg
max (log q + G[t]), the target's token is arg max (log p + G[t]); the target's is emitted, and the
round goes on while the draft equals it (Daliri, Musco, Suresh 2408.07978). Every emitted token is a
Gumbel-max draw with noise that nothing before it has used, so the text is plain Gumbel decoding's,
token for token, whatever the drafter, the draft length or the tree, and its law is the target's.
One position accepts sum_x 1 / sum_y max(p_y/p_x, q_y/q_x), between (1 - TV)/(1 + TV) and 1 - TV.

The coupling lives in the source of chance (`CoupledChance` in core/coupled.py), which the decoder
uses for drafter, target and plain decoding alike when `coupled` is true. Shared noise is valid
under accept-iff-equal only; no other rule may use it."""

from __future__ import annotations

from draftproof.core.chance import Chance
from draftproof.core.expected_chains import by_match
from draftproof.core.records import Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.rules.stated import MATCHED, Foretold, Formula, Stated
from draftproof.core.siblings import follow_target


class Gumbel(Rule):
    name = "gumbel"
    lossless = True
    trees = True
    coupled = True
    text_follows_seed = True
    selections: frozenset[Selection] = frozenset(
        {"fixed", "iid", "without_replacement", "top_k_plus_one"}
    )

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        return follow_target(draft, target_laws, chance)


STATED = Stated(
    Gumbel(),
    Formula(by_match, MATCHED),  # the enumerator draws without shared noise
    foretold=Foretold("noise", "noise"),
)
