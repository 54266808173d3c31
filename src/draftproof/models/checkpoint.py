"""What lies in a checkpoint beside the language model: drafters and extra layers, named instead of
silently left out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from draftproof.errors import UnsupportedModelError

EXTRA_LAYERS = (
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "mtp_num_hidden_layers",
    "mtp_num_layers",
)
"""Config keys that count multi-token-prediction layers."""

TENSORS = {
    "multi-token-prediction layers": ("mtp.", ".mtp.", "mtp_block", "nextn", ".eh_proj."),
    "Medusa heads": ("medusa_head", "medusa."),
    "an EAGLE drafter": ("eagle.", "eagle_layers", "draft_model."),
    "early-exit heads": ("exit_head", "early_exit"),
}
"""What a checkpoint can hold beside its model, by pieces of tensor names."""

DRAFTERS = {
    "medusa": "Medusa heads",
    "eagle": "an EAGLE head",
    "speculator": "a speculator (a drafter)",
    "dflash": "a DFlash drafter",
    "draft_model": "a drafter",
}
"""What a config can be instead of a language model, by pieces of its model type and
architectures."""


def refuse_drafter(name: str, config: dict[str, Any]) -> None:
    """Raise UnsupportedModelError when a folder's config.json describes a drafter and not a
    language model."""
    words = [
        config.get("model_type"),
        config.get("speculators_model_type"),
        *(config.get("architectures") or ()),
    ]
    said = " ".join(str(word).lower() for word in words if word)
    for piece, what in DRAFTERS.items():
        if piece in said:
            raise UnsupportedModelError(
                f"{name} holds {what}, which drafts for a language model and is none "
                "itself: name the model it was trained for"
            )


def extras(config: Any, place: str) -> tuple[str, ...]:
    """One sentence for every drafter or extra layer that comes inside the checkpoint at `place` and
    is not used."""
    notes = []
    tensors = tensor_names(Path(place))
    count = next((n for key in EXTRA_LAYERS if (n := _count(config, key))), 0)
    for what, pieces in TENSORS.items():
        found = [tensor for tensor in tensors if any(piece in tensor for piece in pieces)]
        if what.startswith("multi") and not found:
            found = list(_beyond(tensors, getattr(config, "num_hidden_layers", None)))
        told = f"{count} {what}" if what.startswith("multi") and count else what
        if found:
            notes.append(
                f"the checkpoint also holds {told} ({len(found)} tensors, such as "
                f"{found[0]}); they are not used"
            )
        elif what.startswith("multi") and count:
            notes.append(f"the model was made with {told}; they are not used")
    return tuple(notes)


def _count(config: Any, key: str) -> int:
    value = getattr(config, key, None)
    return value if isinstance(value, int) else 0


def _beyond(tensors: Iterable[str], num_layers: int | None) -> Iterable[str]:
    """Tensors of layers numbered past the model's last, where DeepSeek keeps its extra ones."""
    for tensor in tensors:
        before, found, after = tensor.partition("layers.")
        number = after.split(".")[0]
        is_main = found and "." not in before.rstrip(".")
        if is_main and num_layers is not None and number.isdigit() and int(number) >= num_layers:
            yield tensor


def tensor_names(folder: Path) -> list[str]:
    """Names of all tensors of a local checkpoint in safetensors, read from its index or headers; []
    for anything else."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return sorted(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}))
    names: list[str] = []
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
        from safetensors import safe_open

        with safe_open(file, framework="pt") as tensors:
            names.extend(tensors.keys())
    return names
