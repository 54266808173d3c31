"""The layouts heads are published in, each read into one form: which method, which shape, and
tensors by our own names.

speculators   config.json with `speculators_model_type` "eagle" or "eagle3"
              (vllm-project/speculators)
vllm medusa   config.json with `model_type` "medusa": blocks.{head}.layers.{block}.*,
              lm_heads.{head}.weight
medusa        config.json with `medusa_num_heads`: {head}.{block}.linear.*,
              {head}.{num_layers}.weight (FasterDecoding/Medusa)
eagle         config.json of one Llama layer: fc.*, layers.0.*, or midlayer.* with d2t and t2d
              (SafeAILab/EAGLE)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from draftproof.errors import UsageError
from draftproof.heads.claims import check_known

WEIGHT_FILES = (
    "model.safetensors",
    "medusa_lm_head.safetensors",
    "medusa_lm_head.pt",
    "pytorch_model.bin",
)


@dataclass(frozen=True)
class Stored:
    """A head as it was found. shape: the entries its network is made from. tensors: by our names.
    hidden_layers: ids of the target's hidden states it was trained on, None where the layout does
    not say. borrowed: copies of the target's own tensors that the file carries along
    ("embed_tokens.weight", "lm_head.weight"). about_target: what the file says of its target.
    length: the draft length it proposes, None where it does not say. says: the whole configuration
    as it was found."""

    method: str
    shape: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    hidden_layers: tuple[int, ...] | None = None
    borrowed: Mapping[str, Tensor] = field(default_factory=dict)
    about_target: Mapping[str, Any] = field(default_factory=dict)
    length: int | None = None
    says: Mapping[str, Any] = field(default_factory=dict)


def read_layout(folder: str | Path) -> Stored:
    """The head in a folder, whatever its layout. UsageError: no such folder, unreadable files, an
    unknown layout."""
    path = Path(folder).expanduser()
    config = _config(path)
    return replace(_read(path, config, _tensors(path)), says=config)


def _read(path: Path, config: Mapping[str, Any], tensors: dict[str, Tensor]) -> Stored:
    about = _about(config)
    kind = config.get("speculators_model_type")
    if kind in ("eagle", "eagle3"):
        check_known(path, config, kind)
        read = _speculators_eagle3 if kind == "eagle3" else _speculators_eagle
        return read(path, config, tensors, about)
    if kind is not None:
        raise UsageError(f"{path} holds a head of kind {kind!r}; read here: eagle, eagle3, medusa")
    if config.get("model_type") == "medusa" or "medusa_num_heads" in config:
        check_known(path, config, "medusa")
    if config.get("model_type") == "medusa" and "num_heads" in config:
        shape = {
            "num_heads": _count(path, config, "num_heads"),
            "num_layers": _count(path, config, "num_hidden_layers", 0),
        }
        layers = config.get("hidden_state_layer_ids")
        named = {
            re.sub(r"^(blocks\.\d+)\.layers\.(\d+)\.", r"\1.\2.linear.", name): t
            for name, t in tensors.items()
        }
        return Stored(
            "medusa", shape, named, None if layers is None else tuple(layers), about_target=about
        )
    if "medusa_num_heads" in config:
        return _published_medusa(path, config, tensors)
    if any(name.endswith("fc.weight") for name in tensors) and "num_attention_heads" in config:
        return _published_eagle(config, tensors, about)
    raise UsageError(
        f"{path} holds no head in a layout known here (speculators, Medusa, EAGLE): see "
        "docs/train.md"
    )


def _speculators_eagle3(
    path: Path, config: Mapping[str, Any], tensors: dict[str, Tensor], about: Mapping[str, Any]
) -> Stored:
    layer, ids = _layer(path, config), config.get("eagle_aux_hidden_state_layer_ids")
    if ids is None:
        raise UsageError(
            f"{path}/config.json does not say which hidden states it reads "
            "(eagle_aux_hidden_state_layer_ids)"
        )
    if "norm_before_residual" not in config:
        raise UsageError(
            f"{path}/config.json leaves out norm_before_residual, whose default differs "
            "between programs"
        )
    for variant in ("norm_before_fc", "fc_norm", "norm_output"):
        if config.get(variant) or layer.get(variant):
            raise UsageError(
                f"{path} is of a variant with norms of its own around the fusing layer "
                f"({variant}), not read here"
            )
    shape = {"layer": layer, "norm_before_residual": bool(config["norm_before_residual"])}
    kept, borrowed = _split(tensors, ("embed_tokens.weight",))
    return Stored("eagle3", shape, kept, tuple(ids), borrowed, about, _proposed_length(config))


def _speculators_eagle(
    path: Path, config: Mapping[str, Any], tensors: dict[str, Tensor], about: Mapping[str, Any]
) -> Stored:
    if config.get("layernorms"):
        raise UsageError(
            f"{path} has extra layer norms around the fusion (layernorms: true), which "
            "are not supported"
        )
    renamed = {}
    for name, tensor in tensors.items():
        name = re.sub(r"^fusion_fc\.", "fc.", name)
        renamed[re.sub(r"^transformer\.", "layers.0.", name)] = tensor
    kept, borrowed = _split(renamed, ("embed_tokens.weight", "lm_head.weight"))
    shape = {"layer": _layer(path, config), "bias": bool(config.get("fusion_bias"))}
    layers = config.get("hidden_state_layer_ids")
    return Stored(
        "eagle",
        shape,
        kept,
        None if layers is None else tuple(layers),
        borrowed,
        about,
        _proposed_length(config),
    )


def _published_medusa(path: Path, config: Mapping[str, Any], tensors: dict[str, Tensor]) -> Stored:
    heads = _count(path, config, "medusa_num_heads")
    blocks = _count(path, config, "medusa_num_layers", 0)
    renamed = {}
    for name, tensor in tensors.items():
        name = re.sub(r"^(base_model\.)?medusa_head\.", "", name)
        name = re.sub(rf"^(\d+)\.{blocks}\.weight$", r"lm_heads.\1.weight", name)
        renamed[re.sub(r"^(\d+)\.(\d+)\.linear\.", r"blocks.\1.\2.linear.", name)] = tensor
    return Stored("medusa", {"num_heads": heads, "num_layers": blocks}, renamed)


def _published_eagle(
    config: Mapping[str, Any], tensors: dict[str, Tensor], about: Mapping[str, Any]
) -> Stored:
    renamed = {
        re.sub(r"^midlayer\.", "layers.0.", re.sub(r"^model\.", "", name)): t
        for name, t in tensors.items()
    }
    third = "d2t" in renamed or any("hidden_norm" in name for name in renamed)
    kept, borrowed = _split(
        renamed, ("embed_tokens.weight",) if third else ("embed_tokens.weight", "lm_head.weight")
    )
    layer = {
        name: value
        for name, value in config.items()
        if name not in ("architectures", "bias", "draftproof")
    }
    if third:
        return Stored(
            "eagle3", {"layer": layer, "norm_before_residual": False}, kept, None, borrowed, about
        )
    return Stored("eagle", {"layer": layer, "bias": "fc.bias" in kept}, kept, None, borrowed, about)


def _about(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says of its target: our own folders much, those of `speculators` a name."""
    said = dict(dict(config.get("draftproof") or {}).get("target") or {})
    verifier = dict(dict(config.get("speculators_config") or {}).get("verifier") or {})
    return said or ({"name": verifier["name_or_path"]} if verifier.get("name_or_path") else {})


def _proposed_length(config: Mapping[str, Any]) -> int | None:
    """The draft length that a folder in the `speculators` layout proposes."""
    proposals = dict(config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    length = proposals[0].get("speculative_tokens")
    return length if isinstance(length, int) and length > 0 else None


def _split(
    tensors: Mapping[str, Tensor], borrowed: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return (
        {name: tensor for name, tensor in tensors.items() if name not in borrowed},
        {name: tensor for name, tensor in tensors.items() if name in borrowed},
    )


def _layer(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    layer = config.get("transformer_layer_config")
    if not isinstance(layer, dict):
        raise UsageError(f"{path}/config.json has no transformer_layer_config")
    return dict(layer)


def _count(path: Path, config: Mapping[str, Any], name: str, least: int = 1) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(
            f"{path}/config.json has {name} {value!r}; it is a whole number from {least}"
        )
    return value


def _config(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise UsageError(f"there is no folder {path} with a head")
    if not (path / "config.json").is_file():
        raise UsageError(f"the folder {path} has no config.json; name the folder of a trained head")
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}/config.json cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path}/config.json is not a JSON object")
    return config


def _tensors(path: Path) -> dict[str, Tensor]:
    file = next((path / name for name in WEIGHT_FILES if (path / name).is_file()), None)
    if file is None:
        raise UsageError(f"{path} has no weights; looked for {', '.join(WEIGHT_FILES)}")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(file))
        import torch

        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UsageError(
            f"{file} is damaged or no file of weights: {' '.join(str(error).split())[:200]}"
        ) from error
    if not isinstance(found, Mapping) or not all(
        isinstance(tensor, Tensor) for tensor in found.values()
    ):
        raise UsageError(f"{file} holds something other than named tensors")
    return dict(found)
