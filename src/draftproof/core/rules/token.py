"""`token`: accept each draft with min(1, target/draft), replace the first rejected one from the
residual.

Leviathan, Kalman, Matias (2211.17192) and Chen et al. (2302.01318). One position emits x with
probability min(p, q)(x) + (1 - sum min(p, q)) * (p - q)_+(x) / sum (p - q)_+ = p(x); positions
chain. A fixed draft is a one-hot draft law: acceptance p(x), residual p without x. The bonus is the
residual against a draft law of zero, so one line draws both."""

from __future__ import annotations

from array_api_compat import array_namespace, device

from draftproof.core.chance import Chance, Purpose, Scalar
from draftproof.core.expected_chains import by_token
from draftproof.core.laws import as_numpy, in_memory, residual
from draftproof.core.records import ROOT, Array, Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.rules.stated import Foretold, Formula, Stated


class Token(Rule):
    name = "token"
    lossless = True
    trees = False
    coupled = False
    text_follows_seed = False
    selections: frozenset[Selection] = frozenset({"fixed", "iid", "without_replacement"})

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        if not draft.tokens:
            return Verdict((), int(target_laws.draw(ROOT, chance)))
        if in_memory(target_laws.row(ROOT)):
            return _one_by_one(draft, target_laws, chance)
        laws = target_laws.rows((ROOT, *range(len(draft))))
        stop = chance.first_failure(accept_probabilities(draft, laws), Purpose.ACCEPT)
        token = chance.draw(replacement_law(draft, laws, stop), Purpose.REPLACEMENT, 0)
        return Verdict(tuple(range(int(stop))), int(token))


def _one_by_one(draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
    """The same in a CPU's memory, where looking at a number waits for nothing: no law is made
    behind the first rejection."""
    fixed = draft.selection == "fixed"
    for i, token in enumerate(draft.tokens):
        law = as_numpy(target_laws.row(i - 1))
        drawn_from = None if fixed else as_numpy(draft.laws[i - 1])
        ratio = (
            float(law[token])
            if drawn_from is None
            else float(law[token]) / float(drawn_from[token])
        )
        if not chance.bernoulli(min(ratio, 1.0), Purpose.ACCEPT, i):
            left = _less(law, token) if drawn_from is None else residual(law, drawn_from)
            return Verdict(tuple(range(i)), int(chance.draw(left, Purpose.REPLACEMENT, 0)))
    bonus = target_laws.row(len(draft) - 1)
    return Verdict(tuple(range(len(draft))), int(chance.draw(bonus, Purpose.REPLACEMENT, 0)))


def _less(law: Array, token: int) -> Array:
    """`law` [vocab], NumPy, without `token`; `law` itself where nothing else has mass."""
    left = law.astype("float64")
    left[token] = 0.0
    return left if left.any() else law


def accept_probabilities(draft: Draft, laws: Array) -> Array:
    """min(1, target/draft) at each drafted token of a chain [len(draft)], float64; `laws`
    [len(draft) + 1, vocab].

    A trial succeeds iff u < ratio with u in [0, 1): strict, so a token the target forbids is never
    accepted."""
    xp = array_namespace(laws)
    target = xp.astype(
        xp.stack([laws[i, token] for i, token in enumerate(draft.tokens)]), xp.float64
    )
    if draft.selection == "fixed":
        return target
    drawn = xp.stack(
        [
            draft.laws[parent][token]
            for parent, token in zip(draft.parents, draft.tokens, strict=True)
        ]
    )
    return xp.clip(target / xp.astype(drawn, xp.float64), max=1.0)


def replacement_law(draft: Draft, laws: Array, stop: Scalar) -> Array:
    """What follows `stop` accepted drafts: the residual [vocab] there, or the target's own law
    after the last draft."""
    xp = array_namespace(laws)
    where = {"device": device(laws)}
    target = laws[stop]
    if draft.selection == "fixed":
        rejected = xp.asarray((*draft.tokens, -1), **where)[stop]
        allowed = xp.arange(target.shape[0], **where) != rejected
        return residual(target, xp.where(allowed, xp.zeros_like(target), target))
    draft_laws = [draft.laws[parent] for parent in draft.parents]
    if isinstance(stop, int):
        return residual(target, draft_laws[stop]) if stop < len(draft_laws) else target
    return residual(target, xp.stack([*draft_laws, xp.zeros_like(draft_laws[0])])[stop])


STATED = Stated(
    Token(),
    Formula(by_token),
    natural=frozenset({("chain", "iid"), ("chain", "without_replacement")}),
    foretold=Foretold("ratio"),
    vllm="probabilistic",
)
