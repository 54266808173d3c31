"""What rules for trees share: the law each sibling was really drawn from, and the walk along the
target's own draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from array_api_compat import array_namespace, device

from draftproof.core.chance import Chance
from draftproof.core.laws import as_numpy
from draftproof.core.records import ROOT, Array, Draft, Verdict

if TYPE_CHECKING:
    from draftproof.core.rules.protocol import TargetLaws

Choose = Callable[[int, Draft, "TargetLaws", Chance], tuple[int | None, int]]


def sibling_law(draft: Draft, child: int, like: Array) -> Array:
    """The law [vocab], float64, that `child` was drawn from given its earlier siblings; `like`
    [vocab], the target's law as `widened` gives it, names type and device.

    fixed: one-hot. iid: the parent's recorded law. without_replacement: that law without the
    earlier siblings' tokens, renormalised. top_k_plus_one: without all other siblings' tokens,
    renormalised; of meaning for the last child only."""
    parent = draft.parents[child]
    siblings = draft.children[parent]
    xp = array_namespace(like)
    if draft.selection == "fixed":
        places = xp.arange(like.shape[0], device=device(like))
        return xp.astype(places == draft.tokens[child], xp.float64)
    law = xp.astype(as_numpy(draft.laws[parent]), xp.float64)
    if draft.selection == "iid":
        return law
    others = siblings if draft.selection == "top_k_plus_one" else siblings[: siblings.index(child)]
    removed = [draft.tokens[node] for node in others if node != child]
    return without(law, removed)


def widened(law: Array) -> Array:
    """`law` [vocab] in float64; in NumPy when it lies in a CPU's memory, where a vocabulary is
    cheaper to work on."""
    law = as_numpy(law)
    xp = array_namespace(law)
    return xp.astype(law, xp.float64)


def remainder(law: Array, taken: Array) -> tuple[Array, float]:
    """(law - taken)_+ [vocab] and its mass."""
    xp = array_namespace(law)
    left = law - taken
    left = xp.where(left > 0, left, xp.zeros_like(left))
    return left, float(xp.sum(left))


def without(law: Array, removed: list[int]) -> Array:
    """`law` [vocab] with the tokens in `removed` at zero, renormalised; the law itself when nothing
    is removed."""
    if not removed:
        return law
    xp = array_namespace(law)
    kept = xp.asarray(law, copy=True)
    kept[xp.asarray(removed, device=device(law))] = 0.0
    total = xp.sum(kept)
    return kept / total if float(total) > 0 else kept


def descend(choose: Choose, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
    """Walk down from the root. `choose(node, draft, target_laws, chance)` gives the child of `node`
    that is accepted, None where the walk ends, and the token emitted after `node`. Without a draft
    the token is the target's own."""
    if not draft.tokens:
        return Verdict((), int(target_laws.draw(ROOT, chance)))
    path: list[int] = []
    while True:
        accepted, token = choose(path[-1] if path else ROOT, draft, target_laws, chance)
        if accepted is None:
            return Verdict(tuple(path), token)
        path.append(accepted)


def follow_target(draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
    """Emit the target's own draws, and go on below a candidate for as long as one of them equals
    the draw."""
    return descend(_drawn_child, draft, target_laws, chance)


def _drawn_child(
    node: int, draft: Draft, target_laws: TargetLaws, chance: Chance
) -> tuple[int | None, int]:
    token = int(target_laws.draw(node, chance))
    return draft.child(node, token), token
