"""The card of what was trained: what it is for, what it learned from, how its drafts are accepted,
what a plan makes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from draftproof.costs.round_costs import RoundCosts
from draftproof.models.protocol import LanguageModel
from draftproof.report.provenance import provenance
from draftproof.train.check import Measured
from draftproof.train.heldout import Acceptance
from draftproof.train.loop import Training
from draftproof.train.store import Text

CHECKED_PROMPTS = 16
CARD = "card.md"


def counts(texts: Sequence[Text]) -> dict[str, Any]:
    """Of texts: how many, how long their answers, from which sources."""
    return {
        "texts": len(texts),
        "answer_tokens": sum(text.answer for text in texts),
        "sources": dict(Counter(text.source for text in texts)),
    }


def facts_of(
    target: LanguageModel,
    recipe: Any,
    training: Training,
    texts: tuple[Sequence[Text], Sequence[Text]],
    foretold: Acceptance,
    costs: RoundCosts,
    about_texts: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What is kept beside the weights and told on the card. recipe: a dataclass. texts: those
    trained on, those held out."""
    train, held = texts
    return {
        "recipe": asdict(recipe),
        "settings": asdict(training.settings),
        "texts": {"train": counts(train), "held_out": counts(held), **dict(about_texts or {})},
        "steps": len(training.losses),
        "stopped_early": training.stopped_early,
        "held_out_acceptance": asdict(foretold),
        "plan": {
            "verify": [costs.verify_ratio(n) for n in range(1, costs.verify[-1][0] + 1)],
            "draft": costs.draft + costs.fixed,
            "best": costs.best(foretold.marginal),
        },
        "provenance": provenance(target, seed=training.settings.seed),
    }


def _plan(plan: Mapping[str, Any]) -> str:
    length, speedup = plan["best"]
    step = f"a drafting step costs {plan['draft']:.1%} of a target step"
    return (
        f"{speedup:.2f} times plain decoding at {length} drafts; {step}"
        if length
        else f"no gain at any length; {step}"
    )


def card(
    method: str,
    target: str,
    facts: Mapping[str, Any],
    foretold: Sequence[float],
    measured: Measured,
    faults: Sequence[str],
) -> str:
    """The card of a head, a page of Markdown: what it is for, what it learned from, how its drafts
    are accepted."""
    train, held = facts["texts"]["train"], facts["texts"]["held_out"]
    rows = [
        f"| {place} | {expected:.3f} | {found} |"
        for place, expected, found in zip(
            range(1, len(foretold) + 1),
            foretold,
            [f"{value:.3f}" for value in measured.marginal] + ["-"] * len(foretold),
            strict=False,
        )
    ]
    lines = [
        f"# {method} for {target}",
        "",
        f"Trained for {facts['steps']} steps on {train['answer_tokens']} answer tokens "
        f"of {train['texts']} texts "
        f"({', '.join(f'{count} {source}' for source, count in train['sources'].items())}); "
        f"{held['answer_tokens']} tokens of {held['texts']} texts were held out, by prompt.",
        "",
        "Chance that a draft is accepted up to a position, foretold on the held-out "
        "texts at their own temperatures, and "
        f"measured by {measured.drafts} drafts of a generation from {CHECKED_PROMPTS} of "
        "their prompts at most:",
        "",
        "| position | held out | generated |",
        "|---|---|---|",
        *rows,
        "",
        f"Plan on the machine it was trained on: {_plan(facts['plan'])}.",
        "",
        "Checks: " + ("; ".join(faults) if faults else "passed") + ".",
        "",
        "```json",
        json.dumps(
            {
                "recipe": facts["recipe"],
                "settings": facts["settings"],
                "provenance": facts["provenance"],
            },
            indent=1,
        ),
        "```",
        "",
    ]
    return "\n".join(lines)
