"""What rules for trees share: the law each sibling was really drawn from, and the walk along the target's own draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from array_api_compat import array_namespace, device

from draftproof.core.chance import Chance
from draftproof.core.records import ROOT, Array, Draft, Verdict

if TYPE_CHECKING:
    from draftproof.core.rules.protocol import TargetLaws


def sibling_law(draft: Draft, child: int, like: Array) -> Array:
    """The law [vocab], float64, that `child` was drawn from given its earlier siblings; `like` [vocab] names type and device.

    fixed: one-hot. iid: the parent's recorded law. without_replacement: that law without the earlier siblings' tokens,
    renormalised. top_k_plus_one: without all other siblings' tokens, renormalised; of meaning for the last child only."""
    parent = draft.parents[child]
    siblings = draft.children[parent]
    xp = array_namespace(like)
    if draft.selection == "fixed":
        places = xp.arange(like.shape[0], device=device(like))
        return xp.astype(places == draft.tokens[child], xp.float64)
    law = xp.astype(draft.laws[parent], xp.float64)
    if draft.selection == "iid":
        return law
    others = siblings if draft.selection == "top_k_plus_one" else siblings[: siblings.index(child)]
    removed = [draft.tokens[node] for node in others if node != child]
    return without(law, removed)


def without(law: Array, removed: list[int]) -> Array:
    """`law` [vocab] with the tokens in `removed` at zero, renormalised; the law itself when nothing is removed."""
    if not removed:
        return law
    xp = array_namespace(law)
    kept = xp.asarray(law, copy=True)
    kept[xp.asarray(removed, device=device(law))] = 0.0
    total = xp.sum(kept)
    return kept / total if float(total) > 0 else kept


def follow_target(draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
    """Emit the target's own draws, and go on below a candidate for as long as one of them equals the draw."""
    path: list[int] = []
    while True:
        node = path[-1] if path else ROOT
        token = int(target_laws.draw(node, chance))
        child = draft.child(node, token)
        if child is None:
            return Verdict(tuple(path), token)
        path.append(child)
