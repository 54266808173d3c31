"""What a figure depends on besides the code: versions, machine, threads, dtype, seed."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftproof import __version__
from draftproof.drafters.protocol import Drafter
from draftproof.models.protocol import LanguageModel
from draftproof.models.steps import device_kind


def provenance(target: LanguageModel, *, seed: int | None = None) -> dict[str, Any]:
    """The surroundings of a run of `target`, ready for JSON."""
    import numpy
    import torch
    import transformers

    from draftproof.models.packed import packed_layers

    module = target.module if target.engine == "torch" else None
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
        "device": "cpu" if target.device is None else str(target.device),
        "dtype": str(target.dtype).removeprefix("torch."),
        "packed_layers": 0 if module is None else len(packed_layers(module)),
        "engine": target.engine,
        "quantization": target.quantization,
        "rows": target.rows,
        "seed": seed,
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _commit(),
        "gpu": _gpu(target),
    }


def model_hash(model: LanguageModel) -> str | None:
    """SHA-256 over name, shape, dtype and a sample of every weight of an HFModel; None for other
    models.

    1,024 evenly spaced entries a tensor tell checkpoints and quantisations apart in seconds,
    without reading gigabytes."""
    return None if model.module is None else _weights_hash(model.module)


def model_hashes(
    target: LanguageModel, drafts: Mapping[str, LanguageModel], drafters: Mapping[str, Drafter]
) -> dict[str, str | None]:
    """The hashes of a run's weights, by role. drafts: name -> draft model. drafters: name ->
    drafter, for the head it works with; those of several side by side have their own names behind
    it."""
    found = {"target": model_hash(target)} | {
        name: model_hash(model) for name, model in drafts.items()
    }
    for name, drafter in drafters.items():
        several = len(drafter.members) > 1
        for own, member in drafter.members.items():
            if member.network is not None:
                found[f"{name} {own}" if several else name] = _weights_hash(member.network)
    return found


def _weights_hash(module: Any) -> str:
    from draftproof.models.packed import sampled_weights

    digest = hashlib.sha256(json.dumps(str(type(module).__name__)).encode())
    for name, weight, sample in sampled_weights(module, 1024):
        digest.update(
            f"{name} {tuple(weight.shape)} {weight.dtype}".encode()
            + sample.float().numpy().tobytes()
        )
    return digest.hexdigest()


def _commit() -> str | None:
    """The commit this package runs from, with "+" when files differ from it; None outside a
    repository."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        return commit + (
            "+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _gpu(target: LanguageModel) -> str | None:
    if device_kind(target.device) != "cuda":
        return None
    import torch

    return str(torch.cuda.get_device_name(target.device))


def _processor() -> str:
    """The processor's model name where the system tells it, else its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(
                line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
