"""Stores on disk: safetensors (arrays and text, no code), with a checksum over all arrays and the
vocabulary they belong to.

A file that is damaged, cut short, of another kind or of other tokens is refused in one sentence
before it is used."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import UsageError

FORMAT = "draftproof.store"
VERSION = 1


@dataclass(frozen=True)
class StoreHeader:
    """kind: the method that reads it. vocabulary: fingerprint of the tokenizer, see `fingerprint`.
    vocab_size: ids go below it. num_tokens, num_documents: of the corpus."""

    kind: str
    vocabulary: str
    vocab_size: int
    num_tokens: int
    num_documents: int


@dataclass(frozen=True)
class Store:
    """A store read from `path`, checked."""

    path: str
    header: StoreHeader
    arrays: Mapping[str, NDArray[Any]]


def write_store(path: str | Path, header: StoreHeader, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a store; an existing file is replaced in one step, so that no reader sees half of it.
    UsageError: not writable."""
    from safetensors.numpy import save_file

    path = Path(path)
    ready = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    about = {"format": FORMAT, "version": VERSION, "sha256": _digest(header, ready)} | asdict(
        header
    )
    unfinished = path.with_name(path.name + f".{os.getpid()}.part")
    try:
        save_file(ready, unfinished, metadata={FORMAT: json.dumps(about)})
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UsageError(
            f"the store cannot be written to {path}: {error.strerror or error}"
        ) from error


def read_store(path: str | Path, kind: str) -> Store:
    """A checked store of `kind`. UsageError: no such file, not a store, another version or kind,
    damaged."""
    where = Path(path).expanduser()
    try:
        state = where.stat()
    except OSError as error:
        raise UsageError(f"the store {path} cannot be read: {error.strerror or error}") from error
    store = _read(str(where), state.st_mtime_ns, state.st_size)
    if store.header.kind != kind:
        raise UsageError(
            f"{path} is a store for method {store.header.kind!r}; method {kind!r} needs "
            "one of its own"
        )
    return store


@lru_cache(maxsize=8)
def _read(path: str, modified: int, size: int) -> Store:
    """Once for a file as long as it stays the same: a config is checked several times on its
    way."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get(FORMAT, "null"))
            arrays = {name: file.get_tensor(name) for name in list(file.keys())}
    except Exception as error:  # the reader's own errors differ from version to version
        raise UsageError(
            f"{path} is damaged or no store: {' '.join(str(error).split())[:120]}"
        ) from error
    header = _header(about, path)
    if about.get("sha256") != _digest(header, arrays):
        raise UsageError(
            f"the store {path} is damaged: its checksum does not fit; build it again "
            "with draftproof build-store"
        )
    for array in arrays.values():
        array.setflags(write=False)
    return Store(path, header, arrays)


def _header(about: Any, path: str) -> StoreHeader:
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UsageError(f"{path} is no store: draftproof build-store makes one")
    if about.get("version") != VERSION:
        raise UsageError(
            f"{path} is a store of version {about.get('version')!r}; this draftproof "
            f"reads version {VERSION}"
        )
    try:
        return StoreHeader(**{f.name: about[f.name] for f in fields(StoreHeader)})
    except KeyError as error:
        raise UsageError(
            f"the store {path} is damaged: it does not say its {error.args[0]}"
        ) from error


def _digest(header: StoreHeader, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(asdict(header), sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def fingerprint(tokenizer: Any) -> str:
    """A digest of the tokenizer's token strings and ids; "" for no tokenizer."""
    if tokenizer is None:
        return ""
    vocabulary = sorted((int(number), token) for token, number in tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()


def check_fits(store: Store, tokenizer: Any, vocab_size: int) -> None:
    """UsageError when the store's ids mean other tokens than the target's, or lie outside its
    vocabulary."""
    found = fingerprint(tokenizer)
    if found and store.header.vocabulary and found != store.header.vocabulary:
        raise UsageError(
            f"the store {store.path} was built with another tokenizer than the target's; "
            "build it again"
        )
    if store.header.vocab_size > vocab_size:
        raise UsageError(
            f"the store {store.path} holds ids up to {store.header.vocab_size - 1}; the "
            f"target's go to {vocab_size - 1}"
        )
