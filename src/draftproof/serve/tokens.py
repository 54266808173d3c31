"""Single tokens as clients see them: their text, and the bytes they stand for, which need not be
whole characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from draftproof.decode.logprobs import TokenLogprobs
from draftproof.decode.text import decode_all
from draftproof.errors import UsageError
from draftproof.models.spelling import TokenizerSpelling


class Tokens:
    """The tokens of one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        try:
            self._spelling: TokenizerSpelling | None = TokenizerSpelling(tokenizer)
        except UsageError:  # its tokens are no pieces of bytes: words, for example
            self._spelling = None

    def bytes(self, token: int) -> bytes:
        """What it stands for in a text; of a special token, its name."""
        spelled = None if self._spelling is None else self._spelling.spelled(token)
        return decode_all(self._tokenizer, [token], False).encode() if spelled is None else spelled

    def text(self, token: int) -> str:
        """Its text, with marks for bytes that are only part of a character."""
        return self.bytes(token).decode("utf-8", "replace")

    def completion_logprobs(
        self,
        token_ids: Sequence[int],
        scored: Sequence[TokenLogprobs | None],
        num_top: int,
        offset: int = 0,
    ) -> dict[str, Any]:
        """OpenAI's record for completions. scored: None for the first token of a prompt, which
        follows nothing. offset: where in the text the first token stands."""
        texts = [self.text(token) for token in token_ids]
        return {
            "tokens": texts,
            "token_logprobs": [None if each is None else each.logprob for each in scored],
            "top_logprobs": [
                None if each is None else self._by_text(each, num_top) for each in scored
            ],
            "text_offset": list(accumulate(map(len, texts), initial=offset))[:-1],
        }

    def chat_logprobs(self, scored: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """OpenAI's record for chats."""
        content = [
            self._entry(each.token_id, each.logprob)
            | {"top_logprobs": [self._entry(*one) for one in each.top]}
            for each in scored
        ]
        return {"content": content, "refusal": None}

    def prompt_logprobs(
        self, scored: Sequence[TokenLogprobs | None], num_top: int
    ) -> list[dict[str, Any] | None]:
        """vLLM's record: of each token of the prompt, it and the `num_top` likeliest ones, by
        id."""
        return [None if each is None else self._by_id(each, num_top) for each in scored]

    def _by_text(self, scored: TokenLogprobs, num_top: int) -> dict[str, float]:
        """The likeliest tokens and the token itself; of several with one text, the likeliest."""
        found: dict[str, float] = {}
        for token, logprob in (*scored.top[:num_top], (scored.token_id, scored.logprob)):
            found.setdefault(self.text(token), logprob)
        return found

    def _by_id(self, scored: TokenLogprobs, num_top: int) -> dict[str, Any]:
        ranked = [(scored.token_id, scored.logprob, scored.rank)]
        best = enumerate(scored.top[:num_top], 1)
        ranked += [
            (token, logprob, rank) for rank, (token, logprob) in best if token != scored.token_id
        ]
        return {
            str(token): {"logprob": logprob, "rank": rank, "decoded_token": self.text(token)}
            for token, logprob, rank in ranked
        }

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self.text(token), "logprob": logprob, "bytes": list(self.bytes(token))}
