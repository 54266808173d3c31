"""Prompts the target makes up itself: it is shown a chat up to where the user would begin to write,
and goes on as the user.

An instruction-tuned model has seen so many questions that it writes plausible ones out of nothing
(Xu et al. 2024, Magpie, arXiv 2406.08464). They cover what the target was tuned on in about its own
proportions, which no list of topics does.

Every question has its number, which is its seed: the same ones come out in any batch and after any
interruption."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.core.params import SamplingParams
from draftproof.decode.base import PlainDecoder
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.train.prompts import TrainPrompt

SOURCE = "invented"
FEWEST_WORDS = 3
_MARK = "the user's words"


@dataclass(frozen=True)
class Inventing:
    """count: questions begun. Those that do not end within `max_tokens`, have fewer than three
    words or were made up before are left out, so fewer are kept. temperature, seed: how they are
    drawn. batch_size: questions at a time."""

    count: int
    temperature: float = 0.9
    max_tokens: int = 96
    seed: int = 0
    batch_size: int = 32

    def params(self, number: int) -> SamplingParams:
        """The parameters of question `number`."""
        seed = (self.seed << 32) + number
        return SamplingParams(temperature=self.temperature, max_tokens=self.max_tokens, seed=seed)


def invent(
    target: LanguageModel,
    tokenizer: Any,
    how: Inventing,
    path: str | Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Append the questions to the JSON-lines file `path`, one {"prompt", "source", "number"} each
    as soon as it is there; the number of prompts the file then holds. Questions whose numbers are
    in the file are not written again.

    UsageError: a tokenizer without a chat template, or whose template puts nothing before the
    user's words; a file of other lines than these."""
    opening = opening_of_a_question(tokenizer)
    kept, done = _already(Path(path))
    open_ones = [number for number in range(how.count) if number not in done]
    if not open_ones:
        return len(kept)
    params = [how.params(number) for number in open_ones]
    asked = PlainDecoder(target).as_finished(
        [opening] * len(open_ones), params, batch_size=how.batch_size
    )
    with Path(path).open("a", encoding="utf-8") as file:
        for finished, (index, result) in enumerate(asked, 1):
            progress(how.count - len(open_ones) + finished, how.count)
            text = tokenizer.decode(list(result.token_ids), skip_special_tokens=True).strip()
            if result.finish_reason != "stop" or len(text.split()) < FEWEST_WORDS or text in kept:
                continue
            kept.add(text)
            file.write(
                json.dumps({"prompt": text, "source": SOURCE, "number": open_ones[index]}) + "\n"
            )
            file.flush()
    return len(kept)


def opening_of_a_question(tokenizer: Any) -> list[int]:
    """The ids of a chat up to where its first user begins to write."""
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError(
            "this tokenizer has no chat template, so the target cannot be shown where a "
            "user's turn begins"
        )
    text = tokenizer.apply_chat_template(
        list(TrainPrompt.ask(_MARK, SOURCE).messages), tokenize=False
    )
    before, found, _ = text.partition(_MARK)
    ids = list(tokenizer.encode(before, add_special_tokens=False))
    if not found or not ids:
        raise UsageError(
            "this tokenizer's chat template puts nothing before the user's words: the "
            "target cannot make any up"
        )
    return ids


def _already(path: Path) -> tuple[set[str], set[int]]:
    """The questions of an earlier run and their numbers; a torn last line is cut off."""
    if not path.exists():
        return set(), set()
    lines = path.read_bytes().split(b"\n")
    if lines[-1]:
        path.write_bytes(b"\n".join([*lines[:-1], b""]))
    entries = [_entry(line, path, number) for number, line in enumerate(lines[:-1], 1)]
    return {entry["prompt"] for entry in entries}, {entry["number"] for entry in entries}


def _entry(line: bytes, path: Path, number: int) -> Mapping[str, Any]:
    try:
        entry = json.loads(line)
        if (
            isinstance(entry, Mapping)
            and isinstance(entry["prompt"], str)
            and isinstance(entry["number"], int)
        ):
            return entry
    except (ValueError, KeyError):
        pass
    raise UsageError(f"{path}, line {number} is no question made up before; name another file")
