"""The exact expectation of a rule given a recorded draft; used by rules_on_real_pair.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from draftproof.core.bounds import (
    greedy_k_acceptance,
    iid_bound,
    k_seq_acceptance,
    rrs_iid_acceptance,
)
from draftproof.core.chance import Purpose
from draftproof.core.laws import inverse_cdf
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Array, Draft
from draftproof.core.rules import RULES
from draftproof.core.siblings import without
from draftproof.core.tree import TreeShape

CHAIN = 8
LENGTHS = (2, 3, 4, 8)
NOISE_DRAWS = 64
PLAYS = 8
TREES = {
    "2,2": TreeShape.from_levels((2, 2)),
    "2,2,1": TreeShape.from_levels((2, 2, 1)),
    "lopsided": TreeShape((-1, -1, 0, 0, 2, 2, 4, 4)),
}
"""6 nodes on 2 levels, 10 on 3, and 8 on 4: a chain of four that has one more sibling on each
level."""

ARMS: dict[str, tuple[TreeShape, str]] = {
    "sampled chain": (TreeShape.chain(CHAIN), "iid"),
    "greedy chain": (TreeShape.chain(CHAIN), "fixed"),
} | {
    f"{shape} {selection}": (TREES[shape], selection)
    for shape in TREES
    for selection in ("iid", "without_replacement", "top_k_plus_one", "fixed")
}

CHAIN_RULES = (
    ("token", "sampled"),
    ("block", "sampled"),
    ("gumbel", "sampled"),
    ("match", "sampled"),
    ("match", "greedy"),
)
TREE_RULES = (
    ("rrs", "iid"),
    ("rrs", "without_replacement"),
    ("k_seq", "iid"),
    ("greedy_k", "top_k_plus_one"),
    ("traversal", "iid"),
    ("traversal", "without_replacement"),
    ("gumbel", "without_replacement"),
    ("match", "without_replacement"),
    ("match", "fixed"),
)


class Ways:
    """A chance that walks every way through a rule's choices, as far as they decide how much of the
    draft is kept.

    A draw has as many outcomes as its node has drafted children, and one more for all other tokens;
    where the rule ends with it (`splits` False) it has one. Trials in a row are one choice of where
    they end."""

    start = 0

    def __init__(self, draft: Draft, script: tuple[int, ...], splits: bool) -> None:
        self.draft, self.script, self.splits = draft, script, splits
        self.probability = 1.0
        self.taken: list[int] = []
        self.others: list[tuple[int, ...]] = []

    def choose(self, chances: list[float]) -> int:
        """The index of one outcome; those of no weight are left out."""
        possible = [i for i, chance in enumerate(chances) if chance > 1e-15]
        turn = len(self.taken)
        choice = self.script[turn] if turn < len(self.script) else possible[0]
        self.others.append(tuple(i for i in possible if i > choice))
        self.taken.append(choice)
        self.probability *= chances[choice]
        return choice

    def bernoulli(self, probability: float, purpose: Purpose, node: int) -> bool:
        p = min(max(float(probability), 0.0), 1.0)
        return self.choose([p, 1.0 - p]) == 0

    def draw(self, law: Array, purpose: Purpose, node: int) -> int:
        return self.among(node - 1, law, None) if self.splits else 0

    def draw_target(self, law: Array, depth: int) -> int:
        raise AssertionError("the rows draw themselves")

    def draw_draft(self, law: Array, node: int, depth: int) -> int:
        raise AssertionError("nothing is drafted while scoring")

    def among(self, node: int, law: Array, chances: list[float] | None) -> int:
        """A token after `node`: one of its drafted children's, or -1 for any other. `chances` of
        the children, by default what `law` gives them."""
        tokens = list(
            dict.fromkeys(self.draft.tokens[child] for child in self.draft.children.get(node, ()))
        )
        if chances is None:
            total = float(law.sum())
            chances = [float(law[token]) / total for token in tokens]
        choice = self.choose([*chances, max(0.0, 1.0 - sum(chances))])
        return tokens[choice] if choice < len(tokens) else -1

    def first_failure(self, probabilities: Array, purpose: Purpose) -> int:
        p = probabilities.tolist()
        return self.choose(
            [float(np.prod(p[:i])) * (1 - p[i] if i < len(p) else 1.0) for i in range(len(p) + 1)]
        )

    def last_success(self, probabilities: Array, purpose: Purpose) -> int:
        p = probabilities.tolist()
        fail = [float(np.prod([1 - x for x in p[i:]])) for i in range(len(p) + 1)]
        return self.choose([(p[i - 1] if i else 1.0) * fail[i] for i in range(len(p) + 1)])


class Held:
    """Recorded rows as a rule's target laws. `drawing` gives the chances of a node's children, None
    for what the law says."""

    def __init__(
        self, draft: Draft, law: Callable[[tuple[int, ...]], Array], drawing: Any = None
    ) -> None:
        self._draft, self._law, self._drawing = draft, law, drawing

    def row(self, node: int) -> Array:
        return self._law(self._draft.tokens_to(node))

    def rows(self, nodes: Any) -> Array:
        return np.stack([self.row(node) for node in nodes])

    def draw(self, node: int, chance: Any) -> int:
        if self._drawing is None:
            return int(chance.among(node, self.row(node), None))
        return int(chance.among(node, None, self._drawing(node)))


def expected_tokens(rule: str, draft: Draft, laws: Held) -> float:
    """Expected emitted tokens of one round of `rule` given the draft: over all its choices,
    probability times length."""
    total, pending = 0.0, [()]  # type: ignore[var-annotated]
    while pending:
        script = pending.pop()
        ways = Ways(draft, script, rule == "greedy_k")
        verdict = RULES[rule].verify(draft, laws, ways)  # type: ignore[arg-type]
        total += ways.probability * (len(verdict.path) + 1)
        for turn in range(len(script), len(ways.taken)):
            pending.extend((*ways.taken[:turn], other) for other in ways.others[turn])
    return total


def coupled_chance(p: Array, q: Array, token: int) -> float:
    """The chance that the target picks `token` given that the draft, by the same noise, did:
    1 / (q_x sum_y max(p_y / p_x, q_y / q_x)). Zero where the target forbids it."""
    if p[token] == 0:
        return 0.0
    return float(1.0 / (q[token] * np.maximum(p / p[token], q / q[token]).sum()))


def coupled_chances(p: Array, q: Array, tokens: list[int], draws: Any) -> tuple[list[float], float]:
    """As `coupled_chance` for siblings without replacement, the first arrivals of the draft's race
    E_x / q_x in draw order.

    Given arrival times t_1 < t_2 < ..., the noise of a sibling is q_x t_x and that of any other
    token is at least q_y t_last, exponential beyond; the sibling with the least E / p =: c wins
    with exp(-sum_y (p_y c - q_y t_last)_+). The mean over `draws` [n, len(tokens)] of standard
    exponentials, and the standard error of the sum."""
    others_p, others_q = p.copy(), q.copy()
    others_p[tokens], others_q[tokens] = 0.0, 0.0
    won = np.zeros((len(draws), len(tokens)))
    rates = 1.0 - np.concatenate([[0.0], np.cumsum(q[tokens])[:-1]])
    for i, steps in enumerate(draws):
        times = np.cumsum(steps / rates)
        scores = np.where(
            p[tokens] > 0, q[tokens] * times / np.where(p[tokens] > 0, p[tokens], 1.0), np.inf
        )
        best = int(np.argmin(scores))
        if np.isfinite(scores[best]):
            excess = others_p * scores[best] - others_q * times[-1]
            won[i, best] = np.exp(-excess[excess > 0].sum())
    return won.mean(axis=0).tolist(), float(won.sum(axis=1).std() / len(draws) ** 0.5)


def score_round(file: Path, pipeline: LawPipeline) -> dict[str, Any]:
    """Expected tokens by "draft|rule", the most any rule can make of the chain, and what more
    siblings bring at the root."""
    with np.load(file) as held:
        context = held["context"].tolist()
        drafts = json.loads(str(held["drafts"]))
        target, draft = (row_laws(held, side, pipeline, context) for side in ("target", "draft"))
    tokens: dict[str, float] = {}
    errors: dict[str, float] = {}
    for length in LENGTHS:
        for rule, kind in CHAIN_RULES:
            chain = held_draft(drafts[f"{kind} chain"], draft, length)
            tokens[f"chain {length}|{_name(rule, kind)}"] = _expected(
                rule, chain, target, draft, errors
            )
        chain = held_draft(drafts["sampled chain"], draft, length)
        tokens[f"chain {length}|typical (lossy), greedy"] = _expected(
            "typical", held_draft(drafts["greedy chain"], draft, length), target, draft, errors
        )
        tokens[f"chain {length}|ceiling"] = ceiling(chain, target, draft)
    for shape in TREES:
        for rule, selection in TREE_RULES:
            name = f"{shape}|{_name(rule, selection)}"
            tokens[name] = _expected(
                rule, held_draft(drafts[f"{shape} {selection}"], draft), target, draft, errors, name
            )
    p, q = target(()).astype(np.float64), draft(()).astype(np.float64)
    return {
        "tokens": tokens,
        "gumbel_error": errors,
        "one_position": one_position(p / p.sum(), q / q.sum()),
    }


def one_position(p: Array, q: Array) -> dict[str, dict[str, float]]:
    """By the number of drafts: what the rules accept at the root, and the most any rule can make of
    i.i.d. drafts."""
    return {
        str(k): {
            "rrs, iid": rrs_iid_acceptance(p, q, k),
            "k_seq": k_seq_acceptance(p, q, k),
            "ceiling, iid": iid_bound(p, q, k),
            "greedy_k": greedy_k_acceptance(p, q, k),
            "match, fixed": float(p[np.argsort(-q, kind="stable")[:k]].sum()),
        }
        for k in (1, 2, 4, 8)
    }


def acceptance_by_place(p: Array, q: Array, width: int, rng: Any) -> dict[str, list[list[float]]]:
    """By rule: the chances of each of k siblings to be the accepted one, for k = 1 ... width, as
    `best_tree` takes them.

    Those of `rrs` without replacement are means over PLAYS draws of the earlier siblings."""
    order = [int(token) for token in np.argsort(-q, kind="stable")[:width]]
    constants = [[float(p[token]) for token in order[:k]] for k in range(1, width + 1)]
    rests = [without(q, order[: k - 1]) for k in range(1, width + 1)]
    drawn = [
        constants[k - 1][: k - 1] + [float(np.minimum(p, rest).sum())]
        for k, rest in enumerate(rests, 1)
    ]
    places = np.mean([_one_play(p, q, width, rng) for _ in range(PLAYS)], axis=0)
    return {
        "greedy_k": drawn,
        "rrs": [places[:k].tolist() for k in range(1, width + 1)],
        "match, fixed": constants,
    }


def _one_play(p: Array, q: Array, width: int, rng: Any) -> Array:
    found, tried = np.zeros(width), 1.0
    for place in range(width):
        found[place] = tried * np.minimum(p, q).sum()
        passed, left = np.maximum(q - p, 0.0), np.maximum(p - q, 0.0)
        if not passed.any() or not left.any():
            break
        tried *= passed.sum()
        token = int(inverse_cdf(passed, rng.random()))
        p, q = left / left.sum(), without(q, [token])
    return found


def ceiling(chain: Draft, target: Any, draft: Any) -> float:
    """1 + sum over prefixes of min(1, target / draft of the whole prefix). Its mean over drafts is
    the sum over prefixes of min(p, q): the most often that a prefix of the target's text can be the
    draft's at all."""
    total, ratio = 1.0, 1.0
    for node, token in enumerate(chain.tokens):
        above = chain.tokens_to(node - 1)
        ratio *= float(target(above)[token]) / float(draft(above)[token])
        total += min(1.0, ratio)
    return total


def _expected(
    rule: str, held: Draft, target: Any, draft: Any, errors: dict[str, float], name: str = ""
) -> float:
    if rule != "gumbel":
        return expected_tokens(rule, held, Held(held, target))
    spread: list[float] = []

    def drawing(node: int) -> list[float]:
        children = [held.tokens[child] for child in held.children.get(node, ())]
        path = held.tokens_to(node)
        if not children:
            return []
        p, q = target(path).astype(np.float64), draft(path).astype(np.float64)
        if len(children) == 1:
            return [coupled_chance(p, q, children[0])]
        steps = np.random.default_rng([len(path), *path]).exponential(
            size=(NOISE_DRAWS, len(children))
        )
        chances, error = coupled_chances(p, q, children, steps)
        spread.append(error)
        return chances

    memo: dict[int, list[float]] = {}
    found = expected_tokens(
        rule, held, Held(held, target, lambda node: memo.setdefault(node, drawing(node)))
    )
    if name:
        errors[name] = float(np.sqrt(np.sum(np.square(spread))))
    return found


def _name(rule: str, kind: str) -> str:
    shown = {
        "sampled": "",
        "without_replacement": "",
        "top_k_plus_one": "",
        "iid": "iid",
        "fixed": "fixed",
        "greedy": "greedy",
    }
    if rule in ("k_seq", "greedy_k") or not shown[kind]:
        return rule + (", sampled" if rule == "match" else "")
    return f"{rule}, {shown[kind]}"


def held_draft(held: dict[str, Any], laws: Any, length: int | None = None) -> Draft:
    """The recorded draft, or the first `length` tokens of a chain, with the laws it was drawn
    from."""
    tokens, parents = tuple(held["tokens"][:length]), tuple(held["parents"][:length])
    bare = Draft(tokens, parents, {}, held["selection"])
    if held["selection"] == "fixed":
        return bare
    return Draft(
        tokens,
        parents,
        {node: laws(bare.tokens_to(node)) for node in {ROOT, *parents}},
        held["selection"],
    )


def row_laws(
    held: Any, side: str, pipeline: LawPipeline, context: list[int]
) -> Callable[[tuple[int, ...]], Array]:
    """path -> law [vocab] from the recorded logits, each made once."""
    places = {tuple(path): i for i, path in enumerate(json.loads(str(held[f"{side}_paths"])))}
    rows, size = held[f"{side}_rows"], pipeline.vocab_size
    made: dict[tuple[int, ...], Array] = {}

    def law(path: tuple[int, ...]) -> Array:
        if path not in made:
            row = rows[places[path]]
            logits = (
                (row.astype(np.uint32) << 16).view(np.float32) if row.dtype == np.uint16 else row
            )
            logits = np.concatenate(
                [logits, np.full(max(0, size - len(logits)), -np.inf, np.float32)]
            )[:size]
            found = pipeline.law(logits, context, path)
            made[path] = found / found.sum(dtype=np.float64).astype(found.dtype)
        return made[path]

    return law


def likeliest(law: Any, count: int) -> list[int]:
    order = np.argpartition(-law, count)[: count + 1]
    return [
        int(token)
        for token in order[np.argsort(-law[order], kind="stable")][:count]
        if law[token] > 0
    ]


def siblings(law: Any, count: int, selection: str, uniforms: Any) -> list[int]:
    """`count` children drawn from `law` as `selection` says; the first two uniforms of a node serve
    every selection."""
    if selection == "fixed":
        return likeliest(law, count)
    tokens = likeliest(law, count - 1) if selection == "top_k_plus_one" and count > 1 else []
    while len(tokens) < count:
        left = law if selection == "iid" else without(law, tokens)
        tokens.append(
            int(inverse_cdf(left, uniforms[0 if selection == "top_k_plus_one" else len(tokens)]))
        )
    return tokens
