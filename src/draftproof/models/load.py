"""From a name to a model: a hub id, a local folder, a GGUF file, a PEFT adapter, or the short name
of the default model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from draftproof.errors import MissingExtraError, UsageError
from draftproof.models.adapters import base_of, is_adapter_folder, with_adapter
from draftproof.models.checkpoint import extras, refuse_drafter
from draftproof.models.convert import first_line, no_progress_bars, note, require_all
from draftproof.models.hf import HFModel
from draftproof.models.packed import pack_linears, why_not_packed
from draftproof.models.place import locate
from draftproof.models.support import check_config

_DTYPE_NAMES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
    "fp64": "float64",
}
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
)


def load_model(
    name_or_path: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    device_map: Any = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    attn_implementation: str | None = None,
    max_length: int | None = None,
    pack_weights: bool | None = None,
    check: bool = True,
) -> HFModel:
    """Load a causal language model with its tokenizer.

    name_or_path: a hub id, a folder with config.json, a folder with a PEFT adapter (its base model
    is loaded and the adapter merged into it), a .gguf file (converted once), or
    `smollm2-135m-instruct`.
    dtype, device: see `choose_dtype` and `choose_device`. device_map: handed to transformers (needs
    accelerate) instead of `device`. max_length: hold sessions to fewer tokens than the model could
    take. check: see `HFModel`. pack_weights: lay large linear layers out for passes over several
    tokens (`draftproof.models.packed`); None does so where it is known to help, in float32 on an
    x86 CPU. True is a UsageError elsewhere.
    UsageError in one sentence when there is no such model, UnsupportedModelError when it cannot be
    decoded exactly. What the checkpoint holds beside the model and is not used, such as
    multi-token-prediction layers, is said once and in `notes`."""
    if device_map is not None and find_spec("accelerate") is None:
        raise MissingExtraError("accelerate", "device-map")
    adapter = Path(name_or_path).expanduser()
    base = base_of(adapter) if is_adapter_folder(adapter) else str(name_or_path)
    place, offline = locate(base, revision)
    common = {
        "revision": revision,
        "trust_remote_code": trust_remote_code,
        "local_files_only": offline,
    }
    with _one_sentence(name_or_path), no_progress_bars():
        config = _load_config(place, common, max_length)
        where = choose_device(device)
        options: dict[str, Any] = {
            "dtype": choose_dtype(dtype, where, _checkpoint_dtype(config)),
            **common,
        }
        if attn_implementation is not None:
            options["attn_implementation"] = attn_implementation
        if device_map is not None:
            options["device_map"] = device_map
        module, tokenizer = _load_parts(
            place, options, common, adapter if base != str(name_or_path) else None
        )
        if device_map is None and getattr(config, "quantization_config", None) is None:
            module.to(where)
        _pack(module, config, where, device_map is not None, pack_weights)
    notes = extras(config, place)
    for said in notes:
        note(f"{name_or_path}: {said}")
    return HFModel(
        module, tokenizer, name=str(name_or_path), max_length=max_length, check=check, notes=notes
    )


def _pack(
    module: Any, config: Any, device: torch.device, spread: bool, wanted: bool | None
) -> None:
    if wanted is False:
        return
    reason = why_not_packed(module.dtype, device)
    if spread or getattr(config, "quantization_config", None) is not None:
        reason = "weights of a quantised model, or of one spread over devices, are not packed"
    if reason is None:
        pack_linears(module)
    elif wanted:
        raise UsageError(f"pack_weights=True: {reason}")


def load_config(name_or_path: str | Path, *, trust_remote_code: bool = False) -> Any:
    """The configuration of the model that `load_model` would load by this name; no weights are
    read. UsageError likewise."""
    place, offline = locate(str(name_or_path))
    with _one_sentence(name_or_path), no_progress_bars():
        return _load_config(
            place, {"local_files_only": offline, "trust_remote_code": trust_remote_code}, None
        )


def _load_config(place: str, common: dict[str, Any], max_length: int | None) -> Any:
    """The config at `place`, if the model can be decoded exactly; a drafter's is refused before
    transformers wonders at it."""
    from transformers import AutoConfig, PreTrainedConfig

    raw, _ = PreTrainedConfig.get_config_dict(place, **common)
    refuse_drafter(place, raw)
    config = AutoConfig.from_pretrained(place, **common)
    check_config(config, max_length)
    return config


def _load_parts(
    place: str, options: dict[str, Any], common: dict[str, Any], adapter: Path | None
) -> tuple[Any, Any]:
    """The module and its tokenizer; with an adapter, whose own tokenizer goes before the base's."""
    from transformers import AutoModelForCausalLM

    models: Any = AutoModelForCausalLM
    module, found = models.from_pretrained(place, output_loading_info=True, **options)
    require_all(place, found["missing_keys"])
    if adapter is None:
        return module, _load_tokenizer(place, common)
    has_tokenizer = any((adapter / file).is_file() for file in _TOKENIZER_FILES)
    tokenizer = _load_tokenizer(str(adapter) if has_tokenizer else place, common)
    return with_adapter(module, adapter, len(tokenizer) if has_tokenizer else None), tokenizer


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """The device asked for; "auto" is the GPU if there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise UsageError(
            f"device {device!r} is not one torch knows; use auto, cpu, cuda or cuda:N"
        ) from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {device!r} was asked for, but torch sees no GPU here; use cpu")
    try:
        # laws are compared in float64, which not every device has
        torch.zeros(1, dtype=torch.float64, device=chosen)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        raise UsageError(
            f"device {device!r} cannot be used here: {first_line(error)}; use cpu"
        ) from error
    return chosen


def has_native_bfloat16(device: torch.device) -> bool:
    """Whether bf16 products run in hardware: a GPU that says so, or a CPU with AVX512-BF16 or AMX
    instructions."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    return any(
        bool(getattr(torch.cpu, probe, bool)())
        for probe in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    )


def choose_dtype(
    dtype: str | torch.dtype, device: torch.device, checkpoint: torch.dtype
) -> torch.dtype:
    """The dtype asked for, or for "auto": what the checkpoint has, but 16-bit ones run in bf16
    where the hardware has it, else in fp16 on a GPU and in fp32 on a CPU. UsageError for a name
    that is no floating-point dtype."""
    if dtype == "auto":
        if checkpoint not in (torch.bfloat16, torch.float16):
            return checkpoint
        if has_native_bfloat16(device):
            return torch.bfloat16
        return torch.float32 if device.type == "cpu" else torch.float16
    chosen = (
        getattr(torch, _DTYPE_NAMES.get(dtype, dtype), None) if isinstance(dtype, str) else dtype
    )
    if not isinstance(chosen, torch.dtype) or not chosen.is_floating_point:
        raise UsageError(
            f"dtype {dtype!r} is not known; use auto, bfloat16, float16, float32 or float64"
        )
    return chosen


def _checkpoint_dtype(config: Any) -> torch.dtype:
    stored = getattr(config, "dtype", None)
    if isinstance(stored, str):
        stored = getattr(torch, stored, None)
    return stored if isinstance(stored, torch.dtype) else torch.float32


def load_tokenizer(
    name_or_path: str | Path, revision: str | None = None, *, trust_remote_code: bool = False
) -> Any:
    """The tokenizer alone of what `load_model` would load. UsageError in one sentence when there is
    none."""
    place, offline = locate(str(name_or_path), revision)
    with _one_sentence(name_or_path):
        common = {
            "revision": revision,
            "local_files_only": offline,
            "trust_remote_code": trust_remote_code,
        }
        tokenizer = _load_tokenizer(place, common)
    if tokenizer is None:
        raise UsageError(
            f"{name_or_path} has no tokenizer, and without one a text has no token ids"
        )
    return tokenizer


def _load_tokenizer(place: str, common: dict[str, Any]) -> Any:
    """The tokenizer beside the model, or None (with a note) when there is none: ids in and ids out
    then."""
    from transformers import AutoTokenizer

    folder = Path(place)
    if folder.is_dir() and not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        note(f"{place} has no tokenizer; prompts must be token ids")
        return None
    return AutoTokenizer.from_pretrained(place, **common)


@contextmanager
def _one_sentence(name: str | Path) -> Iterator[None]:
    """Turn what transformers raises about a model into one sentence; draftproof's own errors
    pass."""
    try:
        yield
    except UsageError:
        raise
    except ImportError as error:
        raise UsageError(
            f"{name} needs a package that is not installed: {first_line(error)}"
        ) from error
    except (OSError, ValueError, KeyError) as error:
        if "trust_remote_code" in str(error):
            raise UsageError(
                f"{name} brings code of its own, which runs only where you allow it: "
                "--trust-remote-code on the command line,"
                " trust_remote_code=True in Python"
            ) from error
        raise UsageError(f"{name} cannot be loaded: {first_line(error)}") from error
