"""What the parameters forbid by token id: biases, allowed and suppressed ids, bad words, EOS before
`min_tokens`.

The same object answers `forbids`, so a drafter can leave out a token that verification is certain
to reject."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from array_api_compat import array_namespace

from draftproof.core.history import ArrayCache, index
from draftproof.core.params import SamplingParams
from draftproof.core.records import Array
from draftproof.errors import UsageError


class Bans:
    """reads_history: whether what is forbidden depends on the tokens before."""

    def __init__(
        self,
        params: SamplingParams,
        num_prompt_tokens: int,
        vocab_size: int,
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        _check_ids(params, vocab_size)
        self._num_prompt_tokens, self._vocab_size = num_prompt_tokens, vocab_size
        self._bias = {
            token: bias for token, bias in params.logit_bias.items() if bias not in (0, -math.inf)
        }
        single = {word[0] for word in params.bad_words_ids if len(word) == 1}
        forbidden = single.union(
            params.suppress_tokens,
            (t for t, bias in params.logit_bias.items() if bias == -math.inf),
        )
        self._kept = (
            None if params.allowed_token_ids is None else set(params.allowed_token_ids) - forbidden
        )
        self._forbidden = frozenset(forbidden)
        if self._kept == set() or len(forbidden) == vocab_size:
            raise UsageError(
                "allowed_token_ids, suppress_tokens, bad_words_ids and logit_bias "
                "together leave no token to sample"
            )
        self._ends = tuple(
            t
            for t in dict.fromkeys((*eos_token_ids, *params.stop_token_ids))
            if 0 <= t < vocab_size
        )
        self._min_tokens = params.min_tokens if self._ends else 0
        ends = forbidden.union(self._ends)
        if self._min_tokens and (
            len(ends) == vocab_size if self._kept is None else self._kept <= ends
        ):
            raise UsageError(
                f"min_tokens is {params.min_tokens}, and every token left to sample ends the text: "
                "allow one that does not, or leave min_tokens out"
            )
        self._words: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        for word in params.bad_words_ids:
            if len(word) > 1:
                self._words.setdefault(word[-2], []).append((tuple(word[:-1]), word[-1]))
        self._reach = max((len(word) - 1 for word in params.bad_words_ids), default=0)
        self._arrays = ArrayCache()
        self.reads_history = bool(self._words) or self._min_tokens > 0
        self.active = self.reads_history or bool(self._forbidden) or self._kept is not None
        self.biased = bool(self._bias)

    def bias(self, x: Array) -> None:
        """Add the finite biases to the logits `x` [n, vocab] in place."""
        ids = self._arrays.get("biased", x, lambda: list(self._bias))
        x[:, ids] += self._arrays.get("bias", x, lambda: list(self._bias.values()), x.dtype)

    def apply(self, x: Array, context: Sequence[int], paths: Sequence[Sequence[int]]) -> Array:
        """The logits `x` [n, vocab] with -inf where forbidden; `x` itself is written to."""
        if self._kept is not None:
            ids = self._arrays.get("kept", x, lambda: sorted(self._kept or ()))
            kept = array_namespace(x).full_like(x, -math.inf)
            kept[:, ids] = x[:, ids]
            x = kept
        elif self._forbidden:
            x[:, self._arrays.get("forbidden", x, lambda: sorted(self._forbidden))] = -math.inf
        if self.reads_history:
            here = [
                (i, token)
                for i, path in enumerate(paths)
                for token in self._forbidden_here(context, path)
            ]
            if here:
                rows, columns = zip(*here, strict=True)
                x[index(x, rows), index(x, columns)] = -math.inf
        return x

    def forbids(self, token: int, context: Sequence[int], path: Sequence[int]) -> bool:
        """Whether `token` gets -inf after `context + path`, or is no token at all."""
        if not 0 <= token < self._vocab_size or token in self._forbidden:
            return True
        if self._kept is not None and token not in self._kept:
            return True
        return self.reads_history and token in self._forbidden_here(context, path)

    def _forbidden_here(self, context: Sequence[int], path: Sequence[int]) -> Iterator[int]:
        if len(context) + len(path) - self._num_prompt_tokens < self._min_tokens:
            yield from self._ends
        if not self._words:
            return
        tail = (*context[max(0, len(context) - self._reach) :], *path)
        for before, last in self._words.get(tail[-1], ()) if tail else ():
            if tail[-len(before) :] == before:
                yield last


def _check_ids(params: SamplingParams, vocab_size: int) -> None:
    if params.bad_words:
        raise UsageError(
            f"bad_words is {params.bad_words!r}, which needs a tokenizer: call "
            "resolve(tokenizer), or give bad_words_ids"
        )
    named = {
        "logit_bias": params.logit_bias,
        "allowed_token_ids": params.allowed_token_ids or (),
        "suppress_tokens": params.suppress_tokens,
        "stop_token_ids": params.stop_token_ids,
        "bad_words_ids": [token for word in params.bad_words_ids for token in word],
    }
    for name, ids in named.items():
        outside = [token for token in ids if token >= vocab_size]
        if outside:
            raise UsageError(
                f"{name} has token id {outside[0]}; allowed: ids from 0 to "
                f"{vocab_size - 1}, the model's vocabulary"
            )
