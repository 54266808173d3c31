"""What a draft would bring, asked with numbers instead of models: from acceptance, cost, and a card
or a verify curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof.core.formulas import checked_length, expected_speedup, expected_tokens
from draftproof.costs.verify_curve import VerifyCurve
from draftproof.plan.advice import scheduled_headline
from draftproof.plan.plan import LENGTHS
from draftproof.plan.schedule import by_batch
from draftproof.simulate.batch import BatchModel
from draftproof.simulate.presets import card, model

CONTEXT = 1024


def what_if(
    alpha: float,
    cost_ratio: float | None = None,
    lengths: Sequence[int] = LENGTHS,
    *,
    batch: int | Sequence[int] = 1,
    context: int = CONTEXT,
    card_name: str | None = None,
    target_shape: str = "Llama-3.1-8B",
    draft_shape: str = "Llama-3.2-1B",
    curve: VerifyCurve | None = None,
) -> dict[str, Any]:
    """A plan document from numbers; intervals are points, because nothing was measured.

    cost_ratio: draft step over target step; with a card the roofline model gives one if None.
    curve: T(n)/T(1); without a card and a curve verification is taken as free, and a note says so.
    batch: sequences decoded together; several, ascending, give the length at each of them under
    `by_batch`."""
    sizes = (batch,) if isinstance(batch, int) else tuple(batch)
    found = [
        _at_one_size(
            alpha, cost_ratio, lengths, size, context, card_name, target_shape, draft_shape, curve
        )
        for size in sizes
    ]
    if len(found) == 1:
        return found[0]
    schedule = by_batch({size: one["choices"] for size, one in zip(sizes, found, strict=True)})
    ratios = {str(size): one["verify_ratio"] for size, one in zip(sizes, found, strict=True)}
    said = {
        "headline": scheduled_headline(schedule, "such a draft"),
        "by_batch": schedule | {"verify_ratio": ratios},
    }
    return found[0] | said


def _at_one_size(
    alpha: float,
    cost_ratio: float | None,
    lengths: Sequence[int],
    batch: int,
    context: int,
    card_name: str | None,
    target_shape: str,
    draft_shape: str,
    curve: VerifyCurve | None,
) -> dict[str, Any]:
    checked_length("batch", batch, least=1)
    setting = (
        BatchModel(card(card_name), model(target_shape), model(draft_shape)) if card_name else None
    )
    cost = cost_ratio
    if cost is None:
        cost = float(setting.cost_ratio(batch, context)) if setting else 0.0
    ratios = {n: _verify(n, setting, curve, batch, context) for n in range(1, max(lengths) + 2)}
    choices = [_choice(alpha, k, cost, ratios[k + 1]) for k in sorted(set(lengths))]
    choices.sort(key=lambda choice: -choice["speedup"]["point"])
    best = choices[0] if choices[0]["speedup"]["point"] > 1 else None
    k, speed = choices[0]["num_speculative_tokens"], choices[0]["speedup"]["point"]
    said = (
        f"{k} drafts a round: {speed:.2f}x"
        if best
        else f"do not speculate: at best {speed:.2f}x ({k} drafts)"
    )
    return {
        "format": "draftproof.plan",
        "version": 1,
        "headline": said,
        "notes": _notes(setting, curve, cost_ratio, cost, batch, context),
        "batch": batch,
        "by_batch": None,
        "alpha": {"mean": alpha, "low": alpha, "high": alpha},
        "cost_ratio": cost,
        "verify_ratio": {str(n): ratio for n, ratio in ratios.items()},
        "choices": choices,
        "best": best,
        "speculative_config": None,
        "drafters": [
            {
                "drafter": "what if",
                "method": "what if",
                "alpha": {"mean": alpha, "low": alpha, "high": alpha},
                "alpha_by_position": [],
                "alpha_by_workload": {},
                "autocorrelation": None,
                "overlaps": [],
                "pass_seconds": {str(n): [ratio] for n, ratio in ratios.items()},
            }
        ],
        "prompts": [],
        "params": {},
        "provenance": {},
    }


def _verify(
    n: int, setting: BatchModel | None, curve: VerifyCurve | None, batch: int, context: int
) -> float:
    if curve is not None:
        return float(curve(n))
    return float(setting.verify_ratio(batch, context, n)) if setting else 1.0


def _choice(alpha: float, k: int, cost: float, verify: float) -> dict[str, Any]:
    speed = float(expected_speedup(alpha, k, cost, verify))
    return {
        "method": "what if",
        "drafter": "what if",
        "num_speculative_tokens": k,
        "tokens_per_round": float(expected_tokens(alpha, k)),
        "speedup": {"point": speed, "low": speed, "high": speed},
        "other_prompts": {"low": speed, "high": speed},
        "iid_speedup": speed,
        "shares": {"draft": k * cost, "verify": verify - 1, "outside": 0.0},
        "tree": None,
    }


def _notes(
    setting: BatchModel | None,
    curve: VerifyCurve | None,
    given: float | None,
    cost: float,
    batch: int,
    context: int,
) -> list[str]:
    if curve is not None:
        said = ["verification costs as the given curve says"]
    elif setting is not None:
        said = [
            (
                f"roofline model of {setting.card.name}, {setting.target.name}, batch "
                f"{batch}, {context} tokens of context"
            )
        ]
    else:
        said = ["verification is taken as free, which it is not: give --card or --verify-curve"]
    if given is None:
        source = (
            f"the card's roofline model for {setting.draft.name}"
            if setting
            else "none given, so drafting is free"
        )
        said.append(f"cost ratio {cost:.3f}: {source}")
    return said
