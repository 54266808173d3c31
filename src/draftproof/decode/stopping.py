"""The one stopping routine. Tokens are committed one at a time through it, whoever produced them
and however many at once.

So an end token, a stop string or a limit inside an accepted block ends the text, the ids, the
log-probabilities, the counts and the cache at the same token at which plain decoding would have
ended them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from draftproof.core.params import SamplingParams
from draftproof.decode.text import Detokenizer

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True)
class Finish:
    """reason: "stop" (end token, stop token id, stop string), "length", "abort" (the caller
    cancelled) or "error" (this one of several failed). stop_reason: the token id or string that
    stopped it, None for the rest; vLLM's fields."""

    reason: FinishReason
    stop_reason: int | str | None = None


class Stopper:
    """Counts and watches one sequence.

    limit: most tokens to emit (max_tokens and the context limit, whichever is less). detokenizer:
    needed for stop strings.

    After the finish: `hides_last` says that the last token's text is left out, `text_end` where a
    stop string cuts the text."""

    def __init__(
        self,
        params: SamplingParams,
        *,
        eos_token_ids: Sequence[int],
        limit: int,
        detokenizer: Detokenizer | None = None,
    ) -> None:
        self._eos = frozenset() if params.ignore_eos else frozenset(eos_token_ids)
        self._stop_ids = frozenset(params.stop_token_ids or ())
        self._stop_strings = tuple(params.stop or ())
        self._include_stop = params.include_stop_str_in_output
        self._min_tokens, self._limit = params.min_tokens, limit
        self.detokenizer = detokenizer
        self.count = 0
        self.finish: Finish | None = None
        self.hides_last = False
        self.text_end: int | None = None

    @property
    def remaining(self) -> int:
        """How many more tokens may be emitted."""
        return 0 if self.finish else self._limit - self.count

    def ends(self, token: int, ahead: int) -> bool:
        """Whether `token`, committed `ahead` tokens from now (the next one is 1), ends the text by
        its id. What stop strings or a caller's criteria end is only known once it is committed."""
        return self.count + ahead >= self._min_tokens and (
            token in self._eos or token in self._stop_ids
        )

    def push(self, token: int) -> Finish | None:
        """Commit one token; the finish, if this token is the last. The text of a token that stops
        by its id is left out, as in vLLM, unless `include_stop_str_in_output`."""
        if self.ends(token, 1):
            self.finish = Finish("stop", None if token in self._eos else token)
        self.count += 1
        self.hides_last = self.finish is not None and not self._include_stop
        if self.detokenizer and not self.hides_last:
            before = len(self.detokenizer.written.text)
            self.detokenizer.push(token)
            if self.count >= self._min_tokens and self.finish is None:
                self.finish = self._stop_string(before)
        if self.finish is None and self.count >= self._limit:
            self.finish = Finish("length")
        return self.finish

    def cut(self, reason: FinishReason) -> None:
        """End the text here, before its time."""
        if self.finish is None:
            self.finish = Finish(reason)

    def _stop_string(self, text_before: int) -> Finish | None:
        """The stop string that ends first in what this token completed of the text as the model
        wrote it."""
        if not self.detokenizer or not self._stop_strings:
            return None
        text = self.detokenizer.written.text
        hits = []
        for stop in self._stop_strings:
            at = text.find(stop, max(0, text_before - len(stop) + 1))
            if at >= 0:
                hits.append((at + len(stop), at, stop))
        if not hits:
            return None
        end, start, stop = min(hits)
        self.text_end = self.detokenizer.shown(end if self._include_stop else start)
        return Finish("stop", stop)
