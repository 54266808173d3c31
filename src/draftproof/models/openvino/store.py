"""Conversions, kept: made once for a checkpoint's bytes, a rounding of weights and the versions at
work, and checked when read.

A conversion is a folder: `graph.xml` and `graph.bin`, and `about.json` with the layers' attention,
what it is a conversion of, the versions that made it, and the SHA-256 of both files. It is made in
a temporary folder beside its place, under a lock, and takes its place when it is whole, so that an
interruption leaves nothing and two processes make one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from draftproof.errors import UnsupportedModelError, UsageError
from draftproof.models.convert import (
    atomic_folder,
    cache_folder,
    note,
    one_at_a_time,
    remove_left_overs,
)
from draftproof.models.openvino.graph import Attention
from draftproof.models.pull import file_hash

FORMAT = 2
LARGE = 300_000_000
"""Weights from which a conversion is compared with its module in 16 bits where the CPU has them: it
takes less memory."""
_FILES = ("graph.xml", "graph.bin")
Made = Callable[[], "tuple[Any, Sequence[Attention]]"]
Sizes = tuple[int, int, int]
"""Weights of a model, rows of its output layer, rows of its embedding."""


@dataclass(frozen=True)
class Conversion:
    """graph: the file to read. layers: every layer's attention. sizes: of the model."""

    graph: Path
    layers: Sequence[Attention]
    sizes: Sizes


@dataclass(frozen=True)
class Source:
    """What is converted: SHA-256 over a checkpoint, and what its weights are rounded to."""

    checkpoint: str
    quantization: str | None

    @property
    def versions(self) -> dict[str, str]:
        """Of the packages whose work a conversion of this is."""
        packages = ["torch", "transformers", "openvino", *(["nncf"] if self.quantization else [])]
        return {name: version(name) for name in packages}

    @property
    def place(self) -> Path:
        """The folder of the conversion: other weights, rounding or versions have another."""
        facts = [FORMAT, self.checkpoint, self.quantization or "float32", self.versions]
        return conversions() / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def conversions() -> Path:
    """Where conversions are kept."""
    return cache_folder() / "openvino"


def fingerprint(folder: Path) -> str:
    """SHA-256 over config.json and every file of weights in a model's folder. UsageError when it
    has none."""
    weights = sorted({*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")})
    if not weights:
        raise UsageError(f"{folder} has no weights (no .safetensors file)")
    digest = hashlib.sha256()
    for file in (folder / "config.json", *weights):
        digest.update(f"{file.name} {file_hash(file)}\n".encode())
    return digest.hexdigest()


def read(folder: Path) -> Conversion | None:
    """The conversion kept at `folder`, or None when there is none or its files are not those that
    were written."""
    try:
        about = json.loads((folder / "about.json").read_text())
        layers = [Attention(**layer) for layer in about["layers"]]
        if all(file_hash(folder / name) == about["sha256"][name] for name in _FILES):
            return Conversion(folder / "graph.xml", layers, tuple(about["sizes"]))
    except FileNotFoundError:
        if not folder.exists():
            return None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    note(f"the conversion in {folder} is damaged and is made again")
    return None


def kept(source: Source, make: Made, sizes: Callable[[], Sizes], *, name: str) -> Conversion:
    """The conversion of `source`, made by `make` when it is not there or damaged; those that older
    versions made of it are then removed. sizes: gives those of the model.

    UnsupportedModelError when there is no room for it, before anything is made, or nowhere to keep
    it."""
    folder = source.place
    found = read(folder)
    if found is not None:
        return found
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnsupportedModelError(
            f"the conversion of {name} cannot be kept in {folder.parent}: {error}"
        ) from error
    with one_at_a_time(folder.parent) as alone:
        if alone:
            remove_left_overs(folder)
        found = read(folder)  # another process may just have made it
        if found is not None:
            return found
        counted = sizes()
        _require_room(folder, name, counted[0], source.quantization)
        shutil.rmtree(folder, ignore_errors=True)
        with atomic_folder(folder) as work:
            graph, layers = make()
            try:
                _write(work, graph, layers, source, counted)
            except (OSError, RuntimeError) as error:
                raise UnsupportedModelError(
                    f"the conversion of {name} cannot be written to {folder.parent}: {error}"
                ) from error
        note(f"{name} is converted")
        _remove_older(source)
    found = read(folder)
    if found is None:
        raise UnsupportedModelError(f"the conversion of {name} cannot be read back from {folder}")
    return found


def _require_room(folder: Path, name: str, num_weights: int, quantization: str | None) -> None:
    """Say what a conversion takes; UnsupportedModelError when the disk has not as much, or the
    memory."""
    disk = int(num_weights * {None: 4, "int8": 1.1, "int4": 1.1}[quantization]) + (64 << 20)
    memory = int(num_weights * (8 if num_weights < LARGE else 6)) + (1 << 30)
    note(
        f"converting {name} for OpenVINO, once: {_gigabytes(memory)} of memory, "
        f"{_gigabytes(disk)} in {folder.parent}"
    )
    free = shutil.disk_usage(folder.parent).free
    if free < disk:
        raise UnsupportedModelError(
            f"converting {name} takes {_gigabytes(disk)} in {folder.parent}, where "
            f"{_gigabytes(free)} are free"
        )
    there = free_memory()
    if there is not None and there < memory:
        raise UnsupportedModelError(
            f"converting {name} takes about {_gigabytes(memory)} of memory, and "
            f"{_gigabytes(there)} are free"
        )


def free_memory() -> int | None:
    """Bytes of memory that new work may take, where the system tells."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(
                int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
            )
    except (OSError, StopIteration, ValueError):
        return None


def _gigabytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _remove_older(source: Source) -> None:
    """Remove what this checkpoint was converted to, with this rounding, in an older format or by
    versions of which none is newer than now."""
    for about in conversions().glob("[!.]*/about.json"):
        try:
            told = json.loads(about.read_text())
        except (OSError, ValueError):
            continue
        of = told.get("checkpoint"), told.get("quantization")
        mine = of == (source.checkpoint, source.quantization)
        if about.parent == source.place or not (mine or told.get("format", 0) < FORMAT):
            continue
        if told.get("format", 0) < FORMAT or _none_newer(told["versions"], source.versions):
            shutil.rmtree(about.parent, ignore_errors=True)
            note(f"an older conversion is removed: {about.parent}")


def _none_newer(versions: dict[str, str], now: dict[str, str]) -> bool:
    return all(_numbers(versions.get(name, "")) <= _numbers(now[name]) for name in now)


def _numbers(told: str) -> list[int]:
    """2026.4.1 -> [2026, 4, 1]; what stands behind a plus sign is no part of it."""
    return [int(number) for number in re.findall(r"\d+", told.partition("+")[0])]


def _write(
    work: Path, graph: Any, layers: Sequence[Attention], source: Source, sizes: Sizes
) -> None:
    import openvino

    openvino.save_model(graph, work / "graph.xml", compress_to_fp16=False)
    about = {
        "format": FORMAT,
        "checkpoint": source.checkpoint,
        "quantization": source.quantization,
        "versions": source.versions,
        "sizes": sizes,
        "layers": [layer.as_dict() for layer in layers],
        "sha256": {name: file_hash(work / name) for name in _FILES},
    }
    with open(work / "about.json", "w", encoding="utf-8") as sink:
        json.dump(about, sink)
        sink.flush()
        os.fsync(sink.fileno())
