"""Faults of the verification rules, and of what they stand on: laws, siblings, the enumerator."""

from __future__ import annotations

from mutants.fault import Fault

ONE_ROUND = ("core/test_rules.py", "core/test_near_laws.py")
TREES = ("core/test_tree_rules.py", "core/test_near_laws.py", "exact/test_wide_siblings.py")
DEVICE = ("exact/test_devices.py",)
LAWS = ("core/test_laws.py", "core/test_near_laws.py")

RULES: tuple[Fault, ...] = (
    # token
    Fault(
        "core/rules/token.py",
        "bonus = target_laws.row(len(draft) - 1)",
        "bonus = target_laws.row(len(draft) - 2)",
        "the bonus is drawn from the row before the last",
        ONE_ROUND,
    ),
    Fault(
        "core/rules/token.py",
        "if not chance.bernoulli(min(ratio, 1.0), Purpose.ACCEPT, i):",
        "if not chance.bernoulli(min(1.001 * ratio, 1.0), Purpose.ACCEPT, i):",
        "accepts a thousandth too often",
        ONE_ROUND,
    ),
    Fault(
        "core/rules/token.py",
        "left = _less(law, token) if drawn_from is None else residual(law, drawn_from)",
        "left = law if drawn_from is None else residual(law, drawn_from)",
        "a rejected guess may come again as its own replacement",
        ONE_ROUND,
    ),
    Fault(
        "core/rules/token.py",
        "return residual(target, xp.stack([*draft_laws, xp.zeros_like(draft_laws[0])])[stop])",
        "return residual(target, xp.stack([*draft_laws, draft_laws[-1]])[stop])",
        "on a device the bonus is drawn from (p - q_last)+",
        DEVICE,
    ),
    Fault(
        "core/rules/token.py",
        "rejected = xp.asarray((*draft.tokens, -1), **where)[stop]",
        "rejected = xp.asarray((*draft.tokens, draft.tokens[-1]), **where)[stop]",
        "on a device the bonus after guesses lacks the last of them",
        DEVICE,
    ),
    Fault(
        "core/rules/token.py",
        "return xp.clip(target / xp.astype(drawn, xp.float64), max=1.0)",
        "return xp.clip(1.01 * target / xp.astype(drawn, xp.float64), max=1.0)",
        "on a device a draft is accepted a hundredth too often",
        DEVICE,
    ),
    Fault(
        "core/rules/token.py",
        "    target = laws[stop]\n",
        "    target = laws[stop - 1]\n",
        "on a device the replacement comes from the row before",
        DEVICE,
    ),
    # block
    Fault(
        "core/rules/block.py",
        "scaled = joint[stop] * array_namespace(laws).astype(laws[stop], joint.dtype)",
        "scaled = array_namespace(laws).astype(laws[stop], joint.dtype)",
        "the residual is not scaled by the joint ratio",
        ("core/test_near_laws.py", "exact/test_devices.py"),
    ),
    Fault(
        "core/rules/block.py",
        "joint.append(xp.clip(joint[-1] * ratio, max=1.0))",
        "joint.append(joint[-1] * ratio)",
        "the joint ratio is not capped",
        ONE_ROUND,
    ),
    Fault(
        "core/rules/block.py",
        "bound = mass + 1 - joint[1:-1]",
        "bound = mass + 1 - joint[2:]",
        "the trials inside the block look one draft ahead",
        ONE_ROUND,
    ),
    Fault(
        "core/rules/block.py",
        "return xp.stack([*rows, xp.zeros_like(rows[0])])",
        "return xp.stack([*rows, rows[-1]])",
        "the bonus is drawn from (p - q_last)+",
        ONE_ROUND,
    ),
    Fault(
        "core/rules/block.py",
        "xp.where(bound > 0, mass / safe, xp.ones_like(bound))",
        "xp.where(bound > 1e-3, mass / safe, xp.ones_like(bound))",
        "a small trial is taken for a sure one",
        ONE_ROUND,
    ),
    Fault(
        "core/rules/block.py",
        "drafted = xp.asarray((*draft.tokens, -1), device=device(laws))",
        "drafted = xp.asarray((*draft.tokens, draft.tokens[-1]), device=device(laws))",
        "the bonus after guesses lacks the last of them",
        ONE_ROUND,
    ),
    # rrs
    Fault(
        "core/rules/rrs.py",
        "law = left / mass if mass > 0 else law",
        "law = left / mass if mass > 1e-3 else law",
        "a residual of less than a thousandth is thrown away",
        TREES,
    ),
    Fault(
        "core/rules/rrs.py",
        "law = left / mass if mass > 0 else law",
        "law = left / mass if mass > 1e-10 else law",
        "a residual of less than 1e-10 is thrown away",
        TREES,
    ),
    Fault(
        "core/rules/rrs.py",
        "law = left / mass if mass > 0 else law",
        "law = left",
        "the residual is not normalised for the next sibling",
        TREES,
    ),
    Fault(
        "core/rules/rrs.py",
        "for child in draft.children.get(node, ()):",
        "for child in draft.children.get(node, ())[:2]:",
        "a third sibling is never tried",
        TREES,
    ),
    # greedy_k
    Fault(
        "core/rules/greedy_k.py",
        "law = residual(law, rest)",
        "law = residual(law, draft.laws[node])",
        "the residual is that of the whole draft law",
        TREES,
    ),
    Fault(
        "core/rules/greedy_k.py",
        "drawn = children[-1]",
        "drawn = children[0]",
        "a constant candidate is judged as the drawn one",
        TREES,
    ),
    # k_seq
    Fault(
        "core/rules/k_seq.py",
        "rho = division_factor(target, drafted, len(children))",
        "rho = division_factor(target, drafted, 2)",
        "rho is that of two siblings, however many there are",
        TREES,
    ),
    Fault(
        "core/rules/k_seq.py",
        "left = target - common * ((1.0 - (1.0 - beta) ** k) / beta)",
        "left = target - common * (1.0 - (1.0 - beta) ** k)",
        "what the siblings took is not divided by beta",
        TREES,
    ),
    Fault(
        "core/rules/k_seq.py",
        "    if beta == 0.0:\n",
        "    if beta < 1e-3:\n",
        "nearly disjoint laws are taken for disjoint ones",
        TREES,
    ),
    Fault(
        "core/rules/k_seq.py",
        'if not children or draft.selection == "fixed":',
        "if not children:",
        "fixed candidates are judged by the target's own law",
        TREES,
    ),
    Fault(
        "core/rules/k_seq.py",
        "            high = middle\n",
        "            low = middle\n",
        "bisection keeps the wrong end",
        TREES,
    ),
    Fault(
        "core/rules/k_seq.py",
        "below, above = target <= low * drafted, target >= high * drafted",
        "below, above = target <= high * drafted, target >= high * drafted",
        "tokens are settled before they are",
        TREES,
    ),
    # traversal
    Fault(
        "core/rules/traversal.py",
        "if mass == 0.0:",
        "if mass < 1e-3:",
        "a residual of less than a thousandth is thrown away",
        TREES,
    ),
    Fault(
        "core/rules/traversal.py",
        "if mass == 0.0:",
        "if mass < 1e-10:",
        "a residual of less than 1e-10 is thrown away",
        TREES,
    ),
    Fault(
        "core/rules/traversal.py",
        "success, law = mass / (mass + (1.0 - success)), left / mass",
        "success, law = mass, left / mass",
        "the success after a failure is the residual's mass",
        TREES,
    ),
    Fault(
        "core/rules/traversal.py",
        "left, mass = remainder(success * law, drawn_from)",
        "left, mass = remainder(law, drawn_from)",
        "the residual is not scaled by the success",
        TREES,
    ),
    Fault(
        "core/rules/traversal.py",
        "reach = min(1.0, success * float(law[token]) / float(drawn_from[token]))",
        "reach = min(1.0, float(law[token]) / float(drawn_from[token]))",
        "a child is visited as if its parent were certain",
        TREES,
    ),
    # match, gumbel, typical
    Fault(
        "core/siblings.py",
        "    token = int(target_laws.draw(node, chance))\n",
        "    token = int(target_laws.draw(ROOT, chance))\n",
        "`match` draws every token from the root's row",
        ("core/test_rules.py",),
    ),
    Fault(
        "core/rules/typical.py",
        "best = path if len(path) > len(best) else best",
        "best = path if len(path) >= len(best) else best",
        "the latest of equally long paths wins",
        ("core/test_tree_rules.py",),
    ),
    # siblings
    Fault(
        "core/siblings.py",
        "siblings[: siblings.index(child)]",
        "siblings[: siblings.index(child)][-1:]",
        "only the sibling drawn last leaves the law",
        TREES,
    ),
    Fault(
        "core/siblings.py",
        "siblings[: siblings.index(child)]",
        "siblings[: siblings.index(child)][:1]",
        "only the first sibling leaves the law",
        TREES,
    ),
    Fault(
        "core/siblings.py",
        (
            'others = siblings if draft.selection == "top_k_plus_one" else siblings[: '
            "siblings.index(child)]"
        ),
        (
            'others = siblings[-2:] if draft.selection == "top_k_plus_one" else siblings[: '
            "siblings.index(child)]"
        ),
        "the earlier constants stay in the law of the drawn one",
        TREES,
    ),
    Fault(
        "core/siblings.py",
        "return kept / total if float(total) > 0 else kept",
        "return kept",
        "what is left of a law is not renormalised",
        TREES,
    ),
    Fault(
        "core/siblings.py",
        "kept[xp.asarray(removed, device=device(law))] = 0.0",
        "kept[xp.asarray(removed[-1:], device=device(law))] = 0.0",
        "of several removed tokens only the last goes, for the draw and for the rule alike",
        TREES,
    ),
    Fault(
        "core/siblings.py",
        "left = xp.where(left > 0, left, xp.zeros_like(left))",
        "left = xp.where(left > 1e-6, left, xp.zeros_like(left))",
        "small parts of a residual are thrown away",
        TREES,
    ),
    # laws
    Fault(
        "core/laws.py",
        "positive = xp.where(positive > 0, positive, xp.zeros_like(positive))",
        "positive = xp.where(positive > 1e-6, positive, xp.zeros_like(positive))",
        "small parts of a residual are thrown away",
        (*LAWS, "core/test_rules.py"),
    ),
    Fault(
        "core/laws.py",
        (
            "target_law = xp.astype(target_law, xp.float64)\n    positive = target_law - "
            "xp.astype(draft_law, xp.float64)"
        ),
        "positive = target_law - draft_law",
        "a residual of float32 laws is taken in float32",
        LAWS,
    ),
    Fault(
        "core/laws.py",
        "return xp.where(xp.sum(positive) > 0, positive, target_law)",
        "return xp.where(xp.sum(positive) > 1e-3, positive, target_law)",
        "a residual of less than a thousandth is thrown away",
        (*LAWS, "core/test_rules.py"),
    ),
    Fault(
        "core/laws.py",
        'index = xp.searchsorted(running, total * uniform, side="right")',
        'index = xp.searchsorted(running, total * uniform, side="left")',
        "on a device a uniform of 0 gives a forbidden first token",
        ("core/test_laws.py", "core/test_device_chance.py"),
    ),
    Fault(
        "core/laws.py",
        "    goal = running[-1] * uniform\n",
        "    goal = uniform\n",
        "a law that does not quite sum to 1 is drawn from as if it did",
        LAWS,
    ),
    Fault(
        "core/laws.py",
        "before = running[block - 1] if block else 0.0",
        "before = 0.0",
        "the first block's sum is forgotten in the second",
        ("core/test_laws.py",),
    ),
    # the enumerator
    Fault(
        "core/enumerate.py",
        "if key in self.known and not self.share:",
        "if False:",
        "a key that comes twice is not objected to",
        ("core/test_enumerate.py",),
    ),
    Fault(
        "core/enumerate.py",
        "share = (right - left) / (high - low)",
        "share = right - left",
        "what is known of a key does not condition it",
        ("core/test_enumerate.py",),
    ),
)
