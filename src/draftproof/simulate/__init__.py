"""Tell what a draft would bring from acceptance and cost alone: no model is run here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.simulate.batch import BatchModel as BatchModel
    from draftproof.simulate.curves import (
        batch_result as batch_result,
    )
    from draftproof.simulate.curves import (
        generation_result as generation_result,
    )
    from draftproof.simulate.curves import (
        process_result as process_result,
    )
    from draftproof.simulate.decoder import (
        SimulatedSpeculativeDecoder as SimulatedSpeculativeDecoder,
    )
    from draftproof.simulate.generation import run_generation as run_generation
    from draftproof.simulate.presets import card as card
    from draftproof.simulate.presets import model as model
    from draftproof.simulate.records import parse_acceptance as parse_acceptance

__all__ = [
    "BatchModel",
    "SimulatedSpeculativeDecoder",
    "batch_result",
    "card",
    "generation_result",
    "model",
    "parse_acceptance",
    "process_result",
    "run_generation",
]

_HOMES = {
    "BatchModel": "draftproof.simulate.batch",
    "SimulatedSpeculativeDecoder": "draftproof.simulate.decoder",
    "batch_result": "draftproof.simulate.curves",
    "card": "draftproof.simulate.presets",
    "generation_result": "draftproof.simulate.curves",
    "model": "draftproof.simulate.presets",
    "parse_acceptance": "draftproof.simulate.records",
    "process_result": "draftproof.simulate.curves",
    "run_generation": "draftproof.simulate.generation",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
