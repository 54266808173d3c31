"""Logits -> law under the sampling parameters of one request; the same object serves the target and the drafters."""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace, device

from draftproof.core.params import SamplingParams
from draftproof.core.records import Array


class LawPipeline:
    """The law of one request's next tokens.

    greedy: temperature is 0, every law is one-hot. reads_history: the law of a row depends on the tokens before it.
    """

    greedy: bool
    reads_history: bool

    def __init__(
        self, params: SamplingParams, *, num_prompt_tokens: int, vocab_size: int, eos_token_ids: Sequence[int] = ()
    ) -> None:
        self.params = params
        self.num_prompt_tokens = num_prompt_tokens
        self.vocab_size = vocab_size
        self.eos_token_ids = tuple(eos_token_ids)
        self.greedy = params.temperature == 0
        self.reads_history = False

    def law(self, logits: Array, context: Sequence[int], path: Sequence[int] = ()) -> Array:
        """The law [vocab] of the token after `context + path`, from `logits` [vocab]; context is prompt + emitted, the
        pending token last, path the drafted tokens after it. Raises InvalidLogitsError."""
        return self.laws(logits[None], context, [path])[0]

    def laws(self, logits: Array, context: Sequence[int], paths: Sequence[Sequence[int]]) -> Array:
        """Rows of `law`: logits [n, vocab], the path of each row -> [n, vocab]."""
        xp = array_namespace(logits)
        x = logits if logits.dtype == xp.float64 else xp.astype(logits, xp.float32)
        if self.greedy:
            ids = xp.arange(x.shape[-1], device=device(x))
            return xp.astype(ids[None, :] == xp.argmax(x, axis=-1)[:, None], x.dtype)
        law = _softmax((x - xp.max(x, axis=-1, keepdims=True)) / self.params.temperature)
        if 0 < self.params.top_k < x.shape[-1]:
            kth = xp.sort(x, axis=-1)[:, -self.params.top_k][:, None]
            law = xp.where(x < kth, xp.zeros_like(law), law)
            law = law / xp.sum(law, axis=-1, keepdims=True)
        if self.params.top_p < 1:
            order = xp.argsort(law, axis=-1, stable=True)
            ascending = xp.cumulative_sum(xp.take_along_axis(law, order, axis=-1), axis=-1)
            kept = ascending > 1 - self.params.top_p
            kept[:, -1] = True
            law = xp.where(xp.take_along_axis(kept, xp.argsort(order, axis=-1), axis=-1), law, xp.zeros_like(law))
            law = law / xp.sum(law, axis=-1, keepdims=True)
        return law

    def greedy_tokens(self, logits: Array, context: Sequence[int], paths: Sequence[Sequence[int]]) -> list[int]:
        """arg max of each row [n, vocab] after all processors, the lowest id among ties; one device transfer."""
        xp = array_namespace(logits)
        return [int(token) for token in xp.argmax(logits, axis=-1)]

    def forbids(self, token: int, context: Sequence[int], path: Sequence[int] = ()) -> bool:
        """Whether the bans of the parameters alone make `token` impossible after `context + path`."""
        return False


def _softmax(x: Array) -> Array:
    xp = array_namespace(x)
    mass = xp.exp(x)
    return mass / xp.sum(mass, axis=-1, keepdims=True)
