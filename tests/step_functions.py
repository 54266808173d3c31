"""Step functions `step(p, q, prefix, k, rng)` as users write them: correct ones, and rebuilt public
faults."""

from __future__ import annotations

import bisect
from itertools import accumulate

import numpy as np


def pick(law, rng):
    return int(rng.choice(len(law), p=law / law.sum()))


def residual(p_law, q_law):
    left = np.maximum(p_law - q_law, 0.0)
    return left if left.sum() > 0 else p_law


def drafted(q, prefix, k, rng):
    tokens = []
    for _ in range(k):
        tokens.append(pick(q((*prefix, *tokens)), rng))
    return tokens


def best_drafts(q, prefix, k):
    tokens = []
    for _ in range(k):
        tokens.append(int(np.argmax(q((*prefix, *tokens)))))
    return tokens


def verified(p, q, prefix, tokens, rng, accept, correct, bonus=lambda p_law: p_law):
    """A chain rule by its parts: accept(p, q, i, tokens) -> probability, correct(p, q, token) ->
    law."""
    for i, token in enumerate(tokens):
        at = (*prefix, *tokens[:i])
        if not rng.random() < accept(p(at), q(at), i, tokens):
            return [*tokens[:i], pick(correct(p(at), q(at), token), rng)]
    return [*tokens, pick(bonus(p((*prefix, *tokens))), rng)]


def ratio(p_law, q_law, i, tokens):
    return min(1.0, p_law[tokens[i]] / max(q_law[tokens[i]], 1e-300))


def token_rule(p, q, prefix, k, rng):
    tokens = drafted(q, prefix, k, rng)
    return verified(
        p, q, prefix, tokens, rng, ratio, lambda p_law, q_law, token: residual(p_law, q_law)
    )


def by_sums(p, q, prefix, k, rng):
    """The same with one number a decision: searchsorted, a vector of numbers, logarithms, and
    bisect."""

    def draw(law):
        return int(np.searchsorted(np.cumsum(law) / np.sum(law), rng.random(), side="right"))

    tokens = []
    for _ in range(k):
        tokens.append(draw(q((*prefix, *tokens))))
    for i, u in enumerate(rng.random(k)):
        p_law, q_law = p((*prefix, *tokens[:i])), q((*prefix, *tokens[:i]))
        with np.errstate(divide="ignore"):
            accepted = np.log(u) + np.log(q_law[tokens[i]]) < np.log(p_law[tokens[i]])
        if not accepted:
            return [*tokens[:i], draw(residual(p_law, q_law))]
    law = p((*prefix, *tokens))
    return [*tokens, bisect.bisect(list(accumulate(law.tolist())), 1.0 - rng.random())]


def match(p, q, prefix, k, rng):
    """Sample the target and go on while it equals the draft: exact, only slower."""
    tokens = drafted(q, prefix, k, rng)
    out = []
    for guess in [*tokens, None]:
        out.append(pick(p((*prefix, *out)), rng))
        if out[-1] != guess:
            break
    return out


def no_bonus(p, q, prefix, k, rng):
    """Exact, only slower."""
    return token_rule(p, q, prefix, k, rng)[:k]


def guessed(p, q, prefix, k, rng):
    """Arg-max drafts as one-hot laws."""
    tokens = best_drafts(q, prefix, k)

    def without(p_law, q_law, token):
        return np.where(np.arange(len(p_law)) == token, 0.0, p_law)

    return verified(
        p, q, prefix, tokens, rng, lambda p_law, q_law, i, tokens: p_law[tokens[i]], without
    )


def argmax_draft_soft_law(p, q, prefix, k, rng):
    tokens = best_drafts(q, prefix, k)
    return verified(
        p, q, prefix, tokens, rng, ratio, lambda p_law, q_law, token: residual(p_law, q_law)
    )


def wrong_token(p, q, prefix, k, rng):
    """Each draft is accepted by the probabilities of the draft after it."""
    tokens = drafted(q, prefix, k, rng)

    def accept(p_law, q_law, i, tokens):
        return ratio(p_law, q_law, min(i + 1, len(tokens) - 1), tokens)

    return verified(
        p, q, prefix, tokens, rng, accept, lambda p_law, q_law, token: residual(p_law, q_law)
    )


def residual_at_the_draft_only(p, q, prefix, k, rng):
    """The draft law is subtracted at the drafted token and nowhere else."""

    def correct(p_law, q_law, token):
        left = p_law.copy()
        left[token] = max(p_law[token] - q_law[token], 0.0)
        return left if left.sum() > 0 else p_law

    return verified(p, q, prefix, drafted(q, prefix, k, rng), rng, ratio, correct)


def no_residual(p, q, prefix, k, rng):
    return verified(
        p, q, prefix, drafted(q, prefix, k, rng), rng, ratio, lambda p_law, q_law, token: p_law
    )


def accept_all(p, q, prefix, k, rng):
    return [*(tokens := drafted(q, prefix, k, rng)), pick(p((*prefix, *tokens)), rng)]


def always_best(p, q, prefix, k, rng):
    """The sampling parameters are dropped: the target's likeliest token, always."""
    return [int(np.argmax(p(tuple(prefix))))]


def cooler_draft(p, q, prefix, k, rng):
    """Drafts at temperature 0.5, a ratio at temperature 1."""

    def cool(at):
        mass = q(at) ** 2
        return mass / mass.sum()

    tokens = drafted(cool, prefix, k, rng)
    return verified(
        p, q, prefix, tokens, rng, ratio, lambda p_law, q_law, token: residual(p_law, q_law)
    )


def written_in_place(p, q, prefix, k, rng):
    """One-hot drafts; the drafted token is taken out of the target's own array before it is looked
    at again."""
    tokens = best_drafts(q, prefix, k)
    for i, token in enumerate(tokens):
        law = p((*prefix, *tokens[:i]))
        kept = law[token]
        law[token] = 0.0
        if not rng.random() < kept:
            return [*tokens[:i], pick(law if law.sum() else np.eye(len(law))[token], rng)]
    first = p(tuple(prefix))  # a second look at the row that was written to
    return [
        *tokens[:1],
        *([] if k < 2 else [pick(first if first.sum() else np.ones(len(first)), rng)]),
    ]


def match_then_redraw(p, q, prefix, k, rng):
    tokens = drafted(q, prefix, k, rng)
    out = []
    for guess in tokens:
        if pick(p((*prefix, *out)), rng) != guess:
            break
        out.append(guess)
    return [*out, pick(p((*prefix, *out)), rng)]


CORRECT = (token_rule, by_sums, match, no_bonus, guessed)
FAULTY = (
    argmax_draft_soft_law,
    wrong_token,
    residual_at_the_draft_only,
    no_residual,
    accept_all,
    always_best,
    cooler_draft,
    written_in_place,
    match_then_redraw,
)


def turns_into_float(p, q, prefix, k, rng):
    return [int(float(rng.random()) * len(p(prefix)))]


def races(p, q, prefix, k, rng):
    return [int(np.argmin(-np.log(rng.random(len(p(prefix)))) / p(prefix)))]


def gumbels(p, q, prefix, k, rng):
    return [int(np.argmax(np.log(p(prefix)) + rng.gumbel(size=len(p(prefix)))))]


def draws_elsewhere(p, q, prefix, k, rng):
    return [int(np.random.default_rng().choice(len(p(prefix)), p=p(prefix)))]


def too_many(p, q, prefix, k, rng):
    return [0] * (k + 2)


def beyond(p, q, prefix, k, rng):
    return [len(p(prefix))]


def fails(p, q, prefix, k, rng):
    return [{}[prefix]]


REFUSED = {
    turns_into_float: "turns a uniform number into a float",
    races: "compares two uniform numbers with each other",
    gumbels: "calls rng.gumbel()",
    draws_elsewhere: "all randomness must come from the rng",
    too_many: "a round has 1 to k + 1",
    beyond: "ids go from 0 to 1",
    fails: "raised KeyError",
}


def evenly(prefix):
    """Drafts, as a function of the prefix: a law over the toys' three tokens."""
    return [0.5, 0.25, 0.25]


def always_one(prefix):
    """Drafts one token, as a constant."""
    return 1


class AcceptsTooOften:
    """The token rule with ratios of 1.01 times what they should be."""

    name, lossless, trees, coupled = "accepts_too_often", True, False, False
    text_follows_seed = False
    selections = frozenset({"iid"})

    def verify(self, draft, target_laws, chance):
        from draftproof.core.chance import Purpose
        from draftproof.core.records import Verdict

        for i, token in enumerate(draft.tokens):
            p_law, q_law = target_laws.row(i - 1), draft.laws[i - 1]
            if not chance.bernoulli(
                min(1.0, 1.01 * p_law[token] / q_law[token]), Purpose.ACCEPT, i
            ):
                return Verdict(
                    tuple(range(i)),
                    int(chance.draw(residual(p_law, q_law), Purpose.REPLACEMENT, 0)),
                )
        last = target_laws.row(len(draft.tokens) - 1)
        return Verdict(
            tuple(range(len(draft.tokens))), int(chance.draw(last, Purpose.REPLACEMENT, 0))
        )


class Half:
    """A rule without its declarations."""

    name = "half"

    def verify(self, draft, target_laws, chance):
        raise NotImplementedError


NOT_A_FUNCTION = 3


def two_parameters(p, q):
    return [0]


def blind(prompt, seed):
    """An engine under audit that draws from 300 tokens without looking."""
    return np.random.default_rng(seed).integers(300, size=4)
