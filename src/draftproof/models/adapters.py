"""PEFT adapters: a folder with adapter_config.json stands for its base model with the adapter in
it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from draftproof.errors import MissingExtraError, UnsupportedModelError, UsageError

CONFIG = "adapter_config.json"

VIRTUAL_TOKENS = {
    "PREFIX_TUNING",
    "PROMPT_TUNING",
    "P_TUNING",
    "MULTITASK_PROMPT_TUNING",
    "CPT",
    "ADAPTION_PROMPT",
}
"""Kinds that put learned tokens or states before the text, where a cache of ours would not have
them."""


def is_adapter_folder(path: Path) -> bool:
    """Whether `path` holds an adapter and no whole model."""
    return (path / CONFIG).is_file() and not (path / "config.json").is_file()


def base_of(folder: Path) -> str:
    """The name of the model that the adapter in `folder` belongs to.

    UsageError when it does not say, UnsupportedModelError for a kind that cannot be used,
    MissingExtraError without peft."""
    settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    check_adapter(
        str(settings.get("peft_type", "")), settings.get("alora_invocation_tokens"), str(folder)
    )
    base = settings.get("base_model_name_or_path")
    if not base:
        raise UsageError(
            f"{folder / CONFIG} does not name its base model (base_model_name_or_path)"
        )
    if find_spec("peft") is None:
        raise MissingExtraError("peft", "adapters")
    return _beside(folder, str(base))


def check_adapter(peft_type: str, invocation_tokens: Any, where: str) -> None:
    """UnsupportedModelError for a kind of adapter that cannot be used. peft_type: as a name, or as
    the text of PEFT's enum. where: what has the adapter."""
    kind = peft_type.rpartition(".")[2].upper()
    if kind in VIRTUAL_TOKENS:
        raise UnsupportedModelError(
            f"{where} is a {kind} adapter, which puts learned tokens before the text; "
            "adapters of weights (LoRA) can be used"
        )
    if invocation_tokens:
        raise UnsupportedModelError(
            f"{where} is an activated LoRA adapter, whose weights depend on where a "
            "token stands; it cannot be merged"
        )


def _beside(folder: Path, base: str) -> str:
    """The base as named; a relative path that only exists from the adapter's own folder is taken
    from there."""
    path = Path(base).expanduser()
    if not path.is_absolute() and not path.exists() and (folder / path).is_dir():
        return str(folder / path)
    return base


def with_adapter(module: Any, folder: Path, num_tokens: int | None) -> Any:
    """`module` with the adapter of `folder` merged into its weights; kept beside them where they
    are quantised.

    num_tokens: of the adapter's own tokenizer, when it has one with more tokens than the base has
    rows."""
    from peft import PeftModel

    rows = module.get_input_embeddings().weight.shape[0]
    if num_tokens is not None and num_tokens > rows:
        module.resize_token_embeddings(num_tokens)
    adapted = PeftModel.from_pretrained(module, str(folder), is_trainable=False)
    if getattr(module.config, "quantization_config", None) is not None:
        # its layers carry the adapter; merging would round the weights once more
        return adapted.get_base_model()
    return adapted.merge_and_unload(safe_merge=True)
