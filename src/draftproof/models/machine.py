"""What this machine is and how fast it multiplies: versions, processor, threads, devices, and one
measured product a dtype."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from time import perf_counter
from typing import Any

import torch

from draftproof.models.load import has_native_bfloat16
from draftproof.models.steps import wait_for

PACKAGES = (
    "draftproof",
    "torch",
    "transformers",
    "numpy",
    "accelerate",
    "peft",
    "gguf",
    "safetensors",
    "tokenizers",
    "openvino",
    "nncf",
)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDTH = 2048
"""Rows and columns of the weight matrix that is multiplied: as much memory as a layer of a small
model reads."""
ROWS = (1, 8)
"""Tokens of the passes that are compared: a plain step, and a verification of seven drafts."""

Tell = Callable[[str, int, int], None]


def describe() -> dict[str, Any]:
    """Versions (None for an absent package), processor, threads and devices, ready for JSON."""
    return {
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": _memory(),
        "devices": _devices(),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's model name where the system tells it, else its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(
                line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory() -> int | None:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _devices() -> list[dict[str, Any]]:
    """The CPU and every GPU torch sees, with its memory and whether bf16 products run in
    hardware."""
    found: list[dict[str, Any]] = [
        {"name": "cpu", "native_bfloat16": has_native_bfloat16(torch.device("cpu"))}
    ]
    for number in range(torch.cuda.device_count()):
        device = torch.device("cuda", number)
        properties = torch.cuda.get_device_properties(device)
        found.append(
            {
                "name": f"cuda:{number}",
                "model": properties.name,
                "memory_bytes": properties.total_memory,
                "native_bfloat16": has_native_bfloat16(device),
            }
        )
    return found


def dtype_speed(
    device: torch.device,
    *,
    seconds: float = 0.3,
    tell: Tell | None = None,
    clock: Callable[[], float] = perf_counter,
) -> list[dict[str, Any]]:
    """For each dtype the median time of a product [n, WIDTH] x [WIDTH, WIDTH], for n of ROWS, in
    turns so that all share the machine's moods: about `seconds` a dtype. A dtype this device cannot
    multiply has its error instead."""
    work = [(dtype, rows) for dtype in DTYPES for rows in ROWS]
    times: dict[tuple[torch.dtype, int], list[float]] = {key: [] for key in work}
    errors: dict[torch.dtype, str] = {}
    weights = {dtype: torch.ones(WIDTH, WIDTH, dtype=dtype, device=device) for dtype in DTYPES}
    end, turn = clock() + seconds * len(DTYPES), 0
    while turn < 3 or clock() < end:
        for number, (dtype, rows) in enumerate(work):
            if dtype in errors:
                continue
            if tell is not None:
                tell(f"multiplying in {str(dtype).removeprefix('torch.')}", number, len(work))
            try:
                times[dtype, rows].append(_product(weights[dtype], rows, clock))
            except RuntimeError as error:
                errors[dtype] = str(error).splitlines()[0]
        turn += 1
    return [_row(dtype, times, errors) for dtype in DTYPES]


def _product(weight: torch.Tensor, rows: int, clock: Callable[[], float]) -> float:
    given = weight[:rows]
    wait_for(weight.device)
    begin = clock()
    torch.mm(given, weight)
    wait_for(weight.device)
    return clock() - begin


Times = dict[tuple[torch.dtype, int], list[float]]


def _row(dtype: torch.dtype, times: Times, errors: dict[torch.dtype, str]) -> dict[str, Any]:
    """The first product of each is left out: it pays for what later ones find ready."""
    row: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch."), "error": errors.get(dtype)}
    for rows in ROWS:
        row[f"seconds_{rows}"] = median(times[dtype, rows][1:]) if dtype not in errors else None
    return row
