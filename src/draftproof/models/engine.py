"""What runs a model's passes: torch, or OpenVINO on a CPU."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from draftproof.errors import UnsupportedModelError, UsageError
from draftproof.models.convert import note

ENGINES = ("auto", "torch", "openvino")

VARIABLE = "DRAFTPROOF_ENGINE"
"""The environment variable that says what "auto" is: one of ENGINES; unset: "auto"."""

_OF_TORCH = ("device_map", "trust_remote_code", "attn_implementation", "pack_weights")


def load_engine(
    name: str | Path,
    *,
    engine: str = "auto",
    quantization: str | None = None,
    dtype: Any = "auto",
    device: Any = "auto",
    **options: Any,
) -> Any:
    """A model by name, run by `engine`; other options as in `draftproof.models.load.load_model`.

    "openvino" runs on the CPU, and refuses by name what it cannot carry over. "auto" takes it on a
    CPU when the extra is installed and the model converts, torch otherwise, with a note; the
    variable DRAFTPROOF_ENGINE may say which of the two it is. quantization: "int8" or "int4" rounds
    the weights, which OpenVINO alone does. UsageError for an engine that is not known."""
    engine = check_engine(engine, quantization)
    wanted = {"engine": engine, "quantization": quantization}
    from draftproof.models.load import load_model

    reason = _why_torch(wanted, dtype, device, options)
    if engine == "openvino" and reason is not None:
        raise UsageError(f"engine 'openvino': {reason}")
    if reason is None:
        from draftproof.models.openvino.load import load_openvino

        mine = {key: value for key, value in options.items() if key not in _OF_TORCH}
        try:
            return load_openvino(name, dtype=dtype, quantization=quantization, **mine)
        except (UnsupportedModelError, RuntimeError, ImportError) as error:
            if engine == "openvino" or quantization is not None:
                raise
            note(f"torch runs {name}: {str(error).splitlines()[0]}")
    return load_model(name, dtype=dtype, device=device, **options)


def check_engine(engine: str, quantization: str | None = None) -> str:
    """The engine that is meant. UsageError for one that is not known, or that does not round
    weights; nothing is loaded."""
    if engine not in ENGINES:
        raise UsageError(f"engine {engine!r} is not known; use {', '.join(ENGINES)}")
    if engine == "auto" and quantization is None:
        engine = os.environ.get(VARIABLE) or "auto"
        if engine not in ENGINES:
            raise UsageError(f"{VARIABLE} is {engine!r}; use {', '.join(ENGINES)}")
    if quantization is not None and engine == "torch":
        raise UsageError(
            f"quantization {quantization!r} rounds weights for engine 'openvino'; engine is 'torch'"
        )
    if engine == "openvino" or quantization is not None:
        from draftproof.models.openvino.load import require_openvino

        require_openvino(quantization)
    return engine


def _why_torch(
    wanted: dict[str, Any], dtype: Any, device: Any, options: dict[str, Any]
) -> str | None:
    """Why torch has to run the model, or None where OpenVINO may."""
    from draftproof.models.load import choose_device

    if wanted["engine"] == "torch":
        return "torch was asked for"
    given = [key for key in _OF_TORCH if options.get(key) not in (None, False)]
    if given:
        return f"{given[0]} is an option of engine 'torch'"
    if choose_device(device).type != "cpu":
        return f"it runs on the CPU, and device is {device!r}"
    if wanted["engine"] == "openvino" or wanted["quantization"] is not None:
        return None
    if find_spec("openvino") is None:
        return "the extra is not installed"
    from draftproof.models.openvino.passes import lacking

    return lacking(str(dtype).removeprefix("torch.")) if dtype != "auto" else None
