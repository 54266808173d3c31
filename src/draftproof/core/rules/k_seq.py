"""`k_seq`: k i.i.d. siblings, each accepted with min(1, P/(rho Q)), one rho for all (SpecTr,
2310.15141).

With beta(rho) = sum min(Q, P/rho), the accepted mass of x is min(Q, P/rho)(x) (1 - (1 -
beta)^k)/beta, which is at most P(x) exactly when 1 - (1 - beta)^k <= rho beta. rho* in [1, k] is
the least such rho; bisection keeps the upper end, so the rule stays exact to rounding whatever the
number of steps. All rejected: the token is drawn from P less the accepted mass. Accepts 1 - (1 -
beta)^k, at least (1 - 1/e) of the best any rule can do with k i.i.d. drafts; best where laws are
flat. rho = 1 is biased. For fixed candidates the token is drawn from P and looked up.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from draftproof.core import expected_trees
from draftproof.core.chance import Chance, Purpose
from draftproof.core.expected_chains import by_token
from draftproof.core.records import Array, Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.rules.stated import Foretold, Formula, Stated
from draftproof.core.siblings import descend, sibling_law, widened


class KSeq(Rule):
    name = "k_seq"
    lossless = True
    trees = True
    coupled = False
    text_follows_seed = False
    selections: frozenset[Selection] = frozenset({"fixed", "iid"})

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        return descend(self._choose, draft, target_laws, chance)

    def _choose(
        self, node: int, draft: Draft, target_laws: TargetLaws, chance: Chance
    ) -> tuple[int | None, int]:
        """The child of `node` that is accepted (None: none) and the token emitted after `node`."""
        target = widened(target_laws.row(node))
        children = draft.children.get(node, ())
        if not children or draft.selection == "fixed":
            token = int(chance.draw(target, Purpose.REPLACEMENT, node + 1))
            return draft.child(node, token), token
        drafted = sibling_law(draft, children[0], target)
        rho = division_factor(target, drafted, len(children))
        for child in children:
            token = draft.tokens[child]
            if chance.bernoulli(
                float(target[token] / (rho * drafted[token])), Purpose.ACCEPT, child
            ):
                return child, token
        left = rejected_mass(target, drafted, rho, len(children))
        return None, int(chance.draw(left, Purpose.REPLACEMENT, node + 1))


def division_factor(target: Array, drafted: Array, k: int) -> float:
    """rho*: the least rho in [1, k] with 1 - (1 - beta)^k <= rho beta, from above, to 1e-15 of k;
    laws [vocab] in float64.

    Of beta(rho) = sum min(Q, P/rho) every halving of [low, high] settles which of the two is the
    smaller for more tokens: where P <= low Q it is P/rho from here on, where P >= high Q it is Q.
    Only the open ones are summed again."""
    low, high = 1.0, float(k)
    if _fits(target, drafted, low, k):
        return low
    open_target, open_drafted = target, drafted
    scaled = whole = 0.0
    for _ in range(60):
        if open_target.shape[0] > 0:
            below, above, open_target, open_drafted = _settled(open_target, open_drafted, low, high)
            scaled, whole = scaled + below, whole + above
        middle = 0.5 * (low + high)
        if _fits(open_target, open_drafted, middle, k, scaled / middle + whole):
            high = middle
        else:
            low = middle
    step = 1e-15
    # the parts were summed in another order
    while high < k and not _fits(target, drafted, high, k):
        high, step = high * (1.0 + step), 2.0 * step
    return high


def _fits(target: Array, drafted: Array, rho: float, k: int, settled: float = 0.0) -> bool:
    beta = settled
    if target.shape[0] > 0:
        xp = array_namespace(target)
        beta += float(xp.sum(xp.minimum(drafted, target / rho)))
    return 1.0 - (1.0 - beta) ** k <= rho * beta


def _settled(
    target: Array, drafted: Array, low: float, high: float
) -> tuple[float, float, Array, Array]:
    """Sum of P where min(Q, P/rho) is P/rho for all rho in [low, high]; sum of Q where it is Q; P
    and Q of the other tokens."""
    xp = array_namespace(target)
    below, above = target <= low * drafted, target >= high * drafted
    left = ~(below | above)
    return (
        float(xp.sum(target[below])),
        float(xp.sum(drafted[above & ~below])),
        target[left],
        drafted[left],
    )


def rejected_mass(target: Array, drafted: Array, rho: float, k: int) -> Array:
    """What the accepted siblings leave of `target` [vocab], not normalised; `target` where rounding
    left no mass."""
    xp = array_namespace(target)
    common = xp.minimum(drafted, target / rho)
    beta = float(xp.sum(common))
    if beta == 0.0:
        return target
    left = target - common * ((1.0 - (1.0 - beta) ** k) / beta)
    left = xp.where(left > 0, left, xp.zeros_like(left))
    return xp.where(xp.sum(left) > 0, left, target)


RHO = 1e-7
"""Where two laws are all but one, any rho from 1 to about 1 + 1e-8 fits to the last bit of beta
(the slack of the condition is of second order): the law stays exact to rounding, but which sibling
is taken, and with it the length of a lopsided tree's round, moves by as much."""

STATED = Stated(
    KSeq(),
    Formula(by_token, {"fixed": expected_trees.fixed, "iid": expected_trees.k_seq}, tolerance=RHO),
    foretold=Foretold("ratio", "divided"),
)
