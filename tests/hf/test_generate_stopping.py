"""`model.generate(custom_generate=draftproof.hf.generate)`: stopping criteria, streamers and a
cache of the caller's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    DynamicCache,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
)
from transformers.generation.stopping_criteria import StopStringCriteria

import draftproof
import tiny
from draftproof.errors import UsageError
from hf_calls import END, both, prompts

# Stopping criteria, asked after every token.


class Until(StoppingCriteria):
    """Ends a row at a length, or at the first of some tokens; remembers the lengths it was asked
    about."""

    def __init__(self, length: int = 10**6, tokens: tuple[int, ...] = ()) -> None:
        self.length, self.tokens, self.asked = length, tokens, []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        assert scores is None
        self.asked.append(input_ids.shape[1])
        hit = torch.tensor([row[-1] in self.tokens for row in input_ids.tolist()])
        return hit | (input_ids.shape[1] >= self.length)


@pytest.mark.parametrize("length", range(7, 16))
def test_a_criterion_cuts_a_block_at_its_token(model: Any, length: int) -> None:
    until = Until(length)
    options = {
        "do_sample": False,
        "max_new_tokens": 12,
        "custom_generate": draftproof.hf.generate,
        "drafter": model,
    }
    ours = model.generate(**prompts(6), stopping_criteria=StoppingCriteriaList([until]), **options)
    assert ours.shape[1] == length
    assert until.asked == list(range(7, length + 1))


def test_criteria_see_padded_rows_and_end_each_alone(model: Any, draft: Any) -> None:
    free = model.generate(**prompts(2, 6), do_sample=False, max_new_tokens=12)
    tokens = (int(free[0, 6 + 3]), int(free[1, 6 + 8]))
    criteria = [StoppingCriteriaList([Until(15, tokens)]) for _ in range(2)]
    options = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": 63}
    expected = model.generate(**prompts(2, 6), stopping_criteria=criteria[0], **options)
    hooked = {"custom_generate": draftproof.hf.generate, "drafter": draft}
    assert torch.equal(
        model.generate(**prompts(2, 6), stopping_criteria=criteria[1], **options, **hooked),
        expected,
    )


def test_stop_strings_through_the_criterion() -> None:
    inner = Tokenizer(
        models.BPE(
            {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []
        )
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner)
    module = tiny.llama(torch.float64, vocab_size=256)
    letters = set(tokenizer.convert_tokens_to_ids(list("abcdefghijklmnopqrstuvwxyz")))
    options = {
        "do_sample": False,
        "max_new_tokens": 12,
        "suppress_tokens": [i for i in range(256) if i not in letters],
    }
    free = module.generate(**prompts(6), **options)
    string = tokenizer.decode(free[0, 6 + 3 : 6 + 5])
    for drafter in (module, "ngram"):
        criteria = [StoppingCriteriaList([StopStringCriteria(tokenizer, string)]) for _ in range(2)]
        expected = module.generate(**prompts(6), stopping_criteria=criteria[0], **options)
        hooked = {"custom_generate": draftproof.hf.generate, "drafter": drafter}
        ours = module.generate(**prompts(6), stopping_criteria=criteria[1], **options, **hooked)
        assert torch.equal(ours, expected) and ours.shape[1] == 6 + 5


def test_stop_strings_by_name_are_refused_by_transformers_before_we_are_called(model: Any) -> None:
    """It takes the tokenizer out of the arguments and forgets it for every custom function:
    docs/inside_transformers.md says so, and what to give instead. Should this ever pass, the page
    is to be changed."""
    called: list[Any] = []
    stops: dict[str, Any] = {
        "stop_strings": ["x"],
        "tokenizer": tiny.word_tokenizer(),
        "max_new_tokens": 4,
    }

    def ours(*given: Any, tokenizer: Any = None, **more: Any) -> None:
        called.append(tokenizer)

    for function in (ours, draftproof.hf.generate):
        with pytest.raises(ValueError, match="could not locate a tokenizer"):
            model.generate(**prompts(6), **stops, custom_generate=function)
    assert called == []


def test_max_time_ends_a_run(model: Any) -> None:
    options = {"do_sample": False, "max_new_tokens": 60, "custom_generate": draftproof.hf.generate}
    assert model.generate(**prompts(6), max_time=1e-9, **options).shape[1] == 7
    assert model.generate(**prompts(6, 6), max_time=1e-9, **options).shape[1] == 7


# Streamers.


class Collect:
    """Remembers every call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def put(self, value: torch.Tensor) -> None:
        self.calls.append((tuple(value.shape), value.flatten().tolist()))

    def end(self) -> None:
        self.calls.append("end")


@pytest.mark.parametrize("drafter", ["ngram", "model"])
def test_a_streamer_gets_what_transformers_would_put(model: Any, drafter: str) -> None:
    theirs, ours = Collect(), Collect()
    options = {"do_sample": False, "max_new_tokens": 14, "eos_token_id": 63}
    model.generate(**prompts(6), streamer=theirs, **options)
    hooked = {
        "custom_generate": draftproof.hf.generate,
        "drafter": model if drafter == "model" else drafter,
    }
    model.generate(**prompts(6), streamer=ours, **options, **hooked)
    assert ours.calls == theirs.calls
    assert ours.calls[0][0] == (1, 6) and ours.calls[-1] == "end"


def test_a_text_streamer_ends(model: Any) -> None:
    tokenizer = tiny.word_tokenizer()
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=5)
    options = {"do_sample": False, "max_new_tokens": 8, "custom_generate": draftproof.hf.generate}
    ours = model.generate(**prompts(6), streamer=streamer, **options)
    assert "".join(streamer).split() == tokenizer.decode(ours[0, 6:]).split()


def test_a_streamer_for_several_rows_is_refused(model: Any) -> None:
    with pytest.raises(UsageError, match="a streamer needs a batch of one"):
        model.generate(
            **prompts(6, 6),
            streamer=Collect(),
            max_new_tokens=4,
            custom_generate=draftproof.hf.generate,
        )


# A cache of the caller's.


@pytest.mark.parametrize("drafter", ["ngram", "draft"])
def test_a_cache_of_the_callers_changes_nothing_and_stays_as_it_was(
    model: Any, draft: Any, drafter: str
) -> None:
    inputs = prompts(9)
    expected = model.generate(**inputs, do_sample=False, max_new_tokens=20)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=inputs["input_ids"][:, :-1], cache=cache, use_cache=True)
    before = [layer.keys.clone() for layer in cache.layers]
    hooked = {
        "custom_generate": draftproof.hf.generate,
        "drafter": draft if drafter == "draft" else drafter,
    }
    ours = model.generate(**inputs, cache=cache, do_sample=False, max_new_tokens=20, **hooked)
    assert torch.equal(ours, expected)
    assert cache.get_seq_length() == 8
    assert all(
        torch.equal(layer.keys, old) for layer, old in zip(cache.layers, before, strict=True)
    )


def test_a_cache_for_tokens_that_are_not_given_is_refused(model: Any) -> None:
    inputs = prompts(9)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=inputs["input_ids"][:, :-1], cache=cache, use_cache=True)
    with pytest.raises(UsageError, match="input_ids must hold the whole prompt"):
        model.generate(
            input_ids=inputs["input_ids"][:, -1:],
            attention_mask=inputs["attention_mask"],
            cache=cache,
            max_new_tokens=4,
            custom_generate=draftproof.hf.generate,
        )


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(
    "drafter", [{"method": "early_exit", "early_exit_layers": 1}, "ngram", "suffix"], ids=str
)
def test_a_grammar_with_nothing_after_the_end(model: Any, drafter: Any, sampled: bool) -> None:
    """transformers' own processor raises where `prefix_allowed_tokens_fn` allows nothing, as it
    does behind an end."""

    def allowed(_: int, ids: torch.Tensor) -> list[int]:
        return [] if END in ids[9:].tolist() else [END, 3, 4]

    for seed in range(6):
        torch.manual_seed(seed)
        options = dict(
            do_sample=sampled, max_new_tokens=12, eos_token_id=END, prefix_allowed_tokens_fn=allowed
        )
        inputs = prompts(9, seed=seed)
        expected, ours = both(model, inputs, drafter, **options)
        assert sampled or torch.equal(ours, expected)
        assert ours.shape[1] == 21 or ours[0, -1] == END
