"""Grammars by llguidance (https://github.com/guidance-ai/llguidance): JSON schemas, regular
expressions, Lark and GBNF.

A grammar is compiled once for a tokenizer and a vocabulary; requests begin copies of its first
state. A tokenizer's table takes a second or so and is kept for as long as the tokenizer lives.
"""

from __future__ import annotations

import json
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from draftproof.core.structured import StructuredOutputs
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.core.grammar import Mask

KEPT = 64
"""Compiled grammars of a tokenizer; the one that was asked for the longest ago goes."""
_TABLES: weakref.WeakKeyDictionary[Any, dict[tuple[int, tuple[int, ...]], _Table]] = (
    weakref.WeakKeyDictionary()
)
_MAKING = Lock()


def compile_grammar(
    asked: StructuredOutputs, tokenizer: Any, *, vocab_size: int, eos_token_ids: Sequence[int]
) -> GuidanceGrammar:
    """The grammar over the ids of `tokenizer`. vocab_size: the target's, whose ids beyond the
    tokenizer's are never allowed.

    UsageError: llguidance is not installed, a grammar that is wrong, or a tokenizer it cannot read
    (a slow one)."""
    tables = _TABLES.setdefault(tokenizer, {})
    key = (vocab_size, tuple(eos_token_ids))
    with _MAKING:
        if key not in tables:
            tables[key] = _Table(_made(tokenizer, vocab_size, list(eos_token_ids) or None))
        known = tables[key].grammars
        if asked not in known:
            known[asked] = _compiled(asked, tables[key].tokens, vocab_size)
            while len(known) > KEPT:
                known.popitem(last=False)
        known.move_to_end(asked)
        return known[asked]


@dataclass
class _Table:
    """llguidance's form of a tokenizer, and the grammars compiled for it, the latest last."""

    tokens: Any
    grammars: OrderedDict[StructuredOutputs, GuidanceGrammar] = field(default_factory=OrderedDict)


def _compiled(asked: StructuredOutputs, table: Any, vocab_size: int) -> GuidanceGrammar:
    guidance = _library()
    try:
        text = _as_text(guidance, asked)
    except ValueError as error:
        raise UsageError(
            f"structured_outputs.{asked.kind} cannot be used: {_in_short(error)}"
        ) from error
    matcher = guidance.LLMatcher(table, text, log_level=0)
    if matcher.is_error():
        raise UsageError(
            f"structured_outputs.{asked.kind} cannot be used: {_in_short(matcher.get_error())}"
        )
    return GuidanceGrammar(asked, matcher, vocab_size)


class GuidanceGrammar:
    """See `draftproof.core.grammar.Grammar`."""

    def __init__(self, asked: StructuredOutputs, matcher: Any, vocab_size: int) -> None:
        self.asked, self._matcher, self.vocab_size = asked, matcher, vocab_size

    def as_dict(self) -> dict[str, Any]:
        """What was asked for, as JSON has it."""
        return self.asked.as_dict()

    def begin(self) -> GuidanceMatcher:
        return GuidanceMatcher(self._matcher.deep_copy(), self.vocab_size)


class GuidanceMatcher:
    """See `draftproof.core.grammar.Matcher`. A matcher that can take no more characters has
    stopped, and its mask is the end tokens; after one of those nothing may come."""

    def __init__(self, matcher: Any, vocab_size: int, ended: bool = False) -> None:
        self._matcher, self._vocab_size, self._ended = matcher, vocab_size, ended

    def fork(self) -> GuidanceMatcher:
        return GuidanceMatcher(self._matcher.deep_copy(), self._vocab_size, self._ended)

    def consume(self, token: int) -> bool:
        if self._matcher.is_stopped():
            allowed = bool(self.mask()[token])
            self._ended = True
            return allowed
        taken = bool(self.mask()[token]) and bool(
            self._matcher.try_consume_tokens([int(token)]) == 1
        )
        self._check()
        self._ended = taken and self._matcher.stop_reason() == "EndOfSentence"
        return taken

    def mask(self) -> Mask:
        found = np.zeros(self._vocab_size, bool)
        if not self._ended:
            bits = np.unpackbits(
                np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little"
            )
            size = min(len(bits), self._vocab_size)
            found[:size] = bits[:size]
            self._check()
        return found

    def _check(self) -> None:
        """UsageError where llguidance has given up, which would look like a text without an end."""
        if self._matcher.is_error():
            raise UsageError(
                "structured_outputs asks for more than llguidance keeps track of: "
                f"{_in_short(self._matcher.get_error())}"
            )

    def forced(self) -> tuple[int, ...]:
        return () if self._matcher.is_stopped() else tuple(self._matcher.compute_ff_tokens())


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise UsageError(
            "structured_outputs needs llguidance: pip install 'draftproof[grammar]'"
        ) from error
    return llguidance


def _made(tokenizer: Any, vocab_size: int, eos_token_ids: list[int] | None) -> Any:
    guidance = _library()
    # a table of bytes, token by token
    if hasattr(tokenizer, "tokens") and hasattr(tokenizer, "eos_token_id"):
        return guidance.LLTokenizer(
            guidance.TokenizerWrapper(tokenizer), n_vocab=vocab_size, eos_token=eos_token_ids
        )
    try:
        from llguidance.hf import from_tokenizer

        return from_tokenizer(
            tokenizer, n_vocab=max(vocab_size, len(tokenizer)), eos_token=eos_token_ids
        )
    except Exception as error:  # it says what it cannot read in many ways
        raise UsageError(
            f"structured_outputs cannot read this tokenizer: {_in_short(error)}"
        ) from error


def _as_text(guidance: Any, asked: StructuredOutputs) -> str:
    matcher = guidance.LLMatcher
    if asked.kind in ("json", "json_object"):
        found = matcher.grammar_from_json_schema(asked.json or '{"type": "object"}')
    elif asked.kind == "regex":
        found = matcher.grammar_from_regex(asked.regex)
    elif asked.kind == "choice":
        found = matcher.grammar_from_lark(
            "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(one) for one in asked.choice)
        )
    else:
        found = guidance.grammar_from("grammar", asked.grammar)
    text: str = found
    return text


def _in_short(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [
        type(error).__name__
    ]
    reason = next((line for line in lines[1:] if line.startswith("error")), "")
    return f"{lines[0]} {reason}".strip()
