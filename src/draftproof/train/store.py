"""Texts to train on, on disk: token ids in shards, and an index of one JSON line an answer.

    data.json       what was asked for: target, parameters, format
    0000.tokens     token ids, prompt and answer of one text after another, little-endian uint16
                    (uint32 above 65,536 ids)
    0000.jsonl      {"key", "source", "start", "prompt", "answer", "temperature", "seed", "finish"}:
                    where a text begins in the
                    shard, counted in tokens, and how many of its tokens are prompt and answer

An answer is appended, tokens first, as soon as it is there. After an interruption a torn end is cut
off and writing goes on; what was written stays. Several writers may share a folder when each has
its own `part`, the first letters of its file names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from draftproof.errors import UsageError

ANSWERS_PER_SHARD = 2000
FORMAT = 1


@dataclass(frozen=True)
class Text:
    """One text: `tokens[:prompt]` was asked, `tokens[prompt:]` is the answer. seed, temperature,
    finish: how it was written; None for a text of the user's own."""

    key: str
    source: str
    tokens: tuple[int, ...]
    prompt: int
    temperature: float | None = None
    seed: int | None = None
    finish: str | None = None

    @property
    def answer(self) -> int:
        """How many tokens the answer has."""
        return len(self.tokens) - self.prompt


class TextWriter:
    """Appends texts to a folder. about: what all of them share (target, parameters); a folder of
    other texts is refused."""

    def __init__(
        self, folder: str | Path, about: Mapping[str, Any], vocab_size: int, part: str = ""
    ) -> None:
        self.folder, self.part = Path(folder), part
        self.dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._claim({"format": FORMAT, "dtype": self.dtype.str, "vocab_size": vocab_size, **about})
        self.done: set[str] = set()
        self._number = self._count = 0
        for index in sorted(self.folder.glob("*.jsonl")):
            mine = index.stem.rstrip("0123456789") == part
            entries = _entries(index, index.with_suffix(".tokens"), self.dtype, repair=mine)
            self.done.update(entry["key"] for entry in entries)
            if mine:
                self._number, self._count = int(index.stem[len(part) :]), len(entries)

    def append(self, text: Text) -> None:
        """Write one text; it is on disk when this returns."""
        if self._count >= ANSWERS_PER_SHARD:
            self._number, self._count = self._number + 1, 0
        path = self.folder / f"{self.part}{self._number:04}.tokens"
        with path.open("ab") as tokens:
            start = tokens.tell() // self.dtype.itemsize
            tokens.write(np.asarray(text.tokens, self.dtype).tobytes())
        entry = {name: value for name, value in asdict(text).items() if name != "tokens"} | {
            "start": start,
            "answer": text.answer,
        }
        with path.with_suffix(".jsonl").open("a", encoding="utf-8") as index:
            index.write(json.dumps(entry) + "\n")
        self._count += 1
        self.done.add(text.key)

    def _claim(self, about: Mapping[str, Any]) -> None:
        path = self.folder / "data.json"
        if not path.exists():
            path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            return
        before = read_about(self.folder)
        for name in sorted({*before, *about}):
            if before.get(name) != about.get(name):
                raise UsageError(
                    f"{self.folder} holds texts written with {name} "
                    f"{before.get(name)!r}, not {about.get(name)!r}: "
                    "go on with the same settings, or name another folder"
                )


def read_about(folder: str | Path) -> dict[str, Any]:
    """What the texts of a folder share. UsageError when it is no such folder, or of another
    version."""
    path = Path(folder) / "data.json"
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} is no folder of training texts: {path.name} cannot be read ({error})"
        ) from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UsageError(f"{path} has another format than {FORMAT}; write the texts again")
    return about


def read_texts(folder: str | Path) -> list[Text]:
    """All texts of a folder, ordered by key, so that their order does not depend on when each was
    written."""
    about = read_about(folder)
    dtype = np.dtype(about["dtype"])
    texts = [
        text for index in sorted(Path(folder).glob("*.jsonl")) for text in _shard(index, dtype)
    ]
    if not texts:
        raise UsageError(f"{folder} holds no texts yet")
    return sorted(texts, key=lambda text: (text.key, text.seed or 0))


def shortened(texts: Sequence[Text], length: int) -> list[Text]:
    """The texts cut to `length` tokens; those whose prompt alone is as long are left out."""
    return [
        replace(text, tokens=text.tokens[:length]) for text in texts if text.prompt + 1 < length
    ]


def _shard(index: Path, dtype: np.dtype[Any]) -> Iterator[Text]:
    file = index.with_suffix(".tokens")
    entries = _entries(index, file, dtype)
    tokens = np.fromfile(file, dtype) if entries else np.empty(0, dtype)
    for entry in entries:
        start, length = entry.pop("start"), entry["prompt"] + entry.pop("answer")
        yield Text(tokens=tuple(int(token) for token in tokens[start : start + length]), **entry)


def _entries(
    index: Path, file: Path, dtype: np.dtype[Any], *, repair: bool = False
) -> list[dict[str, Any]]:
    """The whole entries of an index whose tokens are there; with `repair`, both files are cut to
    them."""
    available = file.stat().st_size // dtype.itemsize if file.exists() else 0
    entries: list[dict[str, Any]] = []
    size = end = 0
    for line in index.read_bytes().splitlines(keepends=True):
        try:
            entry = json.loads(line)
        except ValueError:
            break
        last = entry["start"] + entry["prompt"] + entry["answer"]
        if not line.endswith(b"\n") or last > available:
            break
        entries.append(entry)
        size, end = size + len(line), last
    if repair:
        _cut(index, size)
        _cut(file, end * dtype.itemsize)
    return entries


def _cut(path: Path, size: int) -> None:
    if path.exists() and path.stat().st_size > size:
        with path.open("r+b") as file:
            file.truncate(size)
