"""Linear layers with their weights packed for oneDNN: a CPU then reads several tokens in little
more than the time of one.

torch multiplies up to three rows by a plain float32 matrix about as fast as one, and takes twice as
long from the fourth row on. With weights packed once, when the model is loaded, a pass of 5 to 8
tokens over Qwen2.5 1.5B costs 1.24 to 1.37 single steps instead of 2.1 to 2.9, and a single step no
more than before (benchmarks/record.md, 2026-11-30).
Plain decoding, drafting and verifying all use the same packed layers. (oneDNN documentation,
"Memory format propagation".)"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from draftproof.errors import UsageError

SMALLEST = 2**22
"""Entries of the smallest weight that is packed. Below, a call costs more than packing saves at one
to three rows."""

ROWS_IN_MIND = 4
"""The number of rows oneDNN is told to lay weights out for; others are as right, and 1 to 32 were
measured with this one."""


class PackedLinear(nn.Linear):
    """`nn.Linear` in inference, weights packed. `weight` unpacks a dense copy, unless another
    module holds the dense one.

    Gradients with respect to the input go through the unpacked weight; the weight itself takes
    none."""

    def __init__(self, linear: nn.Linear, shared: bool) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self.training = linear.training
        dense = linear.weight.detach()
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(dense, ROWS_IN_MIND)
        self._dense = dense if shared else None

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """[out_features, in_features]"""
        return self._packed.to_dense() if self._dense is None else self._dense

    @property
    def shared(self) -> bool:
        """Whether another module holds the dense weight too, as a tied embedding does."""
        return self._dense is not None

    def unpacked(self) -> nn.Linear:
        """A plain layer with a copy of the weight."""
        plain = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        plain.weight, plain.bias = nn.Parameter(self.weight.clone()), self.bias
        return plain.train(self.training)

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_grad_enabled() and input.requires_grad:
            return functional.linear(input, self.weight, self.bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            input, self._packed, self.bias, "none", [], ""
        )
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedLinear:
        """A copy of its own whose packed weight, which nothing ever changes, is the same."""
        made = PackedLinear.__new__(PackedLinear)
        nn.Module.__init__(made)
        made.__dict__.update(
            {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        )
        made.bias = self.bias
        made._packed, made._dense = self._packed, self._dense
        memo[id(self)] = made
        return made

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.weight

    def _apply(self, fn: Any, recurse: bool = True) -> PackedLinear:
        before = self._packed.new_empty(0, layout=torch.strided)
        after = fn(before)
        if (after.dtype, after.device) != (before.dtype, before.device):
            raise UsageError(
                "packed weights stay float32 on the CPU; load the model with "
                "pack_weights=False to move it"
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def why_not_packed(dtype: torch.dtype, device: torch.device) -> str | None:
    """Why linear layers cannot be packed for this dtype and device here; None when they can."""
    if device.type != "cpu" or dtype != torch.float32:
        return (
            "weights are packed in float32 on a CPU, not in "
            f"{str(dtype).removeprefix('torch.')} on {device.type}"
        )
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():
        return (
            "weights are packed by oneDNN on x86 processors, which this torch or this "
            "machine does not offer"
        )
    if not all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    ):
        return f"torch {torch.__version__} has no packed linear layer"
    return None


def pack_linears(module: Any, smallest: int = SMALLEST) -> int:
    """Replace every plain float32 linear layer of `module` with at least `smallest` weights; how
    many were replaced."""
    uses = Counter(id(weight) for _, weight in module.named_parameters(remove_duplicate=False))

    def packed(part: Any) -> nn.Module | None:
        if (
            type(part) is not nn.Linear
            or part.weight.numel() < smallest
            or part.weight.dtype != torch.float32
        ):
            return None
        return PackedLinear(part, shared=uses[id(part.weight)] > 1)

    return _replace(module, packed)


def unpack_linears(module: Any) -> Any:
    """`module` with plain linear layers again, their weights copies, to be trained. A tied output
    layer is tied again."""
    tied = any(layer.shared for layer in packed_layers(module))
    _replace(module, lambda part: part.unpacked() if isinstance(part, PackedLinear) else None)
    if tied:
        module.tie_weights()
    return module


def _replace(module: Any, other: Callable[[Any], nn.Module | None]) -> int:
    """Put `other(part)` in the place, or places, of every part for which it gives one; how many
    parts that were."""
    made: dict[nn.Module, nn.Module | None] = {}
    for name, part in list(module.named_modules(remove_duplicate=False)):
        if part not in made:
            made[part] = other(part)
        replacement = made[part]
        if replacement is not None:
            parent, _, place = name.rpartition(".")
            setattr(module.get_submodule(parent), place, replacement)
    return sum(replacement is not None for replacement in made.values())


def packed_layers(module: Any) -> list[PackedLinear]:
    """The packed linear layers of `module`, each once."""
    return [part for part in module.modules() if isinstance(part, PackedLinear)]


def num_parameters(module: Any) -> int:
    """How many weights `module` has, packed ones included, shared ones counted once."""
    hidden = sum(
        layer.in_features * layer.out_features
        for layer in packed_layers(module)
        if not layer.shared
    )
    return hidden + sum(int(weight.numel()) for weight in module.parameters())


def sampled_weights(module: Any, entries: int) -> list[tuple[str, Tensor, Tensor]]:
    """(name, tensor of its shape and dtype without data, at most `entries` evenly spaced entries on
    the CPU), by name.

    What `state_dict` names, packed weights unpacked one at a time, quantised ones by the tensors
    they are made of."""
    found = []
    for prefix, part in module.named_modules(remove_duplicate=False):
        own: dict[str, Any] = {}
        part._save_to_state_dict(own, f"{prefix}." if prefix else "", keep_vars=False)
        for name, tensor in own.items():
            if isinstance(tensor, Tensor):
                for whole, plain in plain_tensors(name, tensor.detach()):
                    flat = plain.flatten()
                    sample = flat[:: max(1, flat.numel() // entries)][:entries].cpu().clone()
                    found.append((whole, plain.to("meta"), sample))
    return sorted(found, key=lambda each: each[0])


def is_made_of_others(tensor: Tensor) -> bool:
    """Whether `tensor` is of a tensor class that wraps others, as those of quantisation
    libraries."""
    return bool(is_traceable_wrapper_subclass(tensor))


def plain_tensors(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """`tensor`, or by name the plain ones that a tensor class of a quantisation library is made
    of."""
    if not is_made_of_others(tensor):
        yield name, tensor
        return
    inner: Any = tensor
    for part in inner.__tensor_flatten__()[0]:
        yield from plain_tensors(f"{name}.{part}", getattr(tensor, part))
