"""A cheaper model made of a target's own layers, as a draft model: the first ones only, or all but
some sublayers.

Weights are shared, nothing is copied: the slice is the target's module with another list of layers.
It keeps a cache of its own, so it reads the prompt too; the target's session belongs to the round
and is not lent. It is run by torch, whatever runs the target.
(LayerSkip 2404.16710 drafts with the first layers, SWIFT 2410.06916 skips sublayers; only weights
trained for it draft well.)"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from draftproof.errors import UnsupportedModelError, UsageError
from draftproof.models.hf import HFModel
from draftproof.models.protocol import LanguageModel

PER_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
"""Entries of a config that list something for every layer."""

ATTENTION, MLP = ("self_attn", "attn", "attention", "self_attention"), ("mlp", "feed_forward")
"""What families call the two sublayers of a layer."""


def early_exit(target: Any, num_layers: int) -> HFModel:
    """The first `num_layers` layers of `target`, then its final norm and output layer.

    UsageError when there are not so many, or all; UnsupportedModelError when the layers cannot be
    found."""
    total = _module(target).config.num_hidden_layers
    if not 1 <= num_layers < total:
        raise UsageError(
            f"early_exit_layers is {num_layers}; {target.name} has {total} layers, so 1 "
            f"to {total - 1} can draft"
        )
    return _sliced(target, range(num_layers), (), (), f"{target.name}, first {num_layers} layers")


def skipping(
    target: Any, layers: Sequence[int] = (), attention: Sequence[int] = (), mlp: Sequence[int] = ()
) -> HFModel:
    """`target` without these layers, and without the attention or the MLP of these others, all
    numbered from 0.

    UsageError for a number it does not have, and when nothing would be skipped or no layer left."""
    total = _module(target).config.num_hidden_layers
    for key, numbers in (
        ("skip_layers", layers),
        ("skip_attention_layers", attention),
        ("skip_mlp_layers", mlp),
    ):
        wrong = [number for number in numbers if not 0 <= number < total]
        if wrong:
            raise UsageError(
                f"{key} names layer {wrong[0]}; {target.name} has {total} layers, 0 to {total - 1}"
            )
    kept = [number for number in range(total) if number not in set(layers)]
    if not kept or not (layers or attention or mlp):
        raise UsageError(
            f"layer_skip skips some of the {total} layers of {target.name}, not "
            f"{'all' if layers else 'none'}"
        )
    return _sliced(
        target, kept, attention, mlp, f"{target.name} without {total - len(kept)} layers"
    )


def _module(target: Any) -> Any:
    if target.module is None:
        raise UsageError(
            f"drafting with a target's own layers needs a transformers model; {target.name} is none"
        )
    return target.module


def _sliced(
    target: LanguageModel,
    kept: Sequence[int],
    attention: Iterable[int],
    mlp: Iterable[int],
    name: str,
) -> HFModel:
    module = target.module
    base = module.base_model
    where = _name_of_layers(module, base)
    layers = getattr(base, where)
    slim = _shallow(module)
    slim.config = _config_of(module.config, kept)
    slim_base = slim if base is module else _shallow(base)
    slim_base.config = slim.config
    made = [
        _layer(layers[old], new, old in set(attention), old in set(mlp))
        for new, old in enumerate(kept)
    ]
    setattr(slim_base, where, nn.ModuleList(made))
    if base is not module:
        setattr(slim, module.base_model_prefix, slim_base)
    model = HFModel(slim, target.tokenizer, name=name, max_length=target.max_length)
    if isinstance(target, HFModel):
        model.take_turns_with(target)
    return model


def _name_of_layers(module: Any, base: Any) -> str:
    """The attribute of `base` that holds the layers; UnsupportedModelError when it is not plain
    which."""
    total = module.config.num_hidden_layers
    found: list[str] = [
        name
        for name, child in base.named_children()
        if isinstance(child, nn.ModuleList) and len(child) == total
    ]
    if len(found) != 1:
        raise UnsupportedModelError(
            f"the layers of {type(module).__name__} cannot be found, so no slice of it can draft"
        )
    if getattr(module.config, "scale_attn_by_inverse_layer_idx", False):
        raise UnsupportedModelError(
            f"{type(module).__name__} scales attention by the number of the layer: no "
            "slice can draft"
        )
    return found[0]


def _config_of(config: Any, kept: Sequence[int]) -> Any:
    slim = copy.deepcopy(config)
    for name in PER_LAYER:
        entries = getattr(config, name, None)
        if entries:
            setattr(slim, name, [entries[number] for number in kept])
    slim.num_hidden_layers = len(kept)
    return slim


def _layer(layer: Any, number: int, without_attention: bool, without_mlp: bool) -> Any:
    """`layer` as number `number`: itself where nothing differs, else a copy that shares its
    weights."""
    renumbered = any(getattr(part, "layer_idx", number) != number for part in layer.modules())
    if not (renumbered or without_attention or without_mlp):
        return layer
    slim = _shallow(layer)
    if without_attention:
        setattr(slim, _sublayer(layer, ATTENTION), NoAttention())
    if without_mlp:
        setattr(slim, _sublayer(layer, MLP), NoOutput())
    for name, child in list(slim.named_children()):
        if hasattr(child, "layer_idx"):
            child = _shallow(child)
            child.layer_idx = number
            setattr(slim, name, child)
    if hasattr(slim, "layer_idx"):
        slim.layer_idx = number
    if any(getattr(part, "layer_idx", number) != number for part in slim.modules()):
        raise UnsupportedModelError(
            f"{type(layer).__name__} keeps its number deeper than in a sublayer, so it cannot move"
        )
    return slim


def _sublayer(layer: Any, names: Sequence[str]) -> str:
    found = [name for name in names if isinstance(getattr(layer, name, None), nn.Module)]
    if len(found) != 1:
        raise UnsupportedModelError(
            f"{type(layer).__name__} has no sublayer {' or '.join(names)} that could be skipped"
        )
    return found[0]


def _shallow(module: Any) -> Any:
    """The same module with children of its own choice. A forward set on the instance would run the
    original: it is dropped."""
    new = copy.copy(module)
    new._modules = dict(module._modules)
    vars(new).pop("forward", None)
    return new


class NoOutput(nn.Module):
    """Adds nothing to the residual."""

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return torch.zeros_like(hidden_states)


class NoAttention(NoOutput):
    """The same, with the second value that attention returns."""

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return torch.zeros_like(hidden_states), None
