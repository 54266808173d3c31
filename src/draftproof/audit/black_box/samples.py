"""Texts of an engine: prompts and the ids that came back, kept line by line, so that an audit that
is interrupted goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError

Ids = tuple[int, ...]


class TextEngine(Protocol):
    """An engine of which only texts are seen. name: for the report."""

    name: str

    def sample(self, prompt: Ids, params: SamplingParams, seed: int) -> Ids:
        """The ids of one text after `prompt`. UsageError for whatever keeps it from giving them."""


@dataclass(frozen=True)
class Sample:
    """One text. number: its place in the audit, which is its seed's too."""

    number: int
    prompt: Ids
    output: Ids


class Folder:
    """`samples.jsonl` and `control.jsonl`, a line a text, under `audit.json`, which says what was
    asked."""

    def __init__(self, path: Path, asked: Mapping[str, Any]) -> None:
        """UsageError when the folder holds another audit, or cannot be written. Writes nothing
        yet."""
        self.path, self._asked = path, json.loads(json.dumps(asked))
        if path.exists() and not path.is_dir():
            raise UsageError(f"cannot keep samples in {path}: it is a file; name a folder")
        nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        if not os.access(nearest, os.W_OK):
            raise UsageError(
                f"cannot keep samples in {path}: you may not write there; name another folder"
            )
        self._check_same()

    def _check_same(self) -> None:
        header = self.path / "audit.json"
        if not header.exists():
            return
        before = _read_json(header)
        for key in sorted({*before, *self._asked}):
            if before.get(key) != self._asked.get(key):
                raise UsageError(
                    f"{self.path} holds an audit with {key} {before.get(key)!r}, and "
                    f"this one has {self._asked.get(key)!r}; "
                    "ask the same, or name another folder"
                )

    def read(self, name: str) -> list[Sample]:
        """The texts kept so far; a last line that was cut off is left out, and cut off the file."""
        file = self.path / f"{name}.jsonl"
        if not file.exists():
            return []
        whole = file.read_bytes()
        kept = whole[: whole.rfind(b"\n") + 1]
        if kept != whole:
            file.write_bytes(kept)
        return [_sample(file, number, line) for number, line in enumerate(kept.splitlines())]

    def append(self, name: str, sample: Sample) -> None:
        """Keep one more text."""
        self.path.mkdir(parents=True, exist_ok=True)
        header = self.path / "audit.json"
        if not header.exists():
            header.write_text(json.dumps(self._asked, indent=1) + "\n", encoding="utf-8")
        line = {
            "number": sample.number,
            "prompt": list(sample.prompt),
            "output": list(sample.output),
        }
        with (self.path / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    return document if isinstance(document, dict) else {}


def _sample(file: Path, number: int, line: bytes) -> Sample:
    try:
        record = json.loads(line)
        found = Sample(
            int(record["number"]),
            tuple(map(int, record["prompt"])),
            tuple(map(int, record["output"])),
        )
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{file} line {number + 1} is no sample of an audit: {error}") from error
    if found.number != number:
        raise UsageError(
            f"{file} line {number + 1} is text {found.number}; lines are missing or in "
            "another order"
        )
    return found


def sampled(
    engine: TextEngine,
    prompts: Sequence[Ids],
    params: SamplingParams,
    num_texts: int | None,
    *,
    folder: Folder | None = None,
    name: str = "samples",
    check: Callable[[Sample], None] = lambda sample: None,
    tell: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Iterator[Sample]:
    """Texts number 0, 1, ..., the prompts in turn, each with a seed of its own; those in `folder`
    first. num_texts: None goes on for ever."""
    kept = [] if folder is None else folder.read(name)
    yield from kept[:num_texts]
    number = len(kept)
    first = 0 if params.seed is None else params.seed
    while num_texts is None or number < num_texts:
        prompt = prompts[number % len(prompts)]
        one = Sample(number, prompt, engine.sample(prompt, params, first + number))
        check(one)
        if folder is not None:
            folder.append(name, one)
        number += 1
        tell(f"texts of {engine.name}", number, num_texts or number)
        yield one
