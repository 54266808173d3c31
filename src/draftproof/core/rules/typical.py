"""`typical`: Medusa's typical acceptance (2401.10774, section 2.3.1). LOSSY: the output law is not
the target's.

A candidate x is accepted when the target gives it more than min(epsilon, delta exp(-H)), H the
entropy of the target's law in nats: a likely token is kept even if the target would mostly have
drawn another one. The longest accepted path wins, the earliest among equals; the token after it is
the target's own draw. Here for comparison with published figures; never a default, and refused by
`--lossless`.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from draftproof.core.chance import Chance
from draftproof.core.records import ROOT, Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.rules.stated import Stated
from draftproof.core.siblings import widened

EPSILON = 0.09
DELTA = 0.3


class Typical(Rule):
    name = "typical (lossy)"
    lossless = False
    trees = True
    coupled = False
    text_follows_seed = False
    selections: frozenset[Selection] = frozenset(
        {"fixed", "iid", "without_replacement", "top_k_plus_one"}
    )

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        best: tuple[int, ...] = ()
        accepted: set[int] = {ROOT}
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            if parent in accepted and is_typical(target_laws.row(parent), token):
                accepted.add(node)
                path = draft.nodes_to(node)
                best = path if len(path) > len(best) else best
        return Verdict(best, int(target_laws.draw(best[-1] if best else ROOT, chance)))


def is_typical(law: object, token: int) -> bool:
    """Whether `law` [vocab] gives `token` more than min(EPSILON, DELTA * exp(-entropy))."""
    mass = widened(law)
    xp = array_namespace(mass)
    logs = xp.log(xp.where(mass > 0, mass, xp.ones_like(mass)))
    threshold = DELTA * xp.exp(xp.sum(mass * logs))
    return float(mass[token]) > min(EPSILON, float(threshold))


STATED = Stated(Typical(), name="typical")
