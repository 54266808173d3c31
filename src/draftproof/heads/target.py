"""What a head borrows from its target: the embedding and the output layer, both frozen; and how a
target is recognised."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from draftproof.errors import UsageError
from draftproof.models.packed import is_made_of_others, sampled_weights
from draftproof.models.protocol import LanguageModel

SAMPLED_ENTRIES = 4096


@dataclass(frozen=True)
class TargetView:
    """embed: ids [...] -> [..., width]. output_weight [vocab_size, width], output_bias
    [vocab_size]: its output layer.

    num_layers: decoder layers, so that hidden states have the ids 0 (embeddings) to num_layers
    (what the output layer reads). fingerprint: of the weights, the same in every dtype; None where
    there are none to look at. config: the target's own (transformers) configuration, from which
    heads take the shape of their layer. place: where the target hands out its hidden states, None
    where its output layer is; they differ where a target is spread over devices."""

    name: str
    width: int
    vocab_size: int
    num_layers: int
    embed: Callable[[Tensor], Tensor]
    output_weight: Tensor
    output_bias: Tensor | None = None
    fingerprint: str | None = None
    config: Any = None
    tokenizer: Any = None
    place: torch.device | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Of the output layer."""
        return self.output_weight.dtype

    @property
    def device(self) -> torch.device:
        """Where a head belongs: beside the hidden states it reads."""
        return self.output_weight.device if self.place is None else self.place

    def output(self, features: Tensor) -> Tensor:
        """[..., width] -> logits [..., vocab_size] beside them; gradients go to the features
        only."""
        there = features.to(self.output_weight.device)
        return functional.linear(there, self.output_weight, self.output_bias).to(features.device)


def target_view(target: LanguageModel) -> TargetView:
    """The view of a transformers model. UsageError for a target whose weights cannot be reached."""
    module: Any = target.module
    if module is None:
        raise UsageError(
            f"{target.name} shows no weights: a head needs the target's embedding and output layer"
        )
    embedding, output = module.get_input_embeddings(), module.get_output_embeddings()
    if embedding is None or output is None:
        raise UsageError(
            f"{target.name} has no embedding or no output layer that could be shared with a head"
        )
    config = module.config.get_text_config()
    bias = getattr(output, "bias", None)

    def embed(ids: Tensor) -> Tensor:
        with torch.no_grad():
            found: Tensor = embedding(ids.to(embedding.weight.device))
        return found.to(ids.device)

    return TargetView(
        name=target.name,
        width=int(config.hidden_size),
        vocab_size=target.vocab_size,
        num_layers=int(config.num_hidden_layers),
        embed=embed,
        output_weight=dense_weight(output, config.hidden_size, module.dtype)[: target.vocab_size],
        output_bias=None if bias is None else bias.detach()[: target.vocab_size],
        fingerprint=fingerprint(module),
        config=config,
        tokenizer=target.tokenizer,
        place=target.output_device,
    )


def dense_weight(layer: Any, width: int, dtype: torch.dtype) -> Tensor:
    """The weight [rows, width] of a linear layer; of a quantised one, what it makes of the unit
    vectors."""
    weight: Tensor = layer.weight.detach()
    if (
        weight.is_floating_point()
        and weight.shape[1:] == (width,)
        and not is_made_of_others(weight)
    ):
        return weight
    with torch.no_grad():
        columns: Tensor = layer(torch.eye(width, dtype=dtype, device=weight.device))
        bias = getattr(layer, "bias", None)
        return (columns if bias is None else columns - bias).T.contiguous()


def fingerprint(module: Any) -> str:
    """SHA-256 over entries of every weight matrix, rounded to bfloat16: equal for one checkpoint in
    any dtype."""
    digest = hashlib.sha256()
    for name, weight, sample in sampled_weights(module, SAMPLED_ENTRIES):
        if weight.is_floating_point() and weight.ndim >= 2:
            rounded = sample.to(torch.bfloat16)
            digest.update(
                f"{name} {tuple(weight.shape)}".encode()
                + rounded.view(torch.int16).numpy().tobytes()
            )
    return digest.hexdigest()
