"""What the caller asks of sampling: one frozen record with the names of vLLM, the OpenAI API and
Hugging Face.

Nothing here loads NumPy or torch. Every field is checked when the record is made: a value that
cannot be honoured is refused with the field, the value and what is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from draftproof.core import checks
from draftproof.core.generation_config import sampling_fields
from draftproof.core.grammar import Grammar
from draftproof.core.parameters import PARAMETERS
from draftproof.core.structured import StructuredOutputs
from draftproof.errors import UsageError

Processor = Callable[..., Any]
"""Hugging Face's convention: (input_ids [1, n] int64 tensor, scores [1, vocab] float tensor) ->
scores [1, vocab]."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request is sampled. Lists become tuples without repeats; None for a list or mapping
    means an empty one.

    temperature: divides the logits; any finite number >= 0, 0 is greedy.
    top_k: keep the k likeliest tokens and those tied with the last of them; 0 or -1 is off.
    top_p, min_p: keep the smallest set of mass >= top_p in (0, 1]; keep tokens of at least min_p
    times the top probability. repetition_penalty: 1e-6 to 1e6, over prompt and text (Keskar et al.,
    1909.05858). presence_penalty, frequency_penalty: in
        [-2, 2], over the generated tokens only: logit -= presence * (count > 0) + frequency * count
        (OpenAI API).
    logit_bias: token id -> number added to its logit first of all; finite or -inf.
    bad_words_ids, bad_words: token sequences and strings whose last token is forbidden where it
        would complete them, prompt included; strings need `resolve`. suppress_tokens: ids never
        allowed. allowed_token_ids: the only ids allowed (None: all).
    min_tokens: before this many tokens EOS and `stop_token_ids` are forbidden, and `stop` does
        nothing. max_tokens: the limit, 16 as in vLLM; None: until the context is full.
    stop, stop_token_ids: end the text at these. `stop` is looked for in the text as the model wrote
        it, its special tokens included; `include_stop_str_in_output` keeps the string, but for
        special tokens that are left out. ignore_eos: go on after EOS. skip_special_tokens: leave
        special tokens out of the text.
    seed: 64 bits; None takes a fresh one from the operating system. n: how many texts; 1 at
        temperature 0. logprobs, prompt_logprobs: how many top log-probabilities to report a token,
        -1 for all of them, None for none.
    logits_processors: callables after all penalties and bans, before the temperature.
        logits_warpers: the same after min_p, when sampling; removed tokens reach them as -inf. Both
        must be functions of their arguments alone.
    num_speculative_tokens: draft length of this request; None is the decoder's, 0 is plain
    decoding. prediction: a text, or token ids, that much of the answer is expected to repeat
    (OpenAI's Predicted Outputs); the method
        `prediction` drafts from it. A string needs `resolve`.
    structured_outputs: a grammar the text keeps to, as vLLM takes it: {"json": SCHEMA}, {"regex":
        ...}, {"choice": [...]}, {"grammar": ...} or {"json_object": true}; see `StructuredOutputs`.
        The law is the target's over what the grammar allows.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    bad_words_ids: Sequence[Sequence[int]] = ()
    bad_words: Sequence[str] = ()
    allowed_token_ids: Sequence[int] | None = None
    suppress_tokens: Sequence[int] = ()
    min_tokens: int = 0
    max_tokens: int | None = 16
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logits_processors: Sequence[Processor] = ()
    logits_warpers: Sequence[Processor] = ()
    num_speculative_tokens: int | None = None
    prediction: str | Sequence[int] | None = None
    structured_outputs: StructuredOutputs | Grammar | Mapping[str, Any] | None = field(
        default=None, hash=False
    )

    def __post_init__(self) -> None:
        for name, stated in PARAMETERS.items():
            object.__setattr__(self, name, stated.check(name, getattr(self, name)))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            checks.refuse(
                "min_tokens", self.min_tokens, f"at most max_tokens, which is {self.max_tokens}"
            )
        if self.n > 1 and self.temperature == 0:
            checks.refuse(
                "n",
                self.n,
                (
                    "1 at temperature 0, where every text is the same; for several, give a "
                    "temperature above 0"
                ),
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SamplingParams:
        """From field names to values, as JSON gives them; UsageError for an unknown name, with the
        nearest valid one."""
        if not isinstance(values, Mapping):
            checks.refuse("sampling parameters", values, "a mapping from field names to values")
        names = [spec.name for spec in fields(cls)]
        for name in values:
            if name not in names:
                near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(names)}"
                raise UsageError(f"{name!r} is not a sampling parameter; {hint}")
        return cls(**values)

    @classmethod
    def from_generation_config(
        cls,
        config: Any,
        *,
        num_prompt_tokens: int | None = None,
        vocab_size: int | None = None,
        **overrides: Any,
    ) -> SamplingParams:
        """What `model.generate` would do with this transformers `GenerationConfig`; see
        `core.generation_config`.

        num_prompt_tokens: needed when the config counts the prompt (max_length,
        begin_suppress_tokens, …). vocab_size: ids of the config outside it mean none, as those
        below 0 do.
        overrides: fields of this class; they win. UsageError names whatever the config asks for
        that cannot be honoured."""
        return cls.from_dict(sampling_fields(config, num_prompt_tokens, overrides, vocab_size))

    def resolve(self, tokenizer: Any) -> SamplingParams:
        """The same parameters in token ids: `prediction` encoded by `tokenizer`, and `bad_words` as
        `bad_words_ids`, with and without a leading space. The form with a space is left out where
        it only puts tokens before the other, which forbids it already."""
        if isinstance(self.prediction, str):
            expected = tuple(tokenizer.encode(self.prediction, add_special_tokens=False))
            return replace(self, prediction=expected).resolve(tokenizer)
        if not self.bad_words:
            return self
        sequences: list[Sequence[int]] = list(self.bad_words_ids)
        for word in self.bad_words:
            plain = list(tokenizer.encode(word.lstrip(), add_special_tokens=False))
            if not plain:
                checks.refuse(
                    "bad_words", word, "strings that the tokenizer turns into at least one token"
                )
            sequences.append(plain)
            spaced = list(tokenizer.encode(" " + word.lstrip(), add_special_tokens=False))
            if spaced[-len(plain) :] != plain:
                sequences.append(spaced)
        return replace(self, bad_words=(), bad_words_ids=sequences)
