"""GGUF files, converted once: dequantised to a safetensors folder in the user's cache that loads in
seconds afterwards."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import escape as glob_escape
from pathlib import Path
from typing import Any

from draftproof.errors import UsageError

FORM = 2
"""Of what a conversion writes; those of another form are made anew. 1 took parts of a model, and
all as bf16."""

PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
"""How llama.cpp names the parts of a split file."""


def cache_folder() -> Path:
    """Where draftproof keeps models: the environment variable DRAFTPROOF_CACHE, or
    ~/.cache/draftproof."""
    return Path(os.environ.get("DRAFTPROOF_CACHE") or Path.home() / ".cache" / "draftproof")


def note(text: str) -> None:
    """One line of progress on standard error."""
    print(f"draftproof: {text}", file=sys.stderr, flush=True)


def converted_gguf(file: Path) -> Path:
    """The safetensors folder of a GGUF file; made on first use, keyed by the file's place, size and
    time of change."""
    status = file.stat()
    facts = f"{FORM}|{file.resolve()}|{status.st_size}|{status.st_mtime_ns}"
    key = hashlib.sha256(facts.encode()).hexdigest()[:16]
    folder = cache_folder() / "converted" / f"{file.stem}-{key}"
    if not is_model_folder(folder):
        convert_gguf(file, folder)
    return folder


def is_model_folder(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def convert_gguf(file: Path, folder: Path) -> None:
    """Write `file` as a model folder (safetensors, tokenizer with its chat template, generation
    config) at `folder`.

    The folder appears whole or not at all. Weights keep the file's own float type; dequantised
    numbers, which stem from four to eight bits, are bf16, so that every later load works on the
    same weights whatever its dtype. UsageError when the file cannot be read as a whole model: a
    part of a split one, tensors that are missing."""
    part = PART.search(file.name)
    if part is not None and int(part[2]) > 1:
        raise UsageError(
            f"{file} is part {int(part[1])} of {int(part[2])} of a split GGUF file, and "
            "only whole files are read: join the"
            f" parts with llama.cpp's `llama-gguf-split --merge {file.name} WHOLE.gguf`"
        )
    with open(file, "rb") as start:
        if start.read(4) != b"GGUF":
            raise UsageError(f"{file} is not a GGUF file (its first four bytes are not 'GGUF')")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder.parent) as alone:
        if is_model_folder(folder):  # another process has just made it
            return
        if alone:
            remove_left_overs(folder)
        note(
            f"converting {file.name} to safetensors in {folder.parent}, once; this takes "
            "a minute or a few"
        )
        with atomic_folder(folder) as work:
            try:
                with no_progress_bars():
                    module, tokenizer = _read_gguf(file)
                    _tie_equal_layers(module)
                    module.save_pretrained(work)
                    tokenizer.save_pretrained(work)
            except UsageError:
                raise
            except Exception as error:
                raise UsageError(f"{file} cannot be converted: {first_line(error)}") from error


@contextmanager
def one_at_a_time(parent: Path) -> Iterator[bool]:
    """Wait until no other process converts into `parent`. False where the system cannot tell: then
    several may."""
    try:
        place = _locked(parent)
    except (ImportError, OSError):  # Windows, or a file system without locks
        yield False
        return
    try:
        yield True
    finally:
        os.close(place)


def _locked(folder: Path) -> int:
    """A descriptor that holds the lock of `folder` until it is closed, by the end of the process at
    the latest."""
    import fcntl

    place = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"waiting for another process that converts a model into {folder}")
            fcntl.flock(place, fcntl.LOCK_EX)
    except BaseException:
        os.close(place)
        raise
    return place


def remove_left_overs(folder: Path) -> None:
    """Remove what conversions that were killed have left behind."""
    for left in folder.parent.glob(f".{glob_escape(folder.name)}-*"):
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its place when the block succeeds, and is
    removed when it fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield work
        if is_model_folder(folder):
            return
        if folder.exists():
            shutil.rmtree(folder)
        work.chmod(0o755)
        os.replace(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def first_line(error: Exception) -> str:
    """What an error says, in one line; its kind when it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing progress bars while the block runs."""
    from transformers import modeling_gguf_pytorch_utils as gguf
    from transformers.utils import logging

    was_enabled, bar = logging.is_progress_bar_enabled(), getattr(gguf, "tqdm", None)
    logging.disable_progress_bar()
    # its own bar asks nobody whether it may be drawn; this one does
    vars(gguf)["tqdm"] = logging.tqdm
    try:
        yield
    finally:
        vars(gguf)["tqdm"] = bar
        if was_enabled:
            logging.enable_progress_bar()


def _read_gguf(file: Path) -> tuple[Any, Any]:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"gguf_file": file.name, "dtype": getattr(torch, _float_type(file))}
    # without it the weights stay packed, need a kernel from a hub and cannot be saved
    if hasattr(transformers, "GgufConfig"):
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    models: Any = AutoModelForCausalLM
    module, found = models.from_pretrained(str(file.parent), output_loading_info=True, **options)
    require_all(file, found["missing_keys"])
    return module, AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)


def _float_type(file: Path) -> str:
    """The widest float type that matrices of the file are stored in; bfloat16 where some are
    quantised."""
    from gguf import GGMLQuantizationType as Kind
    from gguf import GGUFReader

    kinds = {
        tensor.tensor_type for tensor in GGUFReader(str(file)).tensors if len(tensor.shape) > 1
    }
    if kinds - {Kind.F32, Kind.F16, Kind.BF16}:
        return "bfloat16"
    if Kind.F32 in kinds:
        return "float32"
    return "float16" if Kind.F16 in kinds else "bfloat16"


def require_all(place: str | Path, missing: Iterable[str]) -> None:
    """Raise UsageError with the names of tensors that a checkpoint lacks, and that would be random
    numbers."""
    names = sorted(missing)
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise UsageError(f"{place} is not a whole model: it lacks {', '.join(names[:3])}{more}")


def _tie_equal_layers(module: Any) -> None:
    """Share the output layer with the embedding where the file carried the same numbers twice."""
    import torch

    embedding, output = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    if (
        embedding is not output
        and embedding.shape == output.shape
        and torch.equal(embedding, output)
    ):
        module.config.tie_word_embeddings = True
        module.tie_weights()
