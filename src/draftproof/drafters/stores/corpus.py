"""From files of text to documents of token ids, and from those to a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.drafters.stores.files import StoreHeader, fingerprint
from draftproof.drafters.stores.ngram_tables import build_tables
from draftproof.drafters.stores.suffix_array import build_suffix_array
from draftproof.errors import UsageError

BUILDERS: dict[str, Callable[[Sequence[NDArray[Any]]], dict[str, NDArray[Any]]]] = {
    "ngram_cache": build_tables,
    "retrieval": build_suffix_array,
}
"""Method -> the arrays of its store."""


def corpus_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files named, and those under the folders named, sorted, hidden ones left out. UsageError:
    nothing there."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(
                p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path))
            )
            if not found:
                raise UsageError(f"the folder {path} holds no file")
            files += found
        elif path.is_file():
            files.append(path)
        else:
            raise UsageError(f"there is no file or folder {path}")
    return files


def read_documents(path: Path) -> Iterator[str]:
    """The texts of one file: of a .jsonl file the "text" (or "answer") of every line, else the
    whole file. UsageError: not UTF-8, not JSON, a line without text."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    if path.suffix != ".jsonl":
        yield text
        return
    # JSON may hold U+2028, where splitlines() would cut
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _text_of(line, f"{path} line {number}")


def build_store(
    kind: str, documents: Sequence[Sequence[int]], tokenizer: Any
) -> tuple[StoreHeader, Mapping[str, NDArray[Any]]]:
    """The header and arrays of a store for method `kind` over documents of token ids. UsageError:
    unknown kind, no token."""
    if kind not in BUILDERS:
        raise UsageError(f"method {kind!r} reads no store; allowed: {', '.join(BUILDERS)}")
    ids = [np.asarray(document, np.int64) for document in documents if len(document)]
    if not ids:
        raise UsageError("the corpus holds no token")
    num_tokens = sum(len(document) for document in ids)
    highest = max(int(document.max()) for document in ids)
    header = StoreHeader(kind, fingerprint(tokenizer), highest + 1, num_tokens, len(ids))
    return header, BUILDERS[kind](ids)


def _text_of(line: str, where: str) -> str:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    text = record.get("text", record.get("answer")) if isinstance(record, Mapping) else None
    if not isinstance(text, str):
        raise UsageError(f'{where} has no text under "text" or "answer"')
    return text


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
