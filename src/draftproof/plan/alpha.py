"""How often a draft would be accepted, foretold: both models read one text, and their laws are
compared at every position.

Teacher forcing: neither model generates, each reads the text once. The laws are made by the
pipeline that decoding uses, so the mean over text that the target wrote at this temperature is the
alpha a decoder would meet there, up to the positions at which its rounds happen to start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.decode.build import as_language_model, check_vocabularies
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.plan.forcing import Text, overlaps_of, read_blocks

ROWS = 64
"""Positions compared at a time: at 152,000 tokens a vocabulary, some 40 MB for each array of
float32 logits or laws."""


def alpha_per_position(
    target: Any,
    draft: Any,
    ids: Any,
    n_prompt: int,
    temperature: float = 1.0,
    *,
    tokenizer: Any = None,
) -> NDArray[np.float64]:
    """sum_x min(target_law, draft_law) at each generated position of one text; float64 [len(ids) -
    n_prompt].

    target, draft: transformers modules or LanguageModels. ids: the token ids of prompt and text,
    [L] or [1, L]. n_prompt: how many of them are the prompt, 1 to L - 1; entry i of the result is
    about token n_prompt + i. temperature: of both laws; 0 is greedy, where an entry is 1 if the two
    favourites agree and 0 if not. tokenizer: of bare modules whose output layers are padded, so
    that ids no token stands for count for nothing; a LanguageModel knows its own. A module is
    wrapped and checked at every call: pass LanguageModels to call often. UsageError: ids or
    n_prompt that do not fit, or two models over different tokens. Source: 2211.17192, corollary
    3.6."""
    tokens = _token_ids(ids)
    if (
        not hasattr(n_prompt, "__index__")
        or isinstance(n_prompt, bool)
        or not 1 <= n_prompt < len(tokens)
    ):
        raise UsageError(
            f"n_prompt is {n_prompt!r}; allowed: a whole number from 1 to "
            f"{len(tokens) - 1}, as ids has {len(tokens)} tokens "
            "and at least one must follow the prompt"
        )
    params = SamplingParams(temperature=temperature)
    models = [as_language_model(model, tokenizer) for model in (target, draft)]
    check_vocabularies(*models)
    for role, model in zip(("target", "draft model"), models, strict=True):
        _check_readable(role, model, tokens)
    laws = LawPipeline(params, num_prompt_tokens=n_prompt, vocab_size=models[0].vocab_size)
    text = Text(tokens[:n_prompt], tokens[n_prompt:])
    parts = []
    for place, pair in read_blocks(models, [text], ROWS):
        paths = [place.tokens[:i] for i in range(len(place.tokens))]
        parts.append(overlaps_of(laws, pair, tokens[: n_prompt + place.first], paths))
    return np.concatenate(parts)


def _token_ids(ids: Any) -> tuple[int, ...]:
    """The ids as a tuple, from [L] or [1, L] of any kind; UsageError otherwise."""
    nested = ids.tolist() if hasattr(ids, "tolist") else ids
    if not isinstance(nested, (list, tuple)):
        raise UsageError(
            f"ids is a {type(ids).__name__}; allowed: token ids [L] or [1, L], as a "
            "list, an array or a tensor"
        )
    if nested and isinstance(nested[0], (list, tuple)):
        if len(nested) != 1:
            raise UsageError(
                f"ids holds {len(nested)} texts; give them one at a time, as [L] or [1, L]"
            )
        nested = nested[0]
    for position, token in enumerate(nested):
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise UsageError(f"token {position} of ids is {token!r}; token ids are whole numbers")
    if len(nested) < 2:
        raise UsageError(
            f"ids has {len(nested)} tokens; it needs at least one of the prompt and one after it"
        )
    return tuple(int(token) for token in nested)


def _check_readable(role: str, model: LanguageModel, tokens: tuple[int, ...]) -> None:
    """The last token is judged and not read."""
    known = model.num_input_ids
    low, high = min(tokens), max(tokens[:-1])
    if low < 0 or high >= known:
        raise UsageError(
            f"token id {low if low < 0 else high} is none of the {role}'s, which go from "
            f"0 to {known - 1}"
        )
    if model.max_length is not None and len(tokens) - 1 > model.max_length:
        raise UsageError(
            f"ids has {len(tokens)} tokens; the {role} reads at most {model.max_length}, "
            "and all but the last are read"
        )
