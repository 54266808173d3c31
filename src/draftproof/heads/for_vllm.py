"""A head's folder, whatever its layout, made into one that `vllm serve` loads.

vLLM has a place of its own for every tensor and says little about one that does not fit: a Medusa
head without weights is left as memory happened to be, a fused state it does not hand out is
missing. So everything is checked here, against what its loaders (read at version 0.32: medusa,
llama_eagle3, llama_eagle) ask for, and what they cannot run is refused in a sentence."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof import __version__
from draftproof.errors import UsageError
from draftproof.heads.eagle3 import fused_layers
from draftproof.heads.folder import architectures_of, layer_shape
from draftproof.heads.layouts import Stored, read_layout
from draftproof.heads.writing import Files, files_of, published_eagle_files, write_folder

READ_AT = "0.32.0"
"""The version of vLLM whose loaders were read."""

DEFAULT_LENGTH = 4

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Export:
    """What was written. target: as `vllm serve` is given it. command: the whole line. notes: what
    could not be checked."""

    method: str
    folder: str
    target: str
    speculative_config: dict[str, Any]
    command: str
    num_tensors: int
    num_bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Target:
    """The verifier. rows: of its embedding and output layer, which may be more than its tokenizer
    has ids."""

    name: str
    architectures: tuple[str, ...] = ()
    width: int | None = None
    rows: int | None = None
    num_layers: int | None = None


def export_for_vllm(
    folder: str | Path,
    out: str | Path,
    *,
    target: str | None = None,
    length: int | None = None,
    trust_remote_code: bool = False,
) -> Export:
    """Write `out` from the head in `folder`. target: the model it serves, by default the one the
    folder remembers; its configuration is read, its weights are not. length: draft length, by
    default the folder's own. trust_remote_code: let a configuration that is code of the target's
    own run.

    UsageError: no head, a head vLLM cannot run, a target it does not fit, a length it does not
    have."""
    if Path(out).expanduser().resolve() == Path(folder).expanduser().resolve():
        raise UsageError(f"the export would overwrite {folder}: name another folder with --out")
    stored = read_layout(folder)
    verifier, notes = _target(folder, stored, target, trust_remote_code)
    stored = _completed(folder, stored, verifier)
    _check_runs(folder, stored)
    length = _length(folder, stored, length)
    config, tensors = _files(stored, verifier, length)
    _check_tensors(folder, tensors, wanted_tensors(stored.method, config))
    config["draftproof"] = {"version": __version__, "target": dict(stored.about_target)}
    write_folder(out, config, tensors)
    asked = {
        "method": stored.method,
        "model": str(Path(out).expanduser().resolve()),
        "num_speculative_tokens": length,
    }
    if stored.method != "medusa":
        asked["draft_sample_method"] = (
            "probabilistic"  # vLLM's default drafts the likeliest token at every temperature
        )
    command = (
        f"vllm serve {shlex.quote(verifier.name)} --speculative-config "
        f"{shlex.quote(json.dumps(asked))}"
    )
    size = sum(file.stat().st_size for file in Path(out).expanduser().iterdir() if file.is_file())
    return Export(
        stored.method, str(out), verifier.name, asked, command, len(tensors), size, tuple(notes)
    )


def wanted_tensors(method: str, config: Mapping[str, Any]) -> Shapes:
    """Name -> shape of what vLLM's loader of `method` asks for, from the configuration that it
    reads."""
    if method == "medusa":
        return _medusa_tensors(config)
    layer = config["transformer_layer_config"] if method == "eagle3" else config
    shapes = _layer_tensors(layer, twice=method == "eagle3")
    width = layer["hidden_size"]
    if method == "eagle":
        return shapes | {"fc.weight": (width, 2 * width)}
    states, draft_vocab = layer.get("num_aux_hidden_states", 3), config["draft_vocab_size"]
    shapes |= {
        "fc.weight": (width, states * width),
        "norm.weight": (width,),
        "lm_head.weight": (draft_vocab, width),
    }
    if draft_vocab != layer["vocab_size"]:
        shapes["d2t"] = (draft_vocab,)
    return shapes


def _medusa_tensors(config: Mapping[str, Any]) -> Shapes:
    width = config["hidden_size"]
    shapes: Shapes = {
        f"lm_heads.{head}.weight": (config["vocab_size"], width)
        for head in range(config["num_heads"])
    }
    for head in range(config["num_heads"]):
        for block in range(config["num_hidden_layers"]):
            shapes[f"blocks.{head}.layers.{block}.weight"] = (width, width)
            shapes[f"blocks.{head}.layers.{block}.bias"] = (width,)
    return shapes


def _layer_tensors(layer: Mapping[str, Any], *, twice: bool) -> Shapes:
    """A Llama layer's; `twice`: its attention reads embedding and feature side by side, and both
    have a norm before it."""
    width, inner = layer["hidden_size"], layer["intermediate_size"]
    heads = layer["num_attention_heads"]
    size = layer.get("head_dim") or width // heads
    wide, narrow = heads * size, (layer.get("num_key_value_heads") or heads) * size
    read = 2 * width if twice else width
    attention = {
        "q_proj": (wide, read),
        "k_proj": (narrow, read),
        "v_proj": (narrow, read),
        "o_proj": (width, wide),
    }
    mlp = {"gate_proj": (inner, width), "up_proj": (inner, width), "down_proj": (width, inner)}
    norms = (
        ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        if twice
        else ("post_attention_layernorm",)
    )
    shapes: Shapes = {f"layers.0.{norm}.weight": (width,) for norm in norms}
    for part, matrices, bias in (
        ("self_attn", attention, "attention_bias"),
        ("mlp", mlp, "mlp_bias"),
    ):
        for name, shape in matrices.items():
            shapes[f"layers.0.{part}.{name}.weight"] = shape
            if layer.get(bias):
                shapes[f"layers.0.{part}.{name}.bias"] = shape[:1]
    return shapes


def _target(
    folder: str | Path, stored: Stored, name: str | None, trusted: bool
) -> tuple[_Target, list[str]]:
    """The verifier, its configuration read where it is in reach; it must be where it was asked for
    by name."""
    from draftproof.models.place import locate

    remembered = stored.about_target.get("name")
    if name is None and remembered is None:
        raise UsageError(f"{folder} does not say which model it is for: name it with --target")
    chosen = str(name or remembered)
    try:
        place = locate(chosen)[0]
        from draftproof.models.load import load_config

        config = load_config(chosen, trust_remote_code=trusted)
    except UsageError as error:
        if name is not None:
            raise
        return _Target(chosen), [f"the target was not looked at ({error})"]
    config = config.get_text_config()
    found = _Target(
        place,
        tuple(architectures_of(config)),
        config.hidden_size,
        config.vocab_size,
        config.num_hidden_layers,
    )
    for key, value in (("hidden_size", found.width), ("num_hidden_layers", found.num_layers)):
        theirs = stored.about_target.get(key)
        if theirs is not None and theirs != value:
            raise UsageError(
                f"{folder} was trained for {remembered!r}, not {chosen!r}: {key} is "
                f"{theirs} there and {value} here"
            )
    return found, []


def _completed(folder: str | Path, stored: Stored, target: _Target) -> Stored:
    """What a published layout leaves to its program: which states are fused, all entries of the
    layer, the target's rows."""
    if stored.method == "medusa":
        return replace(stored, tensors=_padded(folder, stored.tensors, target))
    layer = layer_shape(folder, stored.shape["layer"])
    entries = {
        name: value
        for name, value in layer.to_dict().items()
        if value is not None and name != "transformers_version"
    }
    if target.width is not None and layer.hidden_size != target.width:
        raise UsageError(
            f"{folder} is for a target of hidden size {layer.hidden_size}; {target.name} "
            f"has {target.width}"
        )
    if target.rows is not None:
        entries["vocab_size"] = target.rows
    layers, tensors = stored.hidden_layers, dict(stored.tensors)
    if stored.method == "eagle3":
        if layers is None:
            if target.num_layers is None:
                raise UsageError(
                    f"{folder} does not say which hidden states it reads: name its "
                    "target with --target"
                )
            layers = fused_layers(target.num_layers)
        if len(layers) != 3:
            entries["num_aux_hidden_states"] = len(layers)
        if len(tensors.get("lm_head.weight", ())) == entries["vocab_size"]:
            tensors = {
                name: tensor for name, tensor in tensors.items() if name not in ("d2t", "t2d")
            }
    return replace(
        stored, shape={**stored.shape, "layer": entries}, tensors=tensors, hidden_layers=layers
    )


def _padded(
    folder: str | Path, tensors: Mapping[str, Tensor], target: _Target
) -> dict[str, Tensor]:
    """Medusa's output layers with as many rows as the target's. A row too many is a copy of the
    first, so it is never likelier than that one, and a zero row could be the likeliest of all."""
    padded = {}
    for name, tensor in tensors.items():
        if name.startswith("lm_heads.") and target.rows is not None:
            if len(tensor) > target.rows or tensor.shape[-1] != target.width:
                shape = list(tensor.shape)
                raise UsageError(
                    f"{folder} has {name} of shape {shape}; {target.name} has "
                    f"{target.rows} rows of {target.width}"
                )
            tensor = torch.cat([tensor, tensor[:1].expand(target.rows - len(tensor), -1)])
        padded[name] = tensor
    return padded


def _check_runs(folder: str | Path, stored: Stored) -> None:
    """Refuse a head that loads and then drafts from other states than it was trained on, or that
    has no place at all."""
    layers, last = stored.hidden_layers, stored.about_target.get("num_hidden_layers")
    if stored.method == "eagle3":
        if layers is None or sorted(set(layers)) != list(layers) or layers[-1] == last:
            raise UsageError(
                f"{folder} fuses hidden states {list(layers or ())}; vLLM hands out each "
                "once, in ascending order, and the "
                "last layer's before its norm, so it serves heads over different states "
                f"below {last or 'the last'}"
            )
    elif layers is not None and last is not None and tuple(layers) != (last,):
        raise UsageError(
            f"{folder} reads hidden state {list(layers)}; vLLM gives {stored.method} "
            f"heads the last one, {last}"
        )
    if stored.method == "eagle" and stored.shape["bias"]:
        raise UsageError(
            f"{folder} has a bias in its fusing layer, for which vLLM has no place; "
            "heads that draftproof trains have none"
        )


def _length(folder: str | Path, stored: Stored, length: int | None) -> int:
    if stored.method != "medusa":
        return length or stored.length or DEFAULT_LENGTH
    heads = int(stored.shape["num_heads"])
    if length is not None and length > heads:
        raise UsageError(
            f"{folder} has {heads} heads, so no draft is longer; vLLM would run "
            f"{length}, the rest without weights"
        )
    return length or heads


def _files(stored: Stored, target: _Target, length: int) -> Files:
    """In the layout vLLM reads: `speculators` for eagle3, its own for medusa, SafeAILab's for
    eagle."""
    if stored.method == "eagle":
        return published_eagle_files(stored)
    return files_of(stored, target.name, target.architectures, length)


def _check_tensors(folder: str | Path, tensors: Mapping[str, Tensor], wanted: Shapes) -> None:
    """t2d may come along: vLLM leaves it aside."""
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name != "t2d"}
    wrong = [f"lacks {name}" for name in sorted(set(wanted) - set(found))]
    wrong += [
        f"has {name}, for which vLLM has no place" for name in sorted(set(found) - set(wanted))
    ]
    for name in sorted(set(found) & set(wanted)):
        if found[name] != wanted[name]:
            wrong.append(
                f"has {name} of shape {list(found[name])} where vLLM wants {list(wanted[name])}"
            )
    if wrong:
        raise UsageError(f"{folder} cannot be served: it {'; it '.join(wrong)}")
    bad = sorted(
        name
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not bool(tensor.isfinite().all())
    )
    if bad:
        raise UsageError(f"{folder} is damaged: {', '.join(bad)} hold NaN or infinity")
