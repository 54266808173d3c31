"""Do a target and a draft model mean the same tokens? Asked of the tokens themselves, never of the
sizes of output layers."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from draftproof.core.records import Array
from draftproof.errors import UsageError, VocabularyMismatchError
from draftproof.models.protocol import LanguageModel
from draftproof.models.spelling import TokenizerSpelling
from draftproof.models.transcript import Vocabularies

MAX_PADDING = 1024
"""Without tokenizers, output layers whose sizes differ by at most this (and by half) count as
padded differently."""

_SHOWN = 3
_ACROSS = 'say "use_heterogeneous_vocab": true to draft across tokenizers'


def check_same_tokens(
    target_tokenizer: Any, draft_tokenizer: Any, target_vocab_size: int, draft_vocab_size: int
) -> None:
    """Raise VocabularyMismatchError unless every id that both models can emit stands for the same
    token on both sides.

    An id only one side knows (an added token, padding) is no mismatch: the draft never proposes
    what the target cannot emit, and gives probability 0 to what it does not know itself. Without
    tokenizers only the sizes can be compared."""
    if target_tokenizer is None or draft_tokenizer is None:
        _check_sizes(target_vocab_size, draft_vocab_size)
        return
    if target_tokenizer is draft_tokenizer:
        return
    target_tokens, draft_tokens = _token_of_id(target_tokenizer), _token_of_id(draft_tokenizer)
    if target_tokens == draft_tokens:
        return
    known = range(min(target_vocab_size, draft_vocab_size))
    shared = [
        token_id for token_id in known if token_id in target_tokens and token_id in draft_tokens
    ]
    wrong = [token_id for token_id in shared if target_tokens[token_id] != draft_tokens[token_id]]
    if 2 * len(wrong) >= max(1, len(shared)):
        raise VocabularyMismatchError(
            f"the draft model has another tokenizer altogether ({len(wrong)} of "
            f"{len(shared)} ids stand for other tokens);"
            f" {_ACROSS}, or take a draft model of the target's family"
        )
    if wrong:
        shown = "; ".join(
            f"{i} is {target_tokens[i]!r} and {draft_tokens[i]!r}" for i in wrong[:_SHOWN]
        )
        more = f"; {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise VocabularyMismatchError(
            f"target and draft model mean other tokens by the same ids: id {shown}{more}; {_ACROSS}"
        )


def side_by_side(target: LanguageModel, draft: LanguageModel) -> Vocabularies | None:
    """The vocabularies of two models whose tokenizers differ; None when every shared id stands for
    the same token.

    UsageError when one of them has no tokenizer, or one that spells tokens in an unknown way."""
    ours, theirs = target.tokenizer, draft.tokenizer
    for model, tokenizer in ((target, ours), (draft, theirs)):
        if tokenizer is None:
            raise UsageError(f"drafting across tokenizers needs both; {model.name} has none")
    try:
        check_same_tokens(ours, theirs, target.vocab_size, draft.vocab_size)
        return None
    except VocabularyMismatchError:
        return Vocabularies(
            TokenizerSpelling(ours),
            TokenizerSpelling(theirs),
            target_size=target.vocab_size,
            draft_size=draft.vocab_size,
            target_ends=target.eos_token_ids,
            draft_ends=draft.eos_token_ids,
        )


def _check_sizes(target_vocab_size: int, draft_vocab_size: int) -> None:
    small, large = sorted((target_vocab_size, draft_vocab_size))
    if large - small > min(MAX_PADDING, small // 2):
        raise VocabularyMismatchError(
            f"the target has {target_vocab_size} tokens and the draft model "
            f"{draft_vocab_size}, which is more than padding;"
            " give both tokenizers to have the tokens compared"
        )


def _token_of_id(tokenizer: Any) -> dict[int, str]:
    """id -> token, from the tokenizer's own table."""
    if hasattr(tokenizer, "get_vocab"):
        return {int(token_id): token for token, token_id in tokenizer.get_vocab().items()}
    return {token_id: tokenizer.decode([token_id]) for token_id in range(len(tokenizer))}


def align_logits(logits: Array, vocab_size: int) -> Array:
    """logits [..., any] over the target's ids, [..., vocab_size]: cut (a view), or filled up with
    -inf; itself when equal."""
    missing = vocab_size - logits.shape[-1]
    if missing <= 0:
        return logits if missing == 0 else logits[..., :vocab_size]
    xp = array_namespace(logits)
    filling = xp.full(
        (*logits.shape[:-1], missing), -xp.inf, dtype=logits.dtype, device=device(logits)
    )
    return xp.concat([logits, filling], axis=-1)
