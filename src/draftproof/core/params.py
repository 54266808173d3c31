"""What the caller asks of sampling: one frozen record with vLLM's and OpenAI's names.

Nothing here loads NumPy or torch. Every field is checked when the record is made; a value that cannot be honoured is refused
with the field, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Sampling parameters of one request. Lists are kept as tuples; None for a list means an empty one, except
    `allowed_token_ids`, where it means every token."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)
    bad_words_ids: Sequence[Sequence[int]] | None = None
    bad_words: Sequence[str] | None = None
    allowed_token_ids: Sequence[int] | None = None
    suppress_tokens: Sequence[int] | None = None
    min_tokens: int = 0
    max_tokens: int | None = 16
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logits_processors: Sequence[Callable[..., Any]] | None = None
    logits_warpers: Sequence[Callable[..., Any]] | None = None
    num_speculative_tokens: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        for name in ("bad_words", "suppress_tokens", "stop", "stop_token_ids", "logits_processors", "logits_warpers"):
            object.__setattr__(self, name, tuple(getattr(self, name) or ()))
        object.__setattr__(self, "bad_words_ids", tuple(tuple(word) for word in self.bad_words_ids or ()))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SamplingParams:
        """From a mapping of field names (JSON, command line); an unknown name is refused with the nearest valid one."""
        return cls(**values)

    @classmethod
    def from_generation_config(cls, config: Any, *, num_prompt_tokens: int | None = None, **overrides: Any) -> SamplingParams:
        """From a transformers `GenerationConfig`; `overrides` are fields of this class and win."""
        raise NotImplementedError

    def resolve(self, tokenizer: Any) -> SamplingParams:
        """The same parameters with `bad_words` turned into `bad_words_ids` by `tokenizer`."""
        raise NotImplementedError
