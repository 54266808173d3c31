"""Wrong rules that must be caught: the faults seen in public speculative decoders, planted one at a
time.

Each is enumerated like a real rule. One is caught when its law is off (TV), when its expected
length is (a missing bonus leaves the law exact), or when a key of chance repeats on a path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from draftproof.audit.cells import harness_of
from draftproof.audit.exact import TOLERANCE, Case, compare
from draftproof.audit.table import PAIRS, PARAMETERS, TREE_PAIRS, tree_case
from draftproof.core.chance import Chance, Purpose
from draftproof.core.enumerate import position_key
from draftproof.core.records import ROOT, Draft, Verdict
from draftproof.core.rules import RULES
from draftproof.core.rules.block import block_probabilities, draft_law_rows, joint_ratios
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.errors import KeyRepeatedError

Verify = Callable[[Draft, TargetLaws, Chance], Verdict]
Array = Any


@dataclass(frozen=True)
class Mutant:
    """name: what is wrong. seen_in: where it was seen in public. verify: the wrong rule. draft: the
    kind it is shown with. natural: the rule it claims to be, whose formula gives the expected
    length. by_position: keys by position alone."""

    name: str
    seen_in: str
    verify: Verify
    draft: str = "sampled"
    natural: str = "token"
    pairs: tuple[str, ...] = PAIRS
    by_position: bool = False


@dataclass(frozen=True)
class Catch:
    """What the enumeration found: the worst TV and length difference over the toys, and whether a
    key repeated."""

    mutant: Mutant
    tv: float
    length_error: float
    key_repeated: bool

    @property
    def caught(self) -> bool:
        return bool(self.tv > TOLERANCE or self.length_error > TOLERANCE or self.key_repeated)


class _Rule(Rule):
    name = "mutant"
    lossless = False
    trees = True
    selections = frozenset({"fixed", "iid", "without_replacement", "top_k_plus_one"})

    def __init__(self, verify: Verify) -> None:
        self._verify = verify

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        return self._verify(draft, target_laws, chance)


def catch(mutant: Mutant) -> Catch:
    """Enumerate one mutant on its toys: drafts of length 3 for block rules and 2 for others, one
    round of a tree."""
    tv = length_error = 0.0
    repeated = False
    for pair in TREE_PAIRS if mutant.pairs == PAIRS and " " in mutant.draft else mutant.pairs:
        case = _case(mutant, pair)
        made = harness_of(case, rule=_Rule(mutant.verify))
        if mutant.by_position:
            made = replace(made, key=position_key)
            try:
                compare(case, made)
            except KeyRepeatedError:
                repeated = True
            made = replace(made, share=True)
        proof = compare(case, made)
        tv, length_error = max(tv, proof.tv), max(length_error, proof.length_error)
    return Catch(mutant, tv, length_error, repeated)


def _case(mutant: Mutant, pair: str) -> Case:
    selection, _, shape = mutant.draft.rpartition(" ")
    if selection:
        rounds = 2 if mutant.by_position else 1  # the second is the one that meets a key again
        return tree_case((mutant.natural, selection), "plain", shape, pair, rounds=rounds)
    length = 3 if mutant.natural == "block" else 2
    return Case(mutant.natural, mutant.draft, pair, "plain", PARAMETERS["plain"], length)


def _chain(
    draft: Draft, laws: TargetLaws, chance: Chance, accept: Any, correct: Any, bonus: Any = None
) -> Verdict:
    """A chain rule with its parts exchanged: accept(p, q, token) -> probability, correct(p, q) ->
    law, bonus(p) -> law."""
    for i, token in enumerate(draft.tokens):
        p, q = laws.row(i - 1), _draft_law(draft, i, len(laws.row(i - 1)))
        if not chance.bernoulli(accept(p, q, token), Purpose.ACCEPT, i):
            return Verdict(
                tuple(range(i)), int(chance.draw(_some(correct(p, q), p), Purpose.REPLACEMENT, 0))
            )
    last = laws.row(len(draft) - 1)
    return Verdict(
        tuple(range(len(draft))),
        int(chance.draw(bonus(last) if bonus else last, Purpose.REPLACEMENT, 0)),
    )


def _draft_law(draft: Draft, node: int, vocab: int) -> Array:
    return (
        np.eye(vocab)[draft.tokens[node]]
        if draft.selection == "fixed"
        else draft.laws[draft.parents[node]]
    )


def _some(law: Array, otherwise: Array) -> Array:
    return law if law.sum() > 0 else otherwise


def _ratio(p: Array, q: Array, token: int) -> float:
    return min(1.0, float(p[token] / q[token]))


def residual(p: Array, q: Array) -> Array:
    return np.maximum(p - q, 0.0)


def with_parts(**parts: Any) -> Verify:
    parts = {"accept": _ratio, "correct": residual} | parts
    return lambda draft, laws, chance: _chain(draft, laws, chance, **parts)


def _warmer(law: Array, temperature: float) -> Array:
    mass = law ** (1.0 / temperature)
    return mass / mass.sum()


def _keep_verifying(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """After a rejection, look at later drafts all the same and keep those that pass; the block ends
    with the bonus. Shown by a draft whose rejected token is emitted as if replaced: the law of what
    follows was conditioned on another token."""
    stop = None
    for i, token in enumerate(draft.tokens):
        p, q = laws.row(i - 1), _draft_law(draft, i, len(laws.row(i - 1)))
        if not chance.bernoulli(_ratio(p, q, token), Purpose.ACCEPT, i):
            stop = i
            continue
        if stop is not None:
            return Verdict(tuple(range(stop)), token)
    if stop is None:
        return Verdict(
            tuple(range(len(draft))),
            int(chance.draw(laws.row(len(draft) - 1), Purpose.REPLACEMENT, 0)),
        )
    p, q = laws.row(stop - 1), _draft_law(draft, stop, len(laws.row(stop - 1)))
    return Verdict(
        tuple(range(stop)), int(chance.draw(_some(residual(p, q), p), Purpose.REPLACEMENT, 0))
    )


def _off_by_one(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """The target's row after a draft judges that draft."""
    shifted = _Shifted(laws, len(draft))
    return RULES["token"].verify(draft, shifted, chance)


@dataclass(frozen=True)
class _Shifted:
    laws: TargetLaws
    size: int

    def row(self, node: int) -> Array:
        return self.laws.row(min(node + 1, self.size - 1))

    def rows(self, nodes: Any) -> Array:
        return np.stack([self.row(node) for node in nodes])

    def draw(self, node: int, chance: Chance) -> Any:
        return self.laws.draw(node, chance)


def _no_bonus(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """When all drafts pass, the last of them is emitted last and nothing is drawn."""
    if not draft.tokens:
        return RULES["token"].verify(draft, laws, chance)
    verdict = RULES["token"].verify(draft, laws, chance)
    full = len(verdict.path) == len(draft)
    return Verdict(verdict.path[:-1], draft.tokens[-1]) if full else verdict


def fresh_redraw(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """Match, but the sample that did not match is thrown away for a new one."""
    verdict = RULES["match"].verify(draft, laws, chance)
    row = laws.row(verdict.path[-1] if verdict.path else ROOT)
    return Verdict(verdict.path, int(chance.draw(row, Purpose.REPLACEMENT, 0)))


def _cut(draft: Draft, length: int) -> Draft:
    return replace(draft, tokens=draft.tokens[:length], parents=draft.parents[:length])


def _drawn_chances(draft: Draft) -> list[float]:
    return [
        float(draft.laws[parent][token])
        for parent, token in zip(draft.parents, draft.tokens, strict=True)
    ]


def _discard_unsure(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """Drop a drafted token, and what follows, after seeing that its draft probability is low."""
    unsure = [i for i, drawn in enumerate(_drawn_chances(draft)) if drawn < 0.4]
    return RULES["token"].verify(_cut(draft, min([*unsure, len(draft)])), laws, chance)


def _length_from_whole(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """Verify as many tokens as the whole drafted block seems to be worth."""
    return RULES["token"].verify(
        _cut(draft, len(draft) if np.mean(_drawn_chances(draft)) > 0.4 else 1), laws, chance
    )


def _best_of_two(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """Draw the first token twice and verify the likelier draw as if it had been the only one."""
    law = draft.laws[ROOT]
    other = int(chance.draw(law, Purpose.DRAFT, 100))
    first = draft.tokens[0]
    if law[other] <= law[first]:
        return RULES["token"].verify(draft, laws, chance)
    return RULES["token"].verify(replace(_cut(draft, 1), tokens=(other,)), laws, chance)


def _block(
    draft: Draft,
    laws: TargetLaws,
    chance: Chance,
    *,
    end: Any = None,
    first: bool = False,
    scaled: bool = True,
) -> Verdict:
    """Block verification with one part exchanged: the last trial, which success wins, or the
    residual's scale."""
    rows = laws.rows((ROOT, *range(len(draft))))
    joint, draft_laws = joint_ratios(draft, rows), draft_law_rows(draft, rows)
    trials = block_probabilities(joint, rows, draft_laws)
    if end is not None:
        trials = np.concatenate([trials[:-1], [end(draft, rows, draft_laws)]])
    stop = int(
        chance.first_failure(trials, Purpose.ACCEPT)
        if first
        else chance.last_success(trials, Purpose.ACCEPT)
    )
    scale = joint[stop] if scaled else 1.0
    law = _some(np.maximum(scale * rows[stop] - draft_laws[stop], 0.0), rows[stop])
    return Verdict(tuple(range(stop)), int(chance.draw(law, Purpose.REPLACEMENT, 0)))


def _uncapped(draft: Draft, rows: Array, draft_laws: Array) -> float:
    """min(1, product of target/draft over the whole block), not capped on the way."""
    return float(
        min(1.0, np.prod([rows[i, t] / draft_laws[i, t] for i, t in enumerate(draft.tokens)]))
    )


def _joint_accept(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """Accept the longest prefix whose joint ratio beats one coin a position, then the token rule's
    residual."""
    rows = laws.rows((ROOT, *range(len(draft))))
    draft_laws = draft_law_rows(draft, rows)
    ratios = np.cumprod([rows[i, t] / draft_laws[i, t] for i, t in enumerate(draft.tokens)])
    stop = int(chance.first_failure(np.minimum(ratios, 1.0), Purpose.ACCEPT))
    law = _some(np.maximum(rows[stop] - draft_laws[stop], 0.0), rows[stop])
    return Verdict(tuple(range(stop)), int(chance.draw(law, Purpose.REPLACEMENT, 0)))


def _softmax_for_guess(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """The drafter took its best token, the ratio uses a soft law it never drew from (here: half
    one-hot, half uniform)."""
    soft = {
        n: 0.5 * np.eye(len(laws.row(ROOT)))[t] + 0.5 / len(laws.row(ROOT))
        for n, t in zip(draft.parents, draft.tokens, strict=True)
    }
    return RULES["token"].verify(Draft(draft.tokens, draft.parents, soft, "iid"), laws, chance)


def _before_cut(law: Array) -> Array:
    """What `law` may have been before top-k: 0.88 of it, the median that 50 tokens keep of
    SmolLM2's law in transformers#47932, and the rest on the tokens that were cut."""
    cut = law == 0
    return 0.88 * law + 0.12 * cut / cut.sum() if cut.any() else law


CHAIN_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "correction from the target's law, no residual",
        "common",
        with_parts(correct=lambda p, q: p),
    ),
    Mutant(
        "correction from (draft - target)+",
        "sign slip",
        with_parts(correct=lambda p, q: np.maximum(q - p, 0.0)),
    ),
    Mutant(
        "correction from |target - draft|",
        "missing clamp",
        with_parts(correct=lambda p, q: np.abs(p - q)),
    ),
    Mutant(
        "ratio inverted",
        "swapped names",
        with_parts(accept=lambda p, q, x: 1.0 if p[x] == 0 else _ratio(q, p, x)),
    ),
    Mutant(
        "accept iff arg max, else draw from the target",
        "greedy check at T > 0",
        with_parts(accept=lambda p, q, x: float(x == int(np.argmax(p))), correct=lambda p, q: p),
    ),
    Mutant("keep verifying after a rejection", "early loops", _keep_verifying),
    Mutant("target row off by one position", "index slip", _off_by_one),
    Mutant("bonus at another temperature", "EAGLE-1", with_parts(bonus=lambda p: _warmer(p, 0.7))),
    Mutant(
        "drawn at T = 0.7, ratio at T = 1",
        "DeepSpec#31, vllm#10198",
        with_parts(
            accept=lambda p, q, x: _ratio(p, _warmer(q, 1 / 0.7), x),
            correct=lambda p, q: residual(p, _warmer(q, 1 / 0.7)),
        ),
    ),
    Mutant(
        "drawn after top-k, judged by the law before it",
        "transformers#47932",
        with_parts(
            accept=lambda p, q, x: _ratio(p, _before_cut(q), x),
            correct=lambda p, q: residual(p, _before_cut(q)),
        ),
        draft="narrow",
    ),
    Mutant(
        "soft law for a guessed draft", "transformers#32867", _softmax_for_guess, draft="greedy"
    ),
    Mutant("match, then a fresh redraw", "REST, Medusa nucleus", fresh_redraw, natural="match"),
    Mutant(
        "match over a retrieved tree, then a fresh redraw",
        "REST",
        fresh_redraw,
        draft="retrieval",
        natural="match",
    ),
    Mutant(
        "a store's counts as if drawn from",
        "tempting in suffix stores",
        _softmax_for_guess,
        draft="ngram_cache",
    ),
    Mutant("missing bonus", "common", _no_bonus),
    Mutant("discard an unsure draft after looking", "confidence cut-offs", _discard_unsure),
    Mutant("length chosen from the whole draft", "dynamic verification", _length_from_whole),
    Mutant("best of two drafts", "reranking", _best_of_two),
    Mutant(
        "block acceptance with the token residual",
        "vllm-ascend#7807",
        lambda d, t, c: _block(d, t, c, scaled=False),
        natural="block",
    ),
    Mutant(
        "block, stop at the first failure",
        "a review of vllm-ascend#11985",
        lambda d, t, c: _block(d, t, c, first=True),
        natural="block",
    ),
    Mutant(
        "block, uncapped joint ratio at the end",
        "HSD's code",
        lambda d, t, c: _block(d, t, c, end=_uncapped),
        natural="block",
    ),
    Mutant(
        "joint ratio acceptance with the token residual",
        "MTAD-like",
        _joint_accept,
        natural="block",
    ),
    Mutant(
        "keys by position alone, under block",
        "reused noise, vllm#54282 in kind",
        RULES["block"].verify,
        natural="block",
        pairs=("markov",),
        by_position=True,
    ),
)
