"""Speculative decoding you can prove.

The public surface is `__all__`. A name is imported from its home when it is first used, so that `import draftproof` costs
nothing and loads neither torch nor transformers nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftproof import hf, walkthrough
    from draftproof.core.formulas import (
        acceptance_rate,
        best_draft_length,
        break_even_cost,
        expected_speedup,
        expected_tokens,
    )
    from draftproof.core.params import SamplingParams
    from draftproof.core.records import Draft, Round, Verdict
    from draftproof.core.step import speculative_step
    from draftproof.decode.decoder import SpeculativeDecoder
    from draftproof.models.table import TableModel
    from draftproof.plan.alpha import alpha_per_position

__version__ = "0.1.0"

__all__ = [
    "Draft",
    "Round",
    "SamplingParams",
    "SpeculativeDecoder",
    "TableModel",
    "Verdict",
    "acceptance_rate",
    "alpha_per_position",
    "best_draft_length",
    "break_even_cost",
    "expected_speedup",
    "expected_tokens",
    "hf",
    "speculative_step",
    "walkthrough",
]

_HOMES = {
    "Draft": "core.records",
    "Round": "core.records",
    "SamplingParams": "core.params",
    "SpeculativeDecoder": "decode.decoder",
    "TableModel": "models.table",
    "Verdict": "core.records",
    "acceptance_rate": "core.formulas",
    "alpha_per_position": "plan.alpha",
    "best_draft_length": "core.formulas",
    "break_even_cost": "core.formulas",
    "expected_speedup": "core.formulas",
    "expected_tokens": "core.formulas",
    "speculative_step": "core.step",
}
"""Public name -> the module it lives in; a public name that is not here is itself a module."""


def __getattr__(name: str) -> Any:
    """Import a public name from its home on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'draftproof' has no attribute {name!r}")
    if name in _HOMES:
        value = getattr(import_module(f"draftproof.{_HOMES[name]}"), name)
    else:
        value = import_module(f"draftproof.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
