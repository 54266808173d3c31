"""What a head's configuration says beside its shape: each entry is known and agrees with tensors
and target, or is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from draftproof.errors import UsageError
from draftproof.heads.target import TargetView

_SPECULATORS = {
    *(
        "speculators_model_type",
        "speculators_version",
        "speculators_config",
        "transformer_layer_config",
    ),
    *("draft_vocab_size", "target_hidden_size", "embed_requires_grad", "enable_sp_ulysses"),
}
KNOWN = {
    "eagle": _SPECULATORS
    | {"hidden_state_layer_ids", "layernorms", "fusion_bias", "transformer_layer_architecture"},
    "eagle3": _SPECULATORS
    | {
        "eagle_aux_hidden_state_layer_ids",
        "norm_before_residual",
        "norm_before_fc",
        "fc_norm",
        "norm_output",
    },
    "medusa": {
        *(
            "num_heads",
            "num_hidden_layers",
            "medusa_num_heads",
            "medusa_num_layers",
            "hidden_size",
            "vocab_size",
        ),
        *(
            "truncated_vocab_size",
            "original_lm_head",
            "medusa_fc_bias",
            "hidden_state_layer_ids",
            "version",
        ),
        *("base_model_name_or_path", "max_seq_len", "max_position_embeddings"),
    },
}
"""The entries of each kind of head; an EAGLE head published in the form of a layer has the layer's
only."""

_OF_ANY_MODEL = {
    *(
        "draftproof",
        "auto_map",
        "torch_dtype",
        "use_cache",
        "tie_word_embeddings",
        "initializer_range",
        "unsloth_version",
    ),
    *("bos_token_id", "eos_token_id", "pad_token_id"),
}
"""What says nothing about the numbers."""


def says_something(value: Any) -> bool:
    """Whether an entry asks for anything: null and false do not, 0 does."""
    return value is not None and value is not False


def check_known(path: Path, config: Mapping[str, Any], kind: str) -> None:
    """UsageError for entries that are not read here and say something."""
    from transformers import PretrainedConfig

    known = KNOWN[kind] | _OF_ANY_MODEL | set(PretrainedConfig().to_dict())
    unknown = sorted(
        name for name, value in config.items() if name not in known and says_something(value)
    )
    if unknown:
        raise UsageError(
            f"{path}/config.json says {', '.join(unknown)} of its head, which is not "
            f"known for {kind} heads"
        )


def check_agreement(
    path: str | Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], target: TargetView
) -> None:
    """UsageError for an entry that repeats a size or a kind and differs from the tensors or from
    the target.

    config: entries of the head, or of its layer; tensors: by our names; entries that are left out
    or null say nothing."""
    vocabulary = {target.vocab_size, int(getattr(target.config, "vocab_size", target.vocab_size))}
    width = {target.width}
    heads = {sum(name.startswith("lm_heads.") for name in tensors)}
    allowed: dict[str, Iterable[Any]] = {
        "target_hidden_size": width,
        "draft_vocab_size": {len(tensors["lm_head.weight"])}
        if "lm_head.weight" in tensors
        else vocabulary,
        "transformer_layer_architecture": {"LlamaDecoderLayer"},
    }
    if "num_heads" in config or "medusa_num_heads" in config:
        biased = any(name.startswith("blocks.") and name.endswith(".bias") for name in tensors)
        allowed |= dict.fromkeys(("num_heads", "medusa_num_heads"), heads)
        allowed |= {
            "hidden_size": width,
            "vocab_size": vocabulary,
            "truncated_vocab_size": vocabulary,
        }
        allowed |= {
            "original_lm_head": {False},
            "medusa_fc_bias": {biased} if _has_blocks(tensors) else {True, False},
        }
    for name, values in allowed.items():
        said = config.get(name)
        if said is not None and said not in values:
            right = " or ".join(repr(value) for value in sorted(values))
            raise UsageError(
                f"{path}/config.json says {name} {said!r}, where the tensors and "
                f"{target.name} have {right}"
            )


def _has_blocks(tensors: Mapping[str, Tensor]) -> bool:
    return any(name.startswith("blocks.") for name in tensors)
