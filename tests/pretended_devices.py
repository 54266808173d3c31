"""Devices that this machine does not have: tensors with real numbers that claim to lie elsewhere,
and refuse to be mixed.

An operation on tensors of different devices raises, as it does between a GPU and the host: what
reads from a wrong device or forgets to move fails. Kernels, streams and speed are not pretended.
Their names are of Apple's kind, `mps:1` and `mps:2`, because torch asks for no driver before it
makes such tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

HOST = torch.device("cpu")
FIRST, SECOND = torch.device("mps", 1), torch.device("mps", 2)
MOVES = ("aten::_to_copy", "aten::copy")
INDEXED = ("aten::index", "aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index")
"""Operations whose indices may lie on the host whatever the device of what they index."""


class Placed(torch.Tensor):
    """`inner`, said to lie on `place`."""

    inner: torch.Tensor
    place: torch.device
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor, place: torch.device) -> Placed:
        # what torch itself is told: it has drivers for these
        label = torch.device("cpu", place.index)
        strides, offset = inner.stride(), inner.storage_offset()
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=strides,
            storage_offset=offset,
            dtype=inner.dtype,
            device=label,
        )
        made.inner, made.place = inner, place
        return made

    @property
    def device(self) -> torch.device:
        return self.place

    def tolist(self) -> Any:
        return self.inner.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"a tensor on {self.place} has no NumPy view")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Everywhere(TorchDispatchMode):
    """So that tensors are made on pretended devices too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def where(tensor: torch.Tensor) -> torch.device:
    return tensor.place if isinstance(tensor, Placed) else HOST


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name, asked = func._schema.name.rstrip("_"), kwargs.get("device")
    if asked is not None and asked.index:
        asked = torch.device("mps", asked.index)
    counted = (args[0], tree_leaves(args[1])) if name in INDEXED else (args, kwargs)
    free = HOST if name in INDEXED else None
    tensors = [leaf for leaf in tree_leaves(counted) if isinstance(leaf, torch.Tensor)]
    places = {where(tensor) for tensor in tensors if tensor.dim() > 0 or where(tensor) != HOST} - {
        free
    }
    if len(places) > 1 and name not in MOVES:
        raise RuntimeError(f"{name}: tensors on {', '.join(sorted(map(str, places)))}")
    if asked is not None:
        kwargs = {**kwargs, "device": HOST}
    given, options = tree_map(
        lambda leaf: leaf.inner if isinstance(leaf, Placed) else leaf, (args, kwargs)
    )
    result = func(*given, **options)
    # `__lshift__` and its like give a new one
    if func._schema.name.endswith("_") and not func._schema.name.endswith("__"):
        return tensors[0]  # written to in place
    place = asked or (where(tensors[0]) if name in MOVES else next(iter(places), HOST))
    return result if place == HOST else tree_map(lambda leaf: _placed(leaf, place), result)


def _placed(leaf: Any, place: torch.device) -> Any:
    return (
        Placed(leaf, place)
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, Placed)
        else leaf
    )


def _made_on_the_host(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """torch.tensor and torch.asarray write to the device they make a tensor on; here the tensor is
    moved there."""

    def made(
        data: Any, *, dtype: torch.dtype | None = None, device: Any = None, **options: Any
    ) -> torch.Tensor:
        if isinstance(data, Placed):
            return data.to(dtype or data.dtype).to(device or data.device)
        found = make(data, dtype=dtype, **options)
        return found if device is None else found.to(device)

    return made


@contextmanager
def pretended() -> Iterator[None]:
    """Within, FIRST and SECOND can be used. Without inference mode, which wrapped tensors cannot
    leave."""
    made = {"tensor": _made_on_the_host(torch.tensor), "asarray": _made_on_the_host(torch.asarray)}
    plain = {"__enter__": lambda self: None, "__exit__": lambda self, *_: None}
    with (
        mock.patch.multiple(torch, **made),
        mock.patch.multiple(torch.inference_mode, **plain),
        torch.no_grad(),
        _Everywhere(),
    ):
        yield


def place(module: Any, device_of: Callable[[str], torch.device]) -> Any:
    """Put the weights and buffers of every part of `module` on the device that `device_of` gives
    for its name."""
    for name, part in module.named_modules():
        for held in (part._parameters, part._buffers):
            for key, tensor in list(held.items()):
                if tensor is not None:
                    moved: Any = Placed(tensor.detach(), device_of(name))
                    held[key] = (
                        torch.nn.Parameter(moved, requires_grad=False)
                        if held is part._parameters
                        else moved
                    )
    return module
