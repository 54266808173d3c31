"""The table of costs of a pair, counted from what the models are, not timed: the same on every day
and on every machine.

Under a rule whose text depends on how long drafts are, costs that were timed when a decoder was
made would make the text of a seed depend on how busy the machine was then. What is counted: the
bytes of weights that a pass reads, its layers, how wide the weights are, and on what kind of
device. Curves for a CPU are medians of measurements (benchmarks/record.md);
those for an accelerator are estimates from its bandwidth, not measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from draftproof.costs.round_costs import RoundCosts
from draftproof.drafters.protocol import Drafter
from draftproof.models.protocol import LanguageModel
from draftproof.models.steps import device_kind

Curve = tuple[tuple[int, float], ...]

PACKED: Curve = ((1, 1.0), (3, 1.2), (9, 2.0), (17, 3.2), (33, 5.5))
HALF: Curve = ((1, 1.0), (5, 1.05), (9, 1.18), (17, 1.45), (33, 1.95))
SINGLE: Curve = ((1, 1.0), (2, 1.5), (9, 1.85), (17, 2.3), (33, 3.0))
ACCELERATOR: Curve = ((1, 1.0), (17, 1.1), (65, 1.3))
"""Tokens of a target pass -> its time, by the width of the weights, and on a device that computes
far faster than it reads."""

LAYER_ON_CPU, LAYER_ON_ACCELERATOR = 5e6, 2e9
"""Bytes that could be read in the time that starting one layer's work takes."""
FIXED = 0.02
"""What a round that drafts takes outside passes, in passes over one token."""


def counted_costs(target: LanguageModel, drafter: Drafter) -> dict[str, RoundCosts]:
    """Name -> costs, of every drafter that `drafter` is or chooses from."""
    on_cpu = device_kind(target.device) == "cpu"
    curve = _curve(_weights(target.module)) if on_cpu else ACCELERATOR
    (_, last), reads = curve[-1], curve[-1][0] - 1
    token = (last - 1.0) / reads
    found = {}
    for name, member in drafter.members.items():
        step = _step(member, target, LAYER_ON_CPU if on_cpu else LAYER_ON_ACCELERATOR)
        found[name] = RoundCosts(curve, draft=step, read=step * token, prompt=token, fixed=FIXED)
    return found


def _step(drafter: Drafter, target: LanguageModel, layer: float) -> float:
    """A step of the drafter in target passes; 0 where it runs no network, 1 where the sizes are not
    known."""
    network = drafter.network if drafter.model is None else drafter.model.module
    if network is None:
        return 0.0 if drafter.model is None else 1.0
    own, whole = _work(network, layer), _work(target.module, layer)
    return own / whole / drafter.tokens_a_step if own and whole else 1.0


def _work(module: Any, layer: float) -> float:
    """What a pass over one token reads, in bytes, with what its layers cost beside; 0 for what
    shows no weights."""
    weights = _weights(module)
    blocks = getattr(getattr(module, "config", None), "num_hidden_layers", None) or 1
    return (
        sum(weight.numel() * weight.element_size() for weight in weights) + (1 + blocks) * layer
        if weights
        else 0.0
    )


def _weights(module: Any) -> list[Any]:
    """The weights that every pass reads: all but an embedding that is no output layer too, of which
    it reads a row."""
    if not hasattr(module, "parameters"):
        return []
    weights = {id(weight): weight for weight in module.parameters()}
    if hasattr(module, "get_output_embeddings"):
        output, embedding = module.get_output_embeddings(), module.get_input_embeddings()
        if output is not None and output.weight is not embedding.weight:
            weights.pop(id(embedding.weight), None)
    return list(weights.values())


def _curve(weights: Iterable[Any]) -> Curve:
    """By the bytes of the mean weight; of weights that are not shown, the middle one."""
    weights = list(weights)
    count = sum(weight.numel() for weight in weights)
    width = (
        sum(weight.numel() * weight.element_size() for weight in weights) / count if count else 2.0
    )
    return PACKED if width < 1.5 else HALF if width < 3.0 else SINGLE
