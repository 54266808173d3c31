"""The method that keeps several drafters and chooses between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from draftproof.decode.methods.method import Method, Option, Parts
from draftproof.decode.methods.models import DRAFT_SAMPLE_METHOD, draft_model
from draftproof.decode.methods.texts import LOOKUP, SUFFIX, ngram, suffix
from draftproof.drafters.protocol import Drafter
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.decode.config import SpeculativeConfig


def _auto(config: SpeculativeConfig, parts: Parts) -> Drafter:
    """The drafters asked for; by default suffix matches and the draft model."""
    from draftproof.drafters.auto import Auto

    makers = {"ngram": ngram, "suffix": suffix, "draft_model": draft_model}
    names = config.option("drafters") or ("suffix", *(["draft_model"] if parts.draft is not None else []))
    if "draft_model" in names and parts.draft is None:
        raise UsageError('drafters has "draft_model", which needs "model": a hub id or the folder of a draft model')
    if "draft_model" not in names and parts.draft is not None:
        raise UsageError(f'"model" is read by the drafter "draft_model", which drafters does not name: {", ".join(names)}')
    if len(names) < 2:
        raise UsageError('method "auto" chooses between drafters: name a draft model ("model"), or two in "drafters"')
    return Auto({name: makers[name](config, parts) for name in names})


AUTO_DRAFTERS = ("draft_model", "ngram", "suffix")
"""What `auto` can choose from."""


def _drafters(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(one in AUTO_DRAFTERS for one in value):
        raise UsageError(f"{name} is {value!r}; allowed: a list of {', '.join(AUTO_DRAFTERS)}")
    if len(set(value)) < len(value):
        raise UsageError(f"{name} is {value!r}; it names a drafter twice")
    return tuple(value)


DRAFTERS = Option("drafters", None, _drafters, "the drafters it chooses from, as a list", vllm=False)

AUTO = Method(
    "auto",
    "several drafters side by side, in each round the one that promises most",
    16,
    _auto,
    model="draft",
    model_optional=True,
    options=(DRAFTERS, *LOOKUP, *SUFFIX, DRAFT_SAMPLE_METHOD),
    adapts=True,
)
