"""Heads in folders: written in the layouts that servers load, read with everything checked that
could be wrong.

A head that does not fit is refused with the names of what is missing, left over or misshaped; so is
one whose target is another model, where the folder says which one it was (our own do, by a
fingerprint of the weights), or carries tensors of it along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from draftproof import __version__
from draftproof.errors import UsageError
from draftproof.heads.claims import check_agreement, says_something
from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3, fused_layers
from draftproof.heads.layouts import Stored, read_layout
from draftproof.heads.medusa import Medusa, MedusaConfig
from draftproof.heads.target import TargetView
from draftproof.heads.writing import files_of, write_folder

Head = Medusa | Eagle | Eagle3

_MEANINGLESS = {
    *(
        "torch_dtype",
        "transformers_version",
        "_name_or_path",
        "_attn_implementation",
        "rope_theta",
        "rope_scaling",
    ),
    *(
        "sliding_window",
        "use_sliding_window",
        "max_window_layers",
        "layer_types",
        "draft_vocab_size",
        "target_hidden_size",
    ),
    *(
        "norm_before_residual",
        "tie_word_embeddings",
        "unsloth_version",
        "_from_model_config",
        "auto_map",
        "num_lookahead_tokens",
    ),
    *(
        "pretraining_tp",
        "hidden_state_layer_ids",
        "eagle_aux_hidden_state_layer_ids",
        "num_aux_hidden_states",
    ),
}
"""Keys that published heads carry, and that change nothing of their layer here or are read
elsewhere."""

_LAYER_KEYS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)


def method_of(head: nn.Module) -> str:
    """The method's name in a speculative config."""
    return {Medusa: "medusa", Eagle: "eagle", Eagle3: "eagle3"}[type(head)]


def save_head(
    folder: str | Path,
    head: Head,
    target: TargetView,
    *,
    length: int = 5,
    card: Mapping[str, Any] | None = None,
) -> None:
    """Write `model.safetensors` and `config.json`; the config appears last, so a folder with one is
    complete.

    length: the draft length that is proposed to servers. card: what is known of the head, kept
    under "draftproof"."""
    config, tensors = files_of(
        stored_of(head, target), target.name, architectures_of(target.config), length
    )
    config["draftproof"] = {
        "version": __version__,
        "target": about(target),
        "card": dict(card or {}),
    }
    write_folder(folder, config, tensors)


def architectures_of(config: Any) -> list[str]:
    """What a target's (transformers) configuration calls its architecture."""
    return list(getattr(config, "architectures", None) or [])


def stored_of(head: Head, target: TargetView) -> Stored:
    """A network in the form that layouts are written from."""
    tensors, layers = head.state_dict(), head.hidden_layers
    if isinstance(head, Medusa):
        shape: dict[str, Any] = {
            "num_heads": head.config.num_heads,
            "num_layers": head.config.num_layers,
        }
        return Stored("medusa", shape, tensors, layers, about_target=about(target))
    entries = {name: value for name, value in head.config.to_dict().items() if value is not None}
    entries.pop("transformers_version", None)
    if isinstance(head, Eagle3):
        shape = {"layer": entries, "norm_before_residual": head.norm_before_residual}
    else:
        shape = {"layer": entries, "bias": head.fc.bias is not None}
    return Stored(method_of(head), shape, tensors, layers, about_target=about(target))


def about(target: TargetView) -> dict[str, Any]:
    """How a folder remembers its target."""
    return {
        "name": target.name,
        "hidden_size": target.width,
        "vocab_size": target.vocab_size,
        "num_hidden_layers": target.num_layers,
        "fingerprint": target.fingerprint,
    }


def load_head(folder: str | Path, target: TargetView, method: str | None = None) -> Head:
    """The head of a folder, for `target`, in its dtype and on its device. UsageError names what
    does not fit."""
    stored = read_layout(folder)
    if method is not None and stored.method != method:
        raise UsageError(f"{folder} holds a head for method {stored.method!r}, not {method!r}")
    _check_target(folder, stored, target)
    stored = replace(stored, tensors=_fitted(stored, target))
    head = _network(folder, stored, target)
    _check_tensors(folder, stored.tensors, head.state_dict())
    for entries in (stored.says, stored.shape.get("layer", {})):
        check_agreement(folder, entries, stored.tensors, target)
    head.load_state_dict({name: stored.tensors[name] for name in head.state_dict()})
    if isinstance(head, Eagle3):
        _check_draft_ids(folder, head)
    _check_borrowed(folder, stored.borrowed, target)
    return head.to(target.device, target.dtype).eval().requires_grad_(False)


def _fitted(stored: Stored, target: TargetView) -> dict[str, Tensor]:
    """The tensors over the ids the target really has: rows that only pad its output layer are cut
    off. A head over all of its ids may leave out which ones these are."""
    rows = int(getattr(target.config, "vocab_size", target.vocab_size))
    tensors = dict(stored.tensors)
    for name, tensor in stored.tensors.items():
        if (name.startswith("lm_heads.") or name == "t2d") and target.vocab_size < len(
            tensor
        ) <= rows:
            tensors[name] = tensor[: target.vocab_size]
    whole = len(tensors.get("lm_head.weight", ())) == target.vocab_size
    if stored.method == "eagle3" and whole and not {"d2t", "t2d"} & set(tensors):
        tensors["d2t"] = torch.zeros(target.vocab_size, dtype=torch.long)
        tensors["t2d"] = torch.ones(target.vocab_size, dtype=torch.bool)
    return tensors


def _network(folder: str | Path, stored: Stored, target: TargetView) -> Head:
    """A network of the stored shape, weights not yet loaded."""
    layers = stored.hidden_layers
    if layers is not None and any(
        not isinstance(layer, int) or not 0 <= layer <= target.num_layers for layer in layers
    ):
        raise UsageError(
            f"{folder} reads hidden states {list(layers)}; {target.name} has 0 to "
            f"{target.num_layers}"
        )
    if stored.method == "medusa":
        last = target.num_layers if layers is None else _one_layer(folder, layers)
        return Medusa(MedusaConfig(target.width, target.vocab_size, last, **stored.shape))
    config = layer_shape(folder, stored.shape["layer"])
    if config.hidden_size != target.width:
        raise UsageError(
            f"{folder} is for a target of hidden size {config.hidden_size}; "
            f"{target.name} has {target.width}"
        )
    if stored.method == "eagle":
        layer = None if layers is None else _one_layer(folder, layers)
        return Eagle(config, target, hidden_layer=layer, bias=stored.shape["bias"])
    offsets = stored.tensors.get("d2t")
    if offsets is None:
        raise UsageError(
            f"{folder} lacks the tensor d2t: which of the target's ids the draft ids stand for"
        )
    ids = (offsets.long() + torch.arange(len(offsets))).tolist()
    if sorted(set(ids)) != ids or not (ids[0] >= 0 and ids[-1] < target.vocab_size):
        raise UsageError(
            f"{folder}: d2t maps draft ids to {min(ids)}..{max(ids)}, not one to one and "
            "in order into the "
            f"{target.vocab_size} ids of {target.name}"
        )
    chosen = fused_layers(target.num_layers) if layers is None else layers
    norm = stored.shape["norm_before_residual"]
    return Eagle3(config, target, hidden_layers=chosen, draft_ids=ids, norm_before_residual=norm)


def _one_layer(folder: str | Path, layers: tuple[int, ...]) -> int:
    if len(layers) != 1:
        raise UsageError(
            f"{folder} reads hidden states {list(layers)}; this kind of head reads one"
        )
    return layers[0]


def layer_shape(folder: str | Path, entries: Mapping[str, Any]) -> Any:
    """The (transformers) LlamaConfig of a head's layer. UsageError for a shape that is not said, or
    that no head here has."""
    from transformers import LlamaConfig

    missing = [
        name for name in _LAYER_KEYS if name not in entries and name != "num_key_value_heads"
    ]
    if missing:
        raise UsageError(f"{folder}/config.json leaves out {', '.join(missing)} of its layer")
    kind = entries.get("model_type", "llama")
    if kind != "llama":
        raise UsageError(
            f"{folder} has a layer of kind {kind!r}; heads read here have llama layers"
        )
    _check_keys(folder, entries, set(LlamaConfig().to_dict()))
    config = LlamaConfig(
        **{
            name: value
            for name, value in entries.items()
            if name not in ("model_type", "torch_dtype", "dtype")
        }
    )
    if config.num_hidden_layers != 1:
        raise UsageError(
            f"{folder} has {config.num_hidden_layers} layers; heads read here have one"
        )
    return config


def _check_keys(folder: str | Path, entries: Mapping[str, Any], known: set[str]) -> None:
    """Refuse what would change the layer's numbers and is not computed here; a key that says
    nothing (null, false) passes."""
    window, limit = entries.get("sliding_window"), entries.get("max_position_embeddings")
    if window and entries.get("use_sliding_window", True) and not (limit and window >= limit):
        raise UsageError(
            f"{folder} has a layer with sliding_window {window}; heads read here look at "
            "the whole text"
        )
    activation = entries.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UsageError(f"{folder} has hidden_act {activation!r}; heads read here have silu")
    unknown = sorted(
        name
        for name, value in entries.items()
        if name not in known | _MEANINGLESS and says_something(value)
    )
    if unknown:
        raise UsageError(
            f"{folder}/config.json says {', '.join(unknown)} of its layer, which is not known here"
        )


def _check_tensors(
    folder: str | Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> None:
    """Refuse a file with a tensor too few, too many, or of another shape: a head that half fits
    drafts nonsense."""
    wrong = []
    if missing := sorted(set(wanted) - set(found)):
        wrong.append(f"lacks {', '.join(missing)}")
    if extra := sorted(set(found) - set(wanted)):
        wrong.append(f"has {', '.join(extra)}, which the configuration has no place for")
    for name in sorted(set(found) & set(wanted)):
        if found[name].shape != wanted[name].shape:
            wrong.append(
                f"has {name} of shape {list(found[name].shape)} where "
                f"{list(wanted[name].shape)} is needed"
            )
    if wrong:
        raise UsageError(
            f"{folder} does not fit its configuration or the target: it {'; it '.join(wrong)}"
        )
    bad = [
        name
        for name, tensor in found.items()
        if tensor.is_floating_point() and not bool(tensor.isfinite().all())
    ]
    if bad:
        raise UsageError(f"{folder} is damaged: {', '.join(sorted(bad))} hold NaN or infinity")


def _check_draft_ids(folder: str | Path, head: Eagle3) -> None:
    expected = torch.zeros_like(head.t2d)
    expected[head.draft_ids] = True
    if not torch.equal(expected, head.t2d):
        raise UsageError(
            f"{folder}: t2d names other ids than d2t does; the two come from different heads"
        )


def _check_target(folder: str | Path, stored: Stored, target: TargetView) -> None:
    theirs, ours = stored.about_target, about(target)
    names = f"{theirs.get('name')!r}, not {target.name!r}"
    for key in ("hidden_size", "vocab_size", "num_hidden_layers"):
        if key in theirs and theirs[key] != ours[key]:
            raise UsageError(
                f"{folder} was trained for {names}: {key} is {theirs[key]} there and "
                f"{ours[key]} here"
            )
    known = theirs.get("fingerprint"), ours["fingerprint"]
    if all(known) and known[0] != known[1]:
        raise UsageError(f"{folder} was trained for {names}: the weights of this target are others")


def _check_borrowed(folder: str | Path, borrowed: Mapping[str, Tensor], target: TargetView) -> None:
    """A copy of the target's embedding or output layer that came along must be this target's."""
    for name, tensor in borrowed.items():
        ids = torch.arange(0, target.vocab_size, max(1, target.vocab_size // 64))
        own = (
            target.embed(ids.to(target.device))
            if name.startswith("embed")
            else target.output_weight[ids.to(target.device)]
        )
        same_shape = (
            tensor.ndim == 2
            and tensor.shape[0] >= target.vocab_size
            and tensor.shape[1] == target.width
        )
        if not same_shape or not torch.allclose(
            tensor[ids].float(), own.float().cpu(), rtol=2e-2, atol=1e-3
        ):
            raise UsageError(f"{folder} carries {name} of another target than {target.name}")
