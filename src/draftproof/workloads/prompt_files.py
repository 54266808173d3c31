"""The prompts of a run, each with the workload it belongs to: from a file, from Spec-Bench's
questions, or the built-in set.

A file is plain text (prompts separated by a line of `---`; without one, the whole file is one
prompt) or JSON lines. A line holds `prompt` (text), `messages` (a chat) or Spec-Bench's `turns`
(the first is the prompt; `conversations.py` asks the others), with `category` or `source` as the
workload and, for planning, an `answer`. What is wrong is told in one sentence with the number of
the line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.decode.prompts import Prompt, prompt_ids
from draftproof.decode.template import OPTION_NAMES, TemplateOptions, check_messages
from draftproof.errors import UsageError
from draftproof.workloads.builtin_prompts import BUILTIN

SEPARATOR = "---"


@dataclass(frozen=True)
class Item:
    """One prompt. workload: its kind, for tables. where: file and line, for messages. answer: a
    text to plan on, if given. later: what the user says in the turns that follow. chat: the fields
    of `TemplateOptions` it sets."""

    prompt: Prompt
    workload: str
    where: str
    answer: str | None = None
    later: tuple[str, ...] = ()
    chat: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Encoded:
    """An item as token ids; `answer_ids` are empty unless an answer was given."""

    item: Item
    ids: tuple[int, ...]
    answer_ids: tuple[int, ...] = ()


def builtin_items(workloads: Sequence[str] = ()) -> list[Item]:
    """The built-in prompts of these workloads (all if none is named)."""
    unknown = [name for name in workloads if name not in BUILTIN]
    if unknown:
        raise UsageError(
            f"there is no built-in workload {unknown[0]!r}; allowed: {', '.join(BUILTIN)}"
        )
    return [
        Item([{"role": "user", "content": text}], name, f"built-in {name} prompt {number}")
        for name, texts in BUILTIN.items()
        if not workloads or name in workloads
        for number, text in enumerate(texts, 1)
    ]


def read_items(path: str | Path) -> list[Item]:
    """The prompts of a file. UsageError: not readable, empty, not JSON where JSON began, a line
    without a prompt."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    except OSError as error:
        raise UsageError(
            f"the prompt file {path} cannot be read: {error.strerror or error}"
        ) from error
    if not text.strip():
        raise UsageError(f"{path} is empty; give at least one prompt")
    if Path(path).suffix in (".jsonl", ".json") or text.lstrip().startswith("{"):
        return _json_items(str(path), text)
    return _text_items(str(path), text)


def choose(
    items: Sequence[Item], per_workload: int | None, workloads: Sequence[str] = ()
) -> list[Item]:
    """The items of these workloads (all if none is named), the first `per_workload` of each;
    UsageError for unknown ones."""
    known = list(dict.fromkeys(item.workload for item in items))
    for name in workloads:
        if name not in known:
            raise UsageError(f"no prompt is of workload {name!r}; there are: {', '.join(known)}")
    seen: Counter[str] = Counter()
    chosen: list[Item] = []
    for item in items:
        if workloads and item.workload not in workloads:
            continue
        seen[item.workload] += 1
        if per_workload is None or seen[item.workload] <= per_workload:
            chosen.append(item)
    return chosen


def encode(
    items: Sequence[Item], tokenizer: Any, vocab_size: int, max_length: int | None, max_tokens: int
) -> list[Encoded]:
    """Token ids of every item; a chat without a template is read as the text of its last message.

    UsageError, with the line, for a prompt that leaves no room for `max_tokens` in a context of
    `max_length`."""
    encoded = []
    for item in items:
        prompt: Any = item.prompt
        if (
            not isinstance(prompt, str)
            and _is_chat(prompt)
            and not getattr(tokenizer, "chat_template", None)
        ):
            prompt = str(prompt[-1].get("content") or "")
        try:
            ids = prompt_ids(prompt, tokenizer, vocab_size, TemplateOptions.of(item.chat))
        except UsageError as error:
            raise UsageError(f"{item.where}: {error}") from error
        if max_length is not None and len(ids) + max_tokens > max_length:
            raise UsageError(
                f"{item.where}: the prompt has {len(ids)} tokens and {max_tokens} are to "
                f"follow; the context holds {max_length}"
            )
        answer = tokenizer.encode(item.answer, add_special_tokens=False) if item.answer else ()
        encoded.append(Encoded(item, ids, tuple(answer)[:max_tokens]))
    return encoded


def _is_chat(prompt: Any) -> bool:
    return bool(prompt) and isinstance(prompt[0], Mapping)


def _text_items(path: str, text: str) -> list[Item]:
    items, start, lines = [], 1, [*text.split("\n"), SEPARATOR]
    for number, line in enumerate(lines, 1):
        if line.strip() != SEPARATOR:
            continue
        block = "\n".join(lines[start - 1 : number - 1]).strip("\n")
        if block.strip():
            items.append(
                Item([{"role": "user", "content": block}], Path(path).stem, f"{path} line {start}")
            )
        start = number + 1
    if not items:
        raise UsageError(f"{path} holds no prompt between its lines of {SEPARATOR}")
    return items


def _json_items(path: str, text: str) -> list[Item]:
    items = []
    for number, line in enumerate(text.split("\n"), 1):  # not splitlines(): JSON may hold U+2028
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{where} is not JSON ({error}); every line must be one JSON object"
            ) from error
        if not isinstance(record, Mapping):
            raise UsageError(
                f"{where} is a {type(record).__name__}; every line must be one JSON object"
            )
        workload = (
            record.get("category")
            or record.get("workload")
            or record.get("source")
            or Path(path).stem
        )
        answer = record.get("answer")
        if answer is not None and not isinstance(answer, str):
            raise UsageError(f"{where}: 'answer' must be text")
        chat = {name: record[name] for name in OPTION_NAMES if name in record}
        items.append(
            Item(
                _prompt(record, where),
                str(workload),
                where,
                answer,
                _later_turns(record, where),
                chat,
            )
        )
    return items


def _prompt(record: Mapping[str, Any], where: str) -> Prompt:
    """The prompt of one line, as chat messages."""
    if "messages" in record:
        messages = record["messages"]
        try:
            check_messages(messages)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
        return [dict(message) for message in messages]
    turns = record.get("turns")
    text = turns[0] if isinstance(turns, list) and turns else record.get("prompt")
    if not isinstance(text, str) or not text.strip():
        keys = ", ".join(sorted(record)) or "none"
        raise UsageError(
            f"{where} has no text under 'prompt', 'messages' or 'turns'; its keys: {keys}"
        )
    return [{"role": "user", "content": text}]


def _later_turns(record: Mapping[str, Any], where: str) -> tuple[str, ...]:
    turns = record.get("turns")
    if "messages" in record or not isinstance(turns, list):
        return ()
    if not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise UsageError(f"{where}: 'turns' must be a list of texts, none of them empty")
    return tuple(turns[1:])
