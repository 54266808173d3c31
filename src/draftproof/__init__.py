"""Speculative decoding you can prove.

The public surface is `__all__`. A name is imported from its home when it is first used, so that
`import draftproof` costs nothing and loads neither torch nor transformers nor NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

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
    "Draft": "draftproof.core.records",
    "Round": "draftproof.core.records",
    "SamplingParams": "draftproof.core.params",
    "SpeculativeDecoder": "draftproof.decode.decoder",
    "TableModel": "draftproof.models.table",
    "Verdict": "draftproof.core.records",
    "acceptance_rate": "draftproof.core.formulas",
    "alpha_per_position": "draftproof.plan.alpha",
    "best_draft_length": "draftproof.core.formulas",
    "break_even_cost": "draftproof.core.formulas",
    "expected_speedup": "draftproof.core.formulas",
    "expected_tokens": "draftproof.core.formulas",
    "hf": "",
    "speculative_step": "draftproof.core.step",
    "walkthrough": "",
}

__getattr__, _ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
