"""A graph compiled for this machine, and one pass through it over sequences side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from draftproof.models.openvino.apart import keep_apart
from draftproof.models.openvino.graph import Attention
from draftproof.models.openvino.paged import keep_outputs, put_attention

FEWEST = (2, 5, 9)
"""Least tokens of a pass, in the order in which they are tried: OpenVINO multiplies rounded weights
by one kernel for a few rows and by another for more, where that pays on the machine at hand."""

HINTS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_CAPABILITIES = {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}


@dataclass(frozen=True)
class Line:
    """One sequence of a pass: its tokens and their positions, the tokens its pages hold already,
    and its pages."""

    tokens: Sequence[int]
    positions: Sequence[int]
    past: int
    pages: Sequence[int]


class Passes:
    """graph: the file of a kept conversion, or an `openvino.Model`. dtype: what it computes in and
    keeps its cache in. least: the least tokens of a pass, and rows of its logits; one of FEWEST.

    Hidden states are compiled in when they are first asked for: every output keeps the compiler
    from joining operations."""

    def __init__(self, graph: Path | Any, layers: Sequence[Attention], dtype: str) -> None:
        import openvino

        self._graph, self._layers, self._dtype = graph, layers, dtype
        self._core = openvino.Core()
        self._hidden: tuple[int, ...] = ()
        self._arrays: dict[str, Any] = {}
        self._held: dict[str, Any] = {}
        self.least = FEWEST[0]
        self._compile()

    def move_to(self, arrays: dict[str, Any]) -> None:
        """The caches lie in these arrays from now on; no entry is copied."""
        import openvino

        self._arrays = arrays
        kind = getattr(openvino.Type, HINTS[self._dtype])
        for name, array in arrays.items():
            self._request.set_tensor(
                name, openvino.Tensor(array, openvino.Shape(array.shape), kind)
            )

    def read(
        self, lines: Sequence[Line], rows: Sequence[int], hidden: Sequence[int]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """(logits [len(rows), vocabulary], hidden states [tokens, width] by layer) of all tokens of
        the pass in their order.

        Every line has at least two tokens: the operation reads a single one by another kernel, with
        other rounding. So does it read less than `least` of them together."""
        missing = set(hidden) - set(self._hidden)
        if missing:
            self._hidden = tuple(sorted({*self._hidden, *missing}))
            self._compile()
            self.move_to(self._arrays)
        self._feed(_inputs(lines, rows, self.least))
        self._request.infer(share_outputs=True)  # else every output is copied
        outputs = [output.data for output in self._request.output_tensors]
        logits = torch.from_numpy(np.array(outputs[0][: len(rows)], np.float32))
        states = {
            layer: torch.from_numpy(np.array(found, np.float32))
            for layer, found in zip(self._hidden, outputs[1:], strict=True)
            if layer in hidden
        }
        return logits, states

    def _feed(self, inputs: dict[str, Any]) -> None:
        """Write the inputs where those of the last pass lie; only other shapes are handed over."""
        import openvino

        for name, array in inputs.items():
            held = self._held.get(name)
            if held is not None and held.shape == array.shape:
                held[...] = array
                continue
            self._held[name] = array
            self._request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def _compile(self) -> None:
        import openvino

        graph = (
            self._core.read_model(self._graph)
            if isinstance(self._graph, Path)
            else self._graph.clone()
        )
        keep_outputs(graph, ["logits", *(f"hidden.{layer}" for layer in self._hidden)])
        hint = HINTS[self._dtype]
        put_attention(graph, self._layers, getattr(openvino.Type, hint))
        threads = min(torch.get_num_threads(), usable_cpus())
        constants = keep_apart(graph) if threads == 1 and hint == "bf16" else {}
        options: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": hint,
            "KV_CACHE_PRECISION": hint,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": threads,
            "ENABLE_CPU_PINNING": False,  # several processes would be pinned to the same cores
        }
        self._request = self._core.compile_model(graph, "CPU", options).create_infer_request()
        self._held = {}
        self._feed(constants)


def _inputs(lines: Sequence[Line], rows: Sequence[int], least: int) -> dict[str, Any]:
    counts, pages = [len(line.tokens) for line in lines], [len(line.pages) for line in lines]
    return {
        "ids": np.array([[token for line in lines for token in line.tokens]], np.int64),
        "positions": np.array([[place for line in lines for place in line.positions]], np.int64),
        # a few rows alone take another kernel
        "rows": np.array([*rows, *[0] * (least - len(rows))], np.int64),
        "past_lens": np.array([line.past for line in lines], np.int32),
        "begins": np.cumsum([0, *counts]).astype(np.int32),
        "pages": np.array([page for line in lines for page in line.pages], np.int32),
        "page_begins": np.cumsum([0, *pages]).astype(np.int32),
        "longest": np.array(max(line.past + len(line.tokens) for line in lines), np.int32),
    }


def usable_cpus() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def lacking(dtype: str) -> str | None:
    """Why OpenVINO cannot compute in `dtype` on this machine, None when it can."""
    import openvino

    if dtype not in HINTS:
        return f"OpenVINO computes in {', '.join(HINTS)}, not in {dtype}"
    able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if _CAPABILITIES[dtype] in able:
        return None
    return (
        f"OpenVINO does not compute in {dtype} on this CPU; use "
        f"{' or '.join(n for n, c in _CAPABILITIES.items() if c in able)}"
    )
