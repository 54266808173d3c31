"""What a figure depends on besides the code: versions, machine, threads, dtype, seed."""

from __future__ import annotations

import os
import platform
from typing import Any

from draftproof import __version__


def provenance(target: Any, *, seed: int | None = None) -> dict[str, Any]:
    """The surroundings of a run of `target` (a LanguageModel), ready for JSON."""
    import numpy
    import torch
    import transformers

    return {
        "draftproof": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "target": target.name,
        "device": str(getattr(target, "device", "cpu")),
        "dtype": str(getattr(target, "dtype", None)).removeprefix("torch."),
        "seed": seed,
    }


def _processor() -> str:
    """The processor's model name where the system tells it, else its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
