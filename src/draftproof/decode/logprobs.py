"""Log-probabilities of emitted tokens: the target's own, before any processing, as vLLM reports
them."""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import array_namespace, is_torch_array

from draftproof.core.records import Array


@dataclass(frozen=True)
class TokenLogprobs:
    """token_id and its logprob (natural) and rank (1 is the most likely); top: the most likely ids
    with theirs, best first."""

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


def row_logprobs(logits: Array, token: int, num_top: int) -> TokenLogprobs:
    """`token` under the raw `logits` [vocab], with the `num_top` best ids."""
    xp = array_namespace(logits)
    logits = xp.astype(logits, xp.float64)
    shifted = logits - xp.max(logits)
    logprobs = shifted - xp.log(xp.sum(xp.exp(shifted)))
    own = logprobs[token]
    rank = 1 + int(xp.sum(xp.astype(logprobs > own, xp.int64)))
    best = top_ids(logprobs[None, :], num_top)[0].tolist() if num_top else []
    return TokenLogprobs(token, float(own), rank, tuple((i, float(logprobs[i])) for i in best))


def top_ids(logits: Array, count: int) -> Array:
    """The `count` best ids of each row [rows, vocab] -> [rows, count], best first, lower ids first
    among equals on NumPy; -1 means all of them."""
    count = logits.shape[-1] if count < 0 else count
    if is_torch_array(logits):
        return logits.topk(min(count, logits.shape[-1]), dim=-1).indices
    xp = array_namespace(logits)
    return xp.argsort(-logits, axis=-1, stable=True)[..., :count]
