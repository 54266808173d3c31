"""What this machine and a pair of models can do, and why not more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from draftproof.errors import UsageError

ANYHOW: Mapping[str, Any] = {
    "dtype": "auto",
    "device": "auto",
    "engine": "auto",
    "trust_remote_code": False,
}
"""How models are loaded unless asked otherwise."""


def examine(
    target: str | None = None,
    draft: str | None = None,
    how: Mapping[str, Any] = ANYHOW,
    quantize: str | None = None,
    threads: int | None = None,
    tell: Callable[[str, int, int], None] = lambda what, at, total: None,
) -> dict[str, Any]:
    """Everything `draftproof doctor` finds out of this machine, and of models by name, ready for
    JSON.

    draft: a draft model or the folder of a head. how: dtype, device, engine and trust_remote_code.
    quantize: the target's weights. tell: called with what is being done. UsageError when the target
    itself cannot be used."""
    import torch

    from draftproof.models.engine import check_engine, load_engine
    from draftproof.models.load import choose_device, choose_dtype
    from draftproof.models.machine import describe, dtype_speed

    if threads is not None:
        torch.set_num_threads(threads)
    check_engine(how["engine"], quantize)
    where = choose_device(how["device"])
    choose_dtype(how["dtype"], where, torch.float32)
    document: dict[str, Any] = {
        "format": "draftproof.doctor",
        "machine": describe(),
        "device": str(where),
    }
    document["dtype_speed"] = dtype_speed(where, tell=tell)
    if target is None:
        return document
    tell(f"loading {target}", 0, 1)
    model = load_engine(target, quantization=quantize, **how)
    document["target"] = describe_model(model)
    other: Any = None
    if draft is not None:
        tell(f"loading {draft}", 0, 1)
        other, document["draft"] = _draft(draft, how)
    document.update(describe_pair(model, other, draft))
    return document


def _draft(name: str, how: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The draft model and its description, or why it cannot be loaded: then the target's part still
    stands."""
    from draftproof.models.engine import load_engine

    try:
        model = load_engine(name, **how)
    except UsageError as error:
        return error, {"name": name, "error": str(error)}
    return model, describe_model(model)


def describe_model(model: Any) -> dict[str, Any]:
    """Size, place, caches and passes of one loaded model, with the measured time of passes over one
    and five tokens."""
    from draftproof.models.packed import num_parameters, packed_layers
    from draftproof.models.steps import pass_seconds

    kinds = [str(kind) for kind in model.layer_kinds]
    rows_mix = model.rows_mix
    return {
        "name": model.name,
        "class": type(model.module).__name__,
        "engine": model.engine,
        "quantization": model.quantization,
        "rows": model.rows,
        "parameters": num_parameters(model.module),
        "dtype": str(model.dtype).removeprefix("torch."),
        "packed_layers": len(packed_layers(model.module)),
        "device": str(model.device),
        "max_length": model.max_length,
        "vocab_size": model.vocab_size,
        "layers": kinds,
        "caches": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "trees": model.supports_trees,
        "goes_on": model.continuing.value,
        "shares_passes": model.shares_passes,
        "bytes_for_1024_tokens": model.session_bytes(min(1024, model.max_length or 1024)),
        "pass_seconds": pass_seconds(model),
        "can_be_target": rows_mix is None,
        "why_not_target": rows_mix,
        "notes": [*model.notes, *([model.pass_note] if model.pass_note else [])],
    }


def describe_pair(target: Any, draft: Any, name: str | None) -> dict[str, Any]:
    """The vocabularies' match and the methods; without a draft model, the methods alone. A name
    that is no model's may be the folder of a drafter."""
    from draftproof.decode.available_methods import methods_possible
    from draftproof.decode.build import check_vocabularies

    folder = (
        name if isinstance(draft, UsageError) and name is not None and Path(name).is_dir() else None
    )
    found: dict[str, Any] = {"methods": methods_possible(target, draft, folder)}
    if draft is None or isinstance(draft, UsageError):
        return found
    try:
        check_vocabularies(target, draft)
        found["vocabularies"] = {"match": True, "why_not": None}
    except UsageError as error:
        found["vocabularies"] = {"match": False, "why_not": str(error)}
    return found
