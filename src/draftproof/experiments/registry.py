"""The experiments by name. An experiment's module is imported when it is run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any

from draftproof.core.formulas import checked_length
from draftproof.errors import UsageError
from draftproof.report.result import Result

EXPERIMENTS = {
    "noise": "Noise or bias: TV against the number of runs, right and wrong.",
    "markov": "Acceptance that is not independent: tokens per round against the formula.",
    "temperature": "Alpha against temperature for correlated logits.",
    "greedy-drafter": "A drafter that proposes its favourite, under sampled verification.",
    "adaptive-length": "A length that adapts against the best fixed one.",
    "best-length": "The best draft length over alpha and cost ratio, as a map.",
    "bonus": "What the bonus token is worth.",
    "bugs": "Wrong implementations: published, sampled and exact TV side by side.",
}
"""Name -> what it shows. `best-length` lives in experiments/best_length.py as the function
`best_length`."""


@dataclass(frozen=True)
class Settings:
    """seed: of everything random. runs: how much is sampled. None: the experiment's own default."""

    seed: int | None = None
    runs: int | None = None


def run(name: str, settings: Settings | None = None) -> Result:
    """Run one experiment; a setting it has no use for is refused, as is an unknown name."""
    if name not in EXPERIMENTS:
        raise UsageError(f"there is no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}")
    function_name = name.replace("-", "_")
    function = getattr(import_module(f"draftproof.experiments.{function_name}"), function_name)
    settings = settings or Settings()
    if settings.runs is not None:
        checked_length("runs", settings.runs, least=1)
    if settings.seed is not None:
        checked_length("seed", settings.seed)
    given = {key: value for key, value in vars(settings).items() if value is not None}
    if unused := sorted(given.keys() - signature(function).parameters.keys()):
        raise UsageError(
            f"the experiment {name} has no chance in it, so it takes no {' and no '.join(unused)}"
        )
    result: Any = function(**given)
    return result  # type: ignore[no-any-return]
