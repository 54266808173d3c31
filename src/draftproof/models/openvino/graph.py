"""From a transformers module to an OpenVINO graph without a cache, with a joint in every layer
where attention will be put.

The graph reads `ids` [1, n], `positions` [1, n] and `rows` [m], all int64, and gives `logits` [m,
vocabulary] and `hidden.0` (the embeddings) to `hidden.L` [n, width]. A joint is named "attention.3"
and joins what layer 3 hands to its attention: queries, keys and values [n, heads * width], after
rotation. It is made of plain operations, so that the graph can be written to a file and its weights
compressed; `paged.py` puts the attention over a paged cache in its place. Nothing but attention
looks at more than one token, which is why one flat list of tokens may belong to any number of
sequences.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from draftproof.errors import UnsupportedModelError
from draftproof.models.caches.kinds import LayerKind

IMPLEMENTATION = "draftproof_openvino"
INPUTS = ("ids", "positions", "rows")
_HARMLESS_OPTIONS = {
    "dropout",
    "is_causal",
    "sliding_window",
    "position_ids",
    "use_cache",
    "output_hidden_states",
}
"""Of an attention call: those that are said in other ways here, or change nothing."""


@dataclass(frozen=True)
class Attention:
    """What one layer's attention is: heads and widths of its keys and values, its scale, and the
    tokens it sees (0: all)."""

    heads: int
    key_width: int
    value_width: int
    scale: float
    window: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class _Joint(torch.nn.Module):
    """Stands for a layer's attention while the module is traced. It gives the queries, which have
    the shape of the answer where keys and values are equally wide."""

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        heads = queries.shape[1]
        flat = (part.transpose(1, 2).flatten(2)[0] for part in (queries, keys, values))
        joined: torch.Tensor = self.join(*flat)
        return joined.reshape(1, -1, heads, values.shape[-1])

    def __init__(self) -> None:
        super().__init__()
        self.join = _Placeholder()


class _Placeholder(torch.nn.Module):
    """Replaced by an operation of the graph when the trace is converted."""

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        return queries.clone()


_trace: ContextVar[_Traced | None] = ContextVar("trace", default=None)


class _Traced(torch.nn.Module):
    """The module as a function of ids, positions and rows."""

    def __init__(self, module: Any, kinds: Sequence[LayerKind]) -> None:
        super().__init__()
        self.module = module
        self.joints = torch.nn.ModuleList([_Joint() for _ in kinds])
        self.kinds = kinds
        self.found: dict[int, Attention] = {}

    def forward(
        self, ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        mask: Any = torch.zeros(1, 1, 1, 1)
        if len({kind.attention for kind in self.kinds}) > 1:
            mask = {kind.layer_type: mask for kind in self.kinds}
        token = _trace.set(self)
        try:
            found = self.module(
                input_ids=ids,
                position_ids=positions,
                attention_mask=mask,
                use_cache=False,
                logits_to_keep=rows,
                output_hidden_states=True,
            )
        finally:
            _trace.reset(token)
        return found.logits[0], *(states[0] for states in found.hidden_states)


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls in every layer of the module that is traced."""
    traced = _trace.get()
    layer: Any = getattr(module, "layer_idx", None)
    other = sorted(
        name
        for name, given in options.items()
        if given is not None and name not in _HARMLESS_OPTIONS
    )
    if traced is None or layer is None or other:
        raise UnsupportedModelError(
            f"{type(module).__name__} attends in a way of its own "
            f"({', '.join(other) or 'no layer index'})"
        )
    if query.shape[-1] != value.shape[-1]:
        raise UnsupportedModelError(
            f"{type(module).__name__} has values of another width than its keys"
        )
    scale = float(scaling) if scaling is not None else key.shape[-1] ** -0.5
    traced.found[layer] = Attention(
        int(key.shape[1]),
        int(key.shape[-1]),
        int(value.shape[-1]),
        scale,
        traced.kinds[layer].window or 0,
    )
    return traced.joints[layer](query, key, value), None


def trace(module: Any, kinds: Sequence[LayerKind]) -> tuple[Any, list[Attention]]:
    """(the graph as an `openvino.Model`, every layer's attention) of a float32 module on the CPU.

    UnsupportedModelError when it cannot be traced, with what stood in the way."""
    import openvino
    from openvino.frontend.pytorch import ConversionExtension, ModuleExtension

    traced = _Traced(module, kinds)
    extensions: list[Any] = []
    for layer, joint in enumerate(traced.joints):
        operation = f"draftproof.attention.{layer}"
        extensions += [
            ModuleExtension(joint.join, operation),
            ConversionExtension(operation, _joint_of(layer)),
        ]
    example = (torch.tensor([[1, 2, 0]]), torch.arange(3)[None], torch.tensor([1, 2]))
    configs = {
        id(part.config): part.config for part in module.modules() if hasattr(part, "config")
    }.values()
    before = [config._attn_implementation_internal for config in configs]
    try:
        for config in configs:
            config._attn_implementation_internal = IMPLEMENTATION
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            graph = openvino.convert_model(traced, example_input=example, extension=extensions)
    except Exception as error:
        raise UnsupportedModelError(
            f"{type(module).__name__} cannot be converted: {_reason(error)}"
        ) from error
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation_internal = implementation
    if sorted(traced.found) != list(range(len(kinds))):
        missing = next(layer for layer in range(len(kinds)) if layer not in traced.found)
        raise UnsupportedModelError(
            f"layer {missing} of {type(module).__name__} attends by code of its own"
        )
    _name(graph, len(kinds))
    return graph, [traced.found[layer] for layer in range(len(kinds))]


def _joint_of(layer: int) -> Callable[[Any], list[Any]]:
    """What makes the graph's joint of a layer: all three laid side by side, of which the queries'
    part is handed on."""

    def convert(context: Any) -> list[Any]:
        from openvino import opset13

        queries, keys, values = (context.get_input(number) for number in range(3))
        joint = opset13.concat([queries, keys, values], 1)
        joint.set_friendly_name(f"attention.{layer}")
        one = np.array([1], np.int64)
        width = opset13.gather(
            opset13.shape_of(queries), opset13.constant(one), opset13.constant(np.int64(0))
        )
        return [opset13.slice(joint, np.array([0], np.int64), width, one, one).output(0)]

    return convert


def _name(graph: Any, num_layers: int) -> None:
    """Give inputs and outputs the names above, and inputs their shapes."""
    import openvino

    for given, name in zip(graph.inputs, INPUTS, strict=True):
        given.get_tensor().set_names({name})
        given.get_node().set_partial_shape(
            openvino.PartialShape([-1] if name == "rows" else [1, -1])
        )
    for output, name in zip(
        graph.outputs, ["logits", *(f"hidden.{i}" for i in range(num_layers + 1))], strict=True
    ):
        output.get_tensor().set_names({name})
    graph.validate_nodes_and_infer_types()


def _reason(error: Exception) -> str:
    """The refusal that lies under what the converter made of it, or the converter's own words in
    one line."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnsupportedModelError):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:300] or type(error).__name__


AttentionInterface.register(IMPLEMENTATION, _attention)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
