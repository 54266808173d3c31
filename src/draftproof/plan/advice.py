"""What a plan says in words: the best choice or none, the term that limits, what would have to
change; the config to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from draftproof.core.formulas import expected_speedup, expected_tokens
from draftproof.costs.timings import Timings
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.schedule import KEY
from draftproof.plan.plan import Foretold, Plan
from draftproof.plan.predict import Choice

NO_SCHEDULE = ("medusa", "suffix")
"""Methods of vLLM's that refuse lengths by batch size there."""
_TERMS = {
    "draft": "drafting",
    "verify": "verifying more than one token",
    "outside": "work outside the forwards",
}


def headline(plan: Plan) -> str:
    """The answer in one sentence."""
    best, top = plan.best, plan.choices[0]
    name = plan.of(best or top).candidate.short
    if best is not None:
        return f"speculate with {name}, {best.shape}: {_speed(best)}"
    if top.speedup.point > 1:
        return (
            f"do not speculate on this evidence: at best {_speed(top)} ({name}, "
            f"{top.shape}), and the interval reaches below 1"
        )
    return f"do not speculate: at best {top.speedup.point:.2f}x ({name}, {top.shape})"


def _speed(choice: Choice) -> str:
    return f"{choice.speedup.point:.2f}x ({choice.speedup.low:.2f}-{choice.speedup.high:.2f})"


def limits(choice: Choice, costs: Timings) -> str:
    """The term that limits, in one plain sentence."""
    n = min(choice.num_nodes + 1, costs.curve.tokens[-1])
    term = max(choice.shares, key=lambda name: choice.shares[name])
    extra = sum(choice.shares.values())
    said = f"verifying {n} tokens costs {float(costs.curve(n)):.1f} single steps here"
    if choice.shares["draft"]:
        said += f" and a draft step {costs.cost_ratio:.2f}"
    if extra < 0.05:
        return f"{said}; drafting and verifying are nearly free, so acceptance is what limits"
    return (
        f"{said}; of what a round costs beyond one step, {choice.shares[term] / extra:.0%} "
        f"is {_TERMS[term]}"
    )


def to_change(drafter: Foretold) -> str:
    """What would have to change for this drafter to pay: alpha at this cost, or cost at this alpha.

    By the i.i.d. formula, scaled at each length to what was foretold there: it says "now" exactly
    where the plan does."""
    chains = [choice for choice in drafter.choices if choice.tree is None] or list(drafter.choices)
    lengths = np.array([choice.num_speculative_tokens for choice in chains])
    scale = np.array([choice.speedup.point / (choice.iid_speedup or np.nan) for choice in chains])
    verify = drafter.costs.curve(lengths + 1)
    need = alpha_needed(lengths, drafter.costs.cost_ratio, verify, scale)
    tokens = np.array([float(expected_tokens(drafter.alpha.point, int(k))) for k in lengths])
    cost = float(np.max((scale * tokens - verify) / lengths))
    name, alpha, ratio = drafter.candidate.short, drafter.alpha.point, drafter.costs.cost_ratio
    said = f"for {name} to pay, " + (
        "no alpha is enough at this cost" if need is None else f"alpha must reach {need:.2f}"
    )
    said += f" (it is {alpha:.2f})"
    if ratio == 0:
        return said
    if cost <= 0:
        return f"{said}, and no draft is cheap enough at this alpha"
    return f"{said}, or a draft step must cost {cost:.2f} target steps (it is {ratio:.2f})"


def _why_not(drafter: Foretold) -> str:
    """What keeps a drafter from being recommended."""
    top = max(drafter.choices, key=lambda choice: choice.speedup.point)
    name = drafter.candidate.short
    if top.speedup.point <= 1 and top.chosen:
        return f"none of the drafters of {name} pays often enough here"
    if top.speedup.point <= 1:
        return to_change(drafter)
    return (
        f"{name} may pay, at {_speed(top)}, but the interval reaches below 1: more prompts "
        "or a quieter machine narrow it"
    )


def alpha_needed(lengths: Any, cost_ratio: float, verify: Any, scale: Any = 1.0) -> float | None:
    """The smallest acceptance at which some length breaks even (to 0.001); None when not even 1
    does. scale: by which the formula's speedup is multiplied at each length."""
    grid = np.linspace(0, 1, 1001)
    gains = scale * expected_speedup(
        grid[:, None], np.asarray(lengths)[None, :], cost_ratio, np.asarray(verify)[None, :]
    )
    pays = np.flatnonzero(gains.max(axis=1) >= 1)
    return float(grid[pays[0]]) if len(pays) else None


def speculative_config(config: SpeculativeConfig, choice: Choice) -> dict[str, Any]:
    """The config of a choice, with vLLM's keys only where vLLM has the method; our engine takes
    them unchanged too. A tree is draftproof's own key."""
    found = {
        **config.as_dict(vllm=config.spec.vllm),
        "num_speculative_tokens": choice.num_speculative_tokens,
    }
    return found if choice.tree is None else found | {"tree": list(choice.tree)}


def scheduled_config(
    config: SpeculativeConfig, schedule: Sequence[Sequence[int]]
) -> dict[str, Any] | None:
    """The config of a schedule of lengths by batch size, in vLLM's form; None when no batch size
    drafts."""
    longest = max(length for _, _, length in schedule)
    found = {**config.as_dict(vllm=True), "num_speculative_tokens": longest}
    return found | {KEY: [list(entry) for entry in schedule]} if longest else None


def scheduled_headline(by_batch: Mapping[str, Any], name: str) -> str:
    """A schedule in one sentence."""
    schedule = by_batch[KEY]
    if not any(length for _, _, length in schedule):
        return f"do not speculate at any batch size up to {schedule[-1][1]}"
    (_, last, length), *others = schedule
    said = [f"{length or 'no'} draft{'' if length == 1 else 's'} up to batch {last}"]
    said += [f"{length or 'none'} up to {last}" for _, last, length in others]
    return f"speculate with {name}: {', '.join(said)}"


def vllm_note(
    config: SpeculativeConfig, choice: Choice | None = None, *, scheduled: bool = False
) -> str | None:
    """A sentence where vLLM cannot take the config; None where it can."""
    if not config.spec.vllm:
        return f"vLLM has no method {config.method!r}; the configuration is for draftproof"
    if scheduled and config.method in NO_SCHEDULE:
        return (
            f"vLLM takes no lengths by batch size for method {config.method!r}; the "
            "configuration is for draftproof"
        )
    if choice is not None and choice.tree is not None:
        return "vLLM has no key for draft trees; the configuration is for draftproof"
    if config.rule:
        return f"vLLM has no rule {config.rule!r} under that key; the configuration leaves it out"
    return None


def notes(plan: Plan) -> list[str]:
    """What the table cannot say, one sentence each."""
    top = plan.best or plan.choices[0]
    said = [limits(top, plan.of(top).costs)]
    if plan.best is None:
        # else no alpha was seen
        said += [_why_not(drafter) for drafter in plan.drafters if drafter.share_drafted > 0]
    for drafter in plan.drafters:
        if drafter.share_drafted < 0.9:
            where = (
                "drafts in {:.0%} of rounds"
                if drafter.candidate.chooses
                else "has something to propose at {:.0%} of positions"
            )
            said.append(f"{drafter.candidate.short} {where.format(drafter.share_drafted)}")
        chains = [
            choice.num_speculative_tokens
            for choice in drafter.choices
            if choice.tree is None and not choice.chosen
        ]
        if chains and max(drafter.asked, default=0) > max(chains):
            said.append(
                f"{drafter.candidate.short} drafts a tree with a depth of its own: "
                f"lengths above {max(chains)} are left out"
            )
        busy = max(drafter.costs.spread(), drafter.costs.drift())
        if busy > 0.15:
            said.append(
                f"timings spread by {busy:.0%} while {drafter.candidate.short} was "
                "measured: the machine was busy"
            )
    if plan.best is not None and plan.best.other_prompts["low"] < 1:
        others = plan.best.other_prompts
        said.append(
            f"on other prompts of this kind it may be anything from {others['low']:.2f}x "
            f"to {others['high']:.2f}x"
        )
    if any(choice.tree is not None for choice in plan.choices):
        said.append(
            "sampled trees are foretold as rejection sampling verifies siblings; the "
            "rule traversal keeps as many or more"
        )
    note = (
        vllm_note(plan.of(top).candidate.config, plan.best)
        if plan.best and not plan.larger
        else None
    )
    return said + ([note] if note else []) + _evidence(plan)


def _evidence(plan: Plan) -> list[str]:
    tokens: Sequence[int] = [len(text.answer) for text in plan.texts]
    count = len({id(prompt) for prompt in plan.prompts})
    prompts = "1 prompt" if count == 1 else f"{count} prompts"
    said = (
        f"from {prompts} and {sum(tokens)} tokens; intervals hold 90% of runs on these "
        f"prompts, batch {plan.batch}"
    )
    if plan.batch > 1 or plan.larger:
        said += "; all sequences of a batch are taken to draft equally long"
    if any(not text.own and len(text.answer) == plan.params.max_tokens for text in plan.texts):
        said += (
            f"; answers that were given are read up to {plan.params.max_tokens} tokens, see "
            "--max-tokens"
        )
    return [said]
