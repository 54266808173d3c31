"""The texts of recorded tokens: two optional keys of a line of `rounds.jsonl`, for people who look
at a run.

`texts` has one entry a token of `tokens`: what it added to the sample's text, "" while a character
is not whole yet. `draft_texts` has one entry a token of `draft_tokens`: that token decoded by
itself.
"""

from __future__ import annotations

from draftproof.core.records import Round
from draftproof.decode.text import Detokenizer, Tokenizer, decode_all


class RoundTexts:
    """Gives the two keys, round after round. A round that begins at num_prompt_tokens begins
    another sample."""

    def __init__(self, tokenizer: Tokenizer, num_prompt_tokens: int) -> None:
        self._tokenizer, self._begin = tokenizer, num_prompt_tokens
        self._alone: dict[int, str] = {}
        self._sample = Detokenizer(tokenizer, skip_special_tokens=False)

    def of(self, record: Round) -> dict[str, list[str]]:
        """The keys of one round."""
        if record.start == self._begin:
            self._sample = Detokenizer(self._tokenizer, skip_special_tokens=False)
        return {
            "texts": [self._sample.push(token) for token in record.tokens],
            "draft_texts": [self._by_itself(token) for token in record.draft_tokens],
        }

    def _by_itself(self, token: int) -> str:
        if token not in self._alone:
            self._alone[token] = decode_all(self._tokenizer, [token], skip_special_tokens=False)
        return self._alone[token]
