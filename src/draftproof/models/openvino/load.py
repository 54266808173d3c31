"""A model by name, as OpenVINO runs it: its conversion made or found, compiled, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from draftproof.errors import MissingExtraError, UnsupportedModelError, UsageError
from draftproof.models.adapters import is_adapter_folder
from draftproof.models.caches.kinds import LayerKind
from draftproof.models.convert import no_progress_bars, note
from draftproof.models.hf import eos_token_ids
from draftproof.models.load import choose_dtype, load_config, load_tokenizer
from draftproof.models.place import locate
from draftproof.models.rotation import length_scaled
from draftproof.models.support import check_config, context_limit, counts_places

if TYPE_CHECKING:
    from draftproof.models.openvino.store import Conversion

QUANTIZATIONS = ("int8", "int4")
_WEIGHTS = ["*.safetensors", "*.json", "*.model", "*.txt", "*.jinja"]


def load_openvino(
    name_or_path: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    quantization: str | None = None,
    revision: str | None = None,
    max_length: int | None = None,
    check: bool = True,
) -> Any:
    """An `OpenVINOModel` by hub id, folder, .gguf file or short name, on the CPU.

    dtype: what is computed in, float32, bfloat16 or float16; "auto" as in `choose_dtype`.
    quantization: "int8" or "int4" rounds the weights, which makes it another model. check: compare
    a few short passes with each other (`rows`).
    The first time a model is converted, which takes a minute or a few. MissingExtraError without
    the extra, UsageError when there is no such model, UnsupportedModelError when OpenVINO cannot
    take it over."""
    require_openvino(quantization)
    from draftproof.models.openvino.model import OpenVINOModel
    from draftproof.models.openvino.passes import lacking
    from draftproof.models.openvino.rows import IDENTICAL, settle_rows

    folder = _folder(str(name_or_path), revision)
    with no_progress_bars():
        config = load_config(folder)
        kinds = check_convertible(config, max_length)
        precision = str(
            choose_dtype(dtype, torch.device("cpu"), _stored_dtype(config))
        ).removeprefix("torch.")
        reason = lacking(precision)
        if reason is not None:
            raise UsageError(f"dtype {precision}: {reason}")
        tokenizer = load_tokenizer(folder, None) if _has_tokenizer(folder) else None
        conversion = _conversion(str(name_or_path), folder, config, kinds, quantization)
        _, num_rows, num_input_ids = conversion.sizes
        generation_config = _generation_config(folder, config)
        model = OpenVINOModel(
            conversion.graph,
            conversion.layers,
            kinds,
            config,
            partial(_module, folder, getattr(torch, precision)),
            num_rows=num_rows,
            num_input_ids=num_input_ids,
            dtype=precision,
            tokenizer=tokenizer,
            generation_config=generation_config,
            eos_token_ids=eos_token_ids(generation_config, config, tokenizer, num_rows),
            name=str(name_or_path)
            if quantization is None
            else f"{name_or_path} ({quantization} weights)",
            max_length=max_length,
            quantization=quantization,
        )
    if check:
        model.rows = settle_rows(model)
        if model.rows != IDENTICAL:
            model.notes += (f"rows of a pass: {model.rows}",)
    return model


def require_openvino(quantization: str | None) -> None:
    """MissingExtraError or UsageError unless OpenVINO is installed and knows the rounding of
    weights."""
    if quantization not in (None, *QUANTIZATIONS):
        raise UsageError(
            f"quantization {quantization!r} is not known; use {' or '.join(QUANTIZATIONS)}"
        )
    for package in ("openvino", *(("nncf",) if quantization else ())):
        if find_spec(package) is None:
            raise MissingExtraError(package, "openvino")


def check_convertible(config: Any, max_length: int | None) -> list[LayerKind]:
    """The kinds of the layers; UnsupportedModelError names what OpenVINO's passes cannot carry
    over."""
    kinds, kind = check_config(config, max_length), type(config).__name__
    for index, layer in enumerate(kinds):
        if layer.attention not in ("full", "window") or layer.num_states or not layer.stores:
            raise UnsupportedModelError(
                f"layer {index} of {kind} is {layer}, which engine 'openvino' does not carry over"
            )
    if counts_places(config, context_limit(config)):
        raise UnsupportedModelError(
            f"{kind} takes the place of a token for its position, which engine "
            "'openvino' does not carry over"
        )
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModelError(
            f"{kind} holds weights quantised before, which engine 'openvino' does not read"
        )
    scaled = length_scaled(config)
    if scaled is not None:
        raise UnsupportedModelError(
            f"{kind} encodes positions by the length of the text ({scaled[0]}), which "
            "engine 'openvino' does not carry over"
        )
    return kinds


def _conversion(
    name: str, folder: Path, config: Any, kinds: Sequence[LayerKind], quantization: str | None
) -> Conversion:
    from draftproof.models.openvino.store import Source, fingerprint, kept

    make = partial(_make, folder, kinds, quantization)
    return kept(Source(fingerprint(folder), quantization), make, partial(_sizes, config), name=name)


def _make(folder: Path, kinds: Sequence[LayerKind], quantization: str | None) -> tuple[Any, Any]:
    """The graph and its layers' attention, after its logits through a cache were compared with the
    module's own."""
    from draftproof.models.openvino.compress import compressed
    from draftproof.models.openvino.graph import trace
    from draftproof.models.openvino.model import OpenVINOModel
    from draftproof.models.openvino.passes import lacking
    from draftproof.models.openvino.store import LARGE
    from draftproof.models.selfcheck import check_forward

    module = _module(folder, torch.float32)
    graph, layers = trace(module, kinds)
    num_weights, num_rows, num_input_ids = _sizes(module.config)
    dtype = "bfloat16" if num_weights >= LARGE and lacking("bfloat16") is None else "float32"
    sizes: dict[str, Any] = {"num_rows": num_rows, "num_input_ids": num_input_ids}
    check_forward(
        OpenVINOModel(
            graph,
            layers,
            kinds,
            module.config,
            lambda: module,
            dtype=dtype,
            name=folder.name,
            **sizes,
        )
    )
    return (graph if quantization is None else compressed(graph, quantization)), layers


def _module(folder: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    with no_progress_bars():
        return AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=dtype, local_files_only=True, attn_implementation="sdpa"
        ).eval()


def _sizes(config: Any) -> tuple[int, int, int]:
    """(weights, rows of the output layer, rows of the embedding) of the module that `config`
    describes; none is read."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        module: Any = AutoModelForCausalLM.from_config(config)
    module.tie_weights()
    rows = (
        module.get_output_embeddings().weight.shape[0],
        module.get_input_embeddings().weight.shape[0],
    )
    return sum(weight.numel() for weight in module.parameters()), *rows


def _folder(name: str, revision: str | None) -> Path:
    """Where the model lies on this machine; a hub id is downloaded first."""
    if is_adapter_folder(Path(name).expanduser()):
        raise UnsupportedModelError(
            f"{name} is an adapter, which engine 'openvino' does not merge; use engine 'torch'"
        )
    place, offline = locate(name, revision)
    if Path(place).is_dir():
        return Path(place)
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            place, revision=revision, allow_patterns=_WEIGHTS, local_files_only=offline
        )
    )


def _has_tokenizer(folder: Path) -> bool:
    found = any(
        (folder / file).is_file()
        for file in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    )
    if not found:
        note(f"{folder} has no tokenizer; prompts must be token ids")
    return found


def _generation_config(folder: Path, config: Any) -> Any:
    from transformers import GenerationConfig

    if (folder / "generation_config.json").is_file():
        return GenerationConfig.from_pretrained(str(folder))
    return GenerationConfig.from_model_config(config)


def _stored_dtype(config: Any) -> torch.dtype:
    stored = getattr(torch, config.dtype, None) if isinstance(config.dtype, str) else config.dtype
    return stored if isinstance(stored, torch.dtype) else torch.float32
