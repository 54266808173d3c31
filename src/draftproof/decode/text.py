"""Ids to text, one token at a time, never splitting a character.

A token may end inside a multi-byte character; its text is held back until the character is whole.
The pieces joined are the text of all ids decoded at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

_UNFINISHED = "\ufffd"


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that decoding needs."""

    def decode(self, token_ids: Sequence[int], **options: bool) -> str: ...


def decode_all(tokenizer: Tokenizer, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
    """The text of `token_ids`, spaces left as they are."""
    return tokenizer.decode(
        list(token_ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
    )


class Detokenizer:
    """`text` grows by whole characters as ids are pushed; `close` adds what is held back.

    Each push decodes a short window: the ids of the last finished piece, for the spaces that depend
    on a left neighbour, and those after it. `ends[i]` is the length of the text once token i was
    pushed.

    keeps_written: keep the text with its special tokens too, as `written`, where stop strings are
    looked for."""

    def __init__(
        self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True, keeps_written: bool = False
    ) -> None:
        self._tokenizer, self._skip = tokenizer, skip_special_tokens
        self._ids: list[int] = []
        self._window, self._read = 0, 0
        self.text = ""
        self.ends: list[int] = []
        apart = keeps_written and skip_special_tokens
        self.written: Detokenizer = (
            Detokenizer(tokenizer, skip_special_tokens=False) if apart else self
        )
        """The same ids as the model wrote them, special tokens included; itself where these are not
        left out."""

    def push(self, token: int) -> str:
        """Add one id; the text that became final."""
        piece = self._push(token)
        self.ends.append(len(self.text))
        if self.written is not self:
            self.written.push(token)
        return piece

    def shown(self, place: int) -> int:
        """How much of `text` stands before character `place` of `written`: a special token that is
        left out has no length."""
        if self.written is self:
            return place
        token = bisect_right(self.written.ends, place)
        before, start = (self.ends[token - 1], self.written.ends[token - 1]) if token else (0, 0)
        return min(
            before + place - start, self.ends[token] if token < len(self.ends) else len(self.text)
        )

    def _push(self, token: int) -> str:
        self._ids.append(token)
        before, after = self._decode(self._window, self._read), self._decode(self._window, None)
        if after.endswith(_UNFINISHED) or len(after) <= len(before):
            return ""
        return self._advance(after[len(before) :])

    def close(self) -> str:
        """The rest of the text, replacement marks for bytes that never became a character
        included."""
        whole = decode_all(self._tokenizer, self._ids, self._skip)
        return self._advance(
            whole[len(self.text) :] if whole.startswith(self.text) else self._pending()
        )

    def _pending(self) -> str:
        return self._decode(self._window, None)[len(self._decode(self._window, self._read)) :]

    def _advance(self, piece: str) -> str:
        self._window, self._read = self._read, len(self._ids)
        self.text += piece
        return piece

    def _decode(self, start: int, end: int | None) -> str:
        return decode_all(self._tokenizer, self._ids[start:end], self._skip)
