"""One request, checked once, at the door; below it nothing is refused, completed or parsed
again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from draftproof.core.chance import fresh_seed
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import check_laws
from draftproof.core.processor_state import with_forks
from draftproof.core.structured import StructuredOutputs
from draftproof.decode.speculation import Speculation
from draftproof.errors import UsageError
from draftproof.grammars.guidance import compile_grammar
from draftproof.models.protocol import LanguageModel


@dataclass(frozen=True)
class GenerationRequest:
    """What is to be generated: `params.n` texts of one prompt.

    params: complete, with a seed, strings turned into ids, grammars compiled. first_index: the
    number of the first text in the seed's streams, where other requests have those before it."""

    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    first_index: int = 0

    @property
    def seed(self) -> int:
        assert self.params.seed is not None
        return self.params.seed


def checked_request(
    target: LanguageModel,
    tokenizer: Any,
    ids: tuple[int, ...],
    params: SamplingParams | None,
    speculation: Speculation | None,
) -> GenerationRequest:
    """The request for texts after `ids`; without `params` the target's own generation config
    counts. UsageError for everything that can be refused: whatever is left may only fail for what
    is found out on the way (memory, invalid logits)."""
    limit = target.max_length
    if limit is not None and len(ids) >= limit:
        raise UsageError(
            (
                f"the prompt has {len(ids)} tokens; {target.name} holds {limit}, and one "
                "must be left to generate"
            )
            + (f" ({reason})" if (reason := target.limit_note) else "")
        )
    params = _complete(target, tokenizer, params, len(ids))
    if params.max_tokens is None and limit is None:
        raise UsageError(f"max_tokens is needed: {target.name} has no context limit to stop at")
    check_laws(
        params,
        num_prompt_tokens=len(ids),
        vocab_size=target.vocab_size,
        eos_token_ids=target.eos_token_ids,
    )
    if speculation is not None and speculation.drafter_for(params) is not None:
        params = _with_forks(target, ids, params)
    return GenerationRequest(ids, params)


def _complete(
    target: LanguageModel, tokenizer: Any, params: SamplingParams | None, num_prompt_tokens: int
) -> SamplingParams:
    """The model's defaults if none were given, a seed, strings turned into ids, a compiled
    grammar."""
    if params is None:
        params, config = SamplingParams(), target.generation_config
        if config is not None:
            params = SamplingParams.from_generation_config(
                config, num_prompt_tokens=num_prompt_tokens, vocab_size=target.vocab_size
            )
    if not isinstance(params, SamplingParams):
        raise UsageError(
            f"params is a {type(params).__name__}; it is a SamplingParams, or None for "
            "the model's defaults"
        )
    if params.seed is None:
        params = replace(params, seed=fresh_seed())
    if tokenizer is None:
        _refuse_text(params)
    params = _with_grammar(target, tokenizer, params.resolve(tokenizer))
    beyond = [token for token in params.prediction or () if int(token) >= target.vocab_size]
    if beyond:
        raise UsageError(
            f"prediction holds token {beyond[0]}; ids go from 0 to {target.vocab_size - 1}"
        )
    return params


def _refuse_text(params: SamplingParams) -> None:
    """UsageError for what only a tokenizer can read."""
    if params.bad_words:
        raise UsageError("bad_words needs a tokenizer; give bad_words_ids instead")
    if isinstance(params.prediction, str):
        raise UsageError(
            "a prediction that is a string needs a tokenizer; give its token ids instead"
        )
    if isinstance(params.structured_outputs, StructuredOutputs):
        raise UsageError(
            "structured_outputs needs a tokenizer, which says how the grammar is spelled "
            "in token ids"
        )
    if params.stop:
        raise UsageError("stop strings need a tokenizer; give stop_token_ids instead")


def _with_grammar(target: LanguageModel, tokenizer: Any, params: SamplingParams) -> SamplingParams:
    """The parameters with the grammar of structured outputs compiled for this target; UsageError
    where it cannot be."""
    asked = params.structured_outputs
    if not isinstance(asked, StructuredOutputs):
        return params
    size, ends = target.vocab_size, target.eos_token_ids
    if not ends:
        raise UsageError(
            f"structured_outputs needs an end token, which {target.name} does not have: nothing "
            "else ends a text that is complete"
        )
    return replace(
        params,
        structured_outputs=compile_grammar(asked, tokenizer, vocab_size=size, eos_token_ids=ends),
    )


def _with_forks(
    target: LanguageModel, ids: Sequence[int], params: SamplingParams
) -> SamplingParams:
    """The parameters, logits processors with a state of their own marked to be copied along drafts,
    or refused."""
    fork = partial(
        with_forks, prompt=ids, vocab_size=target.vocab_size, device=target.output_device
    )
    processors, warpers = fork(params.logits_processors), fork(params.logits_warpers)
    return (
        replace(params, logits_processors=processors, logits_warpers=warpers)
        if processors or warpers
        else params
    )
