"""`block`: block verification (Sun et al., 2403.10444): the last success wins, the residual is
scaled by the joint ratio.

The capped joint ratio p_i = min(1, p_{i-1} * target/draft) is the chance that a prefix is at least
i long; a failing trial does not end the block. Never accepts less than `token`; equal to it for
fixed drafts.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from draftproof.core.chance import Chance, Purpose
from draftproof.core.expected_chains import by_block
from draftproof.core.laws import residual
from draftproof.core.records import ROOT, Array, Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.rules.stated import Foretold, Formula, Stated


class Block(Rule):
    name = "block"
    lossless = True
    trees = False
    coupled = False
    text_follows_seed = False
    selections: frozenset[Selection] = frozenset({"fixed", "iid", "without_replacement"})

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        if not draft.tokens:
            return Verdict((), int(target_laws.draw(ROOT, chance)))
        laws = target_laws.rows((ROOT, *range(len(draft))))
        joint, draft_laws = joint_ratios(draft, laws), draft_law_rows(draft, laws)
        stop = chance.last_success(block_probabilities(joint, laws, draft_laws), Purpose.ACCEPT)
        scaled = joint[stop] * array_namespace(laws).astype(laws[stop], joint.dtype)
        token = chance.draw(residual(scaled, draft_laws[stop]), Purpose.REPLACEMENT, 0)
        return Verdict(tuple(range(int(stop))), int(token))


def draft_law_rows(draft: Draft, laws: Array) -> Array:
    """The law each draft of a chain was drawn from (one-hot when fixed), and a row of zeros
    [len(draft) + 1, vocab]."""
    xp = array_namespace(laws)
    if draft.selection == "fixed":
        drafted = xp.asarray((*draft.tokens, -1), device=device(laws))
        places = xp.arange(laws.shape[1], device=device(laws))
        return xp.astype(drafted[:, None] == places[None, :], laws.dtype)
    rows = [draft.laws[parent] for parent in draft.parents]
    return xp.stack([*rows, xp.zeros_like(rows[0])])


def joint_ratios(draft: Draft, laws: Array) -> Array:
    """p_0 = 1 and p_i = min(1, p_{i-1} * target/draft at draft i) [len(draft) + 1], float64."""
    xp = array_namespace(laws)
    draft_laws = draft_law_rows(draft, laws)
    joint = [xp.ones((), dtype=xp.float64, device=device(laws))]
    for i, token in enumerate(draft.tokens):
        ratio = xp.astype(laws[i, token], xp.float64) / xp.astype(draft_laws[i, token], xp.float64)
        joint.append(xp.clip(joint[-1] * ratio, max=1.0))
    return xp.stack(joint)


def block_probabilities(joint: Array, laws: Array, draft_laws: Array) -> Array:
    """The chance h_i of each trial [len(draft)], float64: S_i / (S_i + 1 - p_i) inside the block,
    p_n at its end.

    S_i is the mass of (p_i * target - draft)_+ after draft i. Where S_i = 0 and p_i = 1 a later
    trial succeeds for sure."""
    xp = array_namespace(laws)
    inner = joint[1:-1, None] * xp.astype(laws[1:-1], xp.float64) - xp.astype(
        draft_laws[1:-1], xp.float64
    )
    mass = xp.sum(xp.where(inner > 0, inner, xp.zeros_like(inner)), axis=-1)
    bound = mass + 1 - joint[1:-1]
    safe = xp.where(bound > 0, bound, xp.ones_like(bound))
    return xp.concat([xp.where(bound > 0, mass / safe, xp.ones_like(bound)), joint[-1:]])


STATED = Stated(Block(), Formula(by_block), foretold=Foretold("joint"), vllm="block")
