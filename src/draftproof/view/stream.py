"""A saved stream of server-sent events as a run: what `curl -N` wrote from vLLM, from another
OpenAI server, or from ours.

Parts that have `rounds` (our server's `return_rounds`) are shown as those rounds. Of any other
part the page shows what it says: the text of one pass, token by token where the request asked for
`logprobs`; which of them were drafted no such server tells, so all are `plain`. A part may hold
several passes where the server joins them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from draftproof.errors import UsageError

SAID = "tokens of one part; which were drafted this server does not say"
NO_ID = -1


def is_stream(path: Path) -> bool:
    """Whether the file's first line that is not empty is one of an event."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            first = next((line for line in lines if line.strip()), "")
    except OSError:
        return False
    return first.lstrip("\ufeff").startswith(("data:", "event:", ":"))


def stream_data(path: Path) -> dict[str, Any]:
    """The run in the stream `path`, as `data.run_data` gives one. UsageError: an event that is no
    JSON of the kind, named by its line."""
    rounds: list[dict[str, Any]] = []
    model, num_prompt_tokens = "", 0
    for number, part in _parts(path):
        try:
            model = str(part.get("model") or model)
            num_prompt_tokens = (part.get("usage") or {}).get("prompt_tokens", num_prompt_tokens)
            for choice in part.get("choices") or ():
                rounds += _rounds(choice)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{path} line {number} is no part of a completion as OpenAI's API streams it"
            ) from error
    start = num_prompt_tokens
    for shown in rounds:
        shown.setdefault("start", start)
        start += len(shown["tokens"])
    return {
        "name": path.name,
        "target": model,
        "method": "stream",
        "rule": None,
        "num_prompt_tokens": num_prompt_tokens,
        "rounds": rounds,
        "acceptance": [],
    }


def _parts(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and JSON of every event; a last line that broke off is left out."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("data:").strip()
        if not line.startswith("data:") or text in ("", "[DONE]"):
            continue
        try:
            part = json.loads(text)
        except ValueError as error:
            if number == len(lines):
                return
            raise UsageError(f"{path} line {number} is not JSON") from error
        if not isinstance(part, dict) or "error" in part:
            raise UsageError(f"{path} line {number} is an error of the server: {text[:200]}")
        yield number, part


def _rounds(choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a part's choice shows: its rounds, or one round of its text."""
    texts, best = _tokens(choice)
    given = choice.get("rounds")
    if given is None:
        return [_plain(texts, best, choice.get("index", 0))] if texts else []
    at = 0
    for shown in given:
        size = len(shown["tokens"])
        shown["best"] = best[at : at + size]
        at += size
    return list(given)


def _tokens(choice: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """The texts of a choice's tokens, and of each the target's best with their probabilities; the
    whole text as one where the server did not give logprobs."""
    content = (choice.get("logprobs") or {}).get("content")
    if content:
        best = [
            [[t["token"], math.exp(t["logprob"])] for t in token.get("top_logprobs") or ()]
            for token in content
        ]
        return [token["token"] for token in content], best
    delta = choice.get("delta") or {}
    text = choice.get("text") or delta.get("content") or delta.get("reasoning_content")
    return ([str(text)] if text else []), [None]


def _plain(texts: list[str], best: list[Any], sample: int) -> dict[str, Any]:
    return {
        "tokens": [NO_ID] * len(texts),
        "texts": texts,
        "origins": ["plain"] * len(texts),
        "draft_tokens": [],
        "draft_texts": [],
        "draft_parents": [],
        "accepted": [],
        "reached": 0,
        "drafter": None,
        "note": SAID if len(texts) > 1 else None,
        "seconds": [0, 0, 0],
        "sample": sample,
        "best": best,
    }
