"""How a tokenizer spells text: the bytes of every token, and tokens for any bytes, without what
tokenizers add or clean up.

`encode` and `decode` of a tokenizer put special tokens and spaces in front, tidy spaces, and
replace halves of a character. Two tokenizers can only be compared by the bytes that their tokens
stand for: byte-level spellings (GPT-2's letters for bytes) and SentencePiece's (a mark for the
space, `<0x0A>` for bytes) are both read off the vocabulary here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from draftproof.errors import UsageError

SPACE_MARK = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling(Protocol):
    """specials: special tokens by content. starts: ids that belong before a text. leads_with_space:
    whether a text's first word gets a space of its own."""

    @property
    def specials(self) -> Mapping[str, int]: ...
    @property
    def starts(self) -> tuple[int, ...]: ...
    @property
    def leads_with_space(self) -> bool: ...

    def spelled(self, token: int) -> bytes | None:
        """What a token stands for; None for special tokens and ids without one."""

    def encode(self, data: bytes) -> list[int]:
        """Tokens for `data`, nothing added; what cannot be spelled is left out."""

    def by_bytes(self) -> Mapping[bytes, int]:
        """One token for every spelling that a single token has."""


class TokenizerSpelling:
    """The spelling of a fast transformers tokenizer. UsageError unless its tokens are byte-level or
    SentencePiece's."""

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise UsageError(
                f"{type(tokenizer).__name__} is no fast tokenizer, so its tokens cannot "
                "be compared with others"
            )
        rules = json.loads(backend.to_str())
        decoders = set(_types(rules.get("decoder")))
        self._byte_level = "ByteLevel" in decoders
        if (
            not self._byte_level
            and not decoders & {"ByteFallback", "Metaspace"}
            and not _replaces_mark(rules.get("decoder"))
        ):
            raise UsageError(
                f"{type(tokenizer).__name__} spells tokens neither byte by byte nor in "
                "SentencePiece's way, "
                "so its text cannot be aligned with another tokenizer's"
            )
        self.leads_with_space = _leads_with_space(rules)
        self._plain = _without_additions(rules)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        special = {number: token.content for number, token in added.items() if token.special}
        unknown = getattr(tokenizer, "unk_token_id", None)
        self.specials = {
            content: number for number, content in special.items() if number != unknown
        }
        letters = {letter: byte for byte, letter in enumerate(byte_letters())}
        self._bytes: dict[int, bytes] = {}
        for token, number in tokenizer.get_vocab().items():
            if number in added and number not in special:
                self._bytes[number] = token.encode()
            elif number not in special and number != unknown:
                self._bytes[number] = (
                    _byte_level(token, letters) if self._byte_level else _sentencepiece(token)
                )
        self._single = {
            spelled: number for number, spelled in self._bytes.items() if len(spelled) == 1
        }
        self.starts = _starts(tokenizer)

    def spelled(self, token: int) -> bytes | None:
        return self._bytes.get(token)

    def by_bytes(self) -> dict[bytes, int]:
        """Ordinary tokens before the byte tokens of SentencePiece, lower ids first."""
        order = sorted(self._bytes, key=lambda number: (self._is_byte_token(number), number))
        found: dict[bytes, int] = {}
        for number in order:
            found.setdefault(self._bytes[number], number)
        return found

    def encode(self, data: bytes) -> list[int]:
        ids: list[int] = []
        for run in runs(data):
            if isinstance(run, str):
                ids += [
                    number
                    for number in self._plain.encode(run, add_special_tokens=False).ids
                    if number in self._bytes
                ]
            elif run in self._single:
                ids.append(self._single[run])
        return ids

    def _is_byte_token(self, number: int) -> bool:
        return (
            not self._byte_level
            and len(self._bytes[number]) == 1
            and number == self._single.get(self._bytes[number])
        )


def runs(data: bytes) -> Iterator[str | bytes]:
    """`data` as text where it is valid UTF-8, and single bytes where it is not."""
    while data:
        try:
            yield data.decode()
            return
        except UnicodeDecodeError as error:
            if error.start:
                yield data[: error.start].decode()
            yield data[error.start : error.start + 1]
            data = data[error.start + 1 :]


def whole_characters(data: bytes) -> bytes:
    """`data` without a character that is cut off at its end."""
    for cut in range(min(3, len(data)) + 1):
        head = data[: len(data) - cut]
        try:
            head.decode()
            return head
        except UnicodeDecodeError:
            continue
    return data


def byte_letters() -> list[str]:
    """GPT-2's letter for every byte: itself where it prints, else the next free one from 256 on."""
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printed else chr(next(others)) for byte in range(256)]


def _byte_level(token: str, letters: Mapping[str, int]) -> bytes:
    return (
        bytes(letters[letter] for letter in token)
        if all(letter in letters for letter in token)
        else token.encode()
    )


def _sentencepiece(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(SPACE_MARK, " ").encode()


def _parts(rule: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """A rule of a tokenizer.json, or all those in its sequence."""
    if rule is None:
        return
    if rule["type"] == "Sequence":
        for inner in next(value for key, value in rule.items() if key != "type"):
            yield from _parts(inner)
    else:
        yield rule


def _types(rule: Mapping[str, Any] | None) -> list[str]:
    return [part["type"] for part in _parts(rule)]


def _replaces_mark(rule: Mapping[str, Any] | None) -> bool:
    return any(
        part["type"] == "Replace" and part["pattern"].get("String") == SPACE_MARK
        for part in _parts(rule)
    )


def _leads_with_space(rules: Mapping[str, Any]) -> bool:
    if "Prepend" in _types(rules.get("normalizer")):
        return True
    parts = list(_parts(rules.get("pre_tokenizer")))
    metaspace = any(
        part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never"
        for part in parts
    )
    return metaspace or any(
        part["type"] == "ByteLevel" and part.get("add_prefix_space") for part in parts
    )


def _without_additions(rules: dict[str, Any]) -> Any:
    """A copy of the tokenizer that adds no space and no special token, and reads the text of
    special tokens as text."""
    from tokenizers import Tokenizer

    normalizer = rules.get("normalizer")
    if normalizer is not None and normalizer["type"] == "Prepend":
        rules["normalizer"] = None
    elif normalizer is not None and normalizer["type"] == "Sequence":
        normalizer["normalizers"] = [
            part for part in normalizer["normalizers"] if part["type"] != "Prepend"
        ]
    for part in _parts(rules.get("pre_tokenizer")):
        if part["type"] == "Metaspace":
            part["prepend_scheme"] = "never"  # type: ignore[index]
        elif part["type"] == "ByteLevel":
            part["add_prefix_space"] = False  # type: ignore[index]
    rules["post_processor"] = rules["truncation"] = rules["padding"] = None
    plain = Tokenizer.from_str(json.dumps(rules))
    plain.encode_special_tokens = True
    return plain


def _starts(tokenizer: Any) -> tuple[int, ...]:
    """The special tokens that the tokenizer itself puts before a text."""
    bare: Sequence[int] = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole: Sequence[int] = tokenizer("a")["input_ids"]
    for size in range(len(whole) - len(bare) + 1):
        if list(whole[size : size + len(bare)]) == list(bare):
            return tuple(whole[:size])
    return ()
