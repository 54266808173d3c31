"""`model.generate(custom_generate=draftproof.hf.generate)`: what transformers alone would return, or a refusal by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    DynamicCache,
    LogitsProcessorList,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
)
from transformers.generation import logits_process as lp
from transformers.generation.stopping_criteria import StopStringCriteria

import draftproof
import tiny
from draftproof.core.pipeline import LawPipeline
from draftproof.drafters.ngram import NGram
from draftproof.errors import UsageError
from draftproof.hf.laws import row_params
from draftproof.hf.request import rows
from draftproof.hf.stopping import eos_token_ids

END, PAD = 7, 0


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model() -> Any:
    module = tiny.llama(torch.float64)
    module.generation_config.pad_token_id = PAD
    return module


@pytest.fixture(scope="module")
def draft() -> Any:
    """The target with a little noise: right about half the time."""
    module = tiny.llama(torch.float64)
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(torch.randn_like(weight) * 0.03)
    return module


def prompts(*lengths: int, seed: int = 3) -> dict[str, torch.Tensor]:
    """A left-padded batch of random prompts of these lengths, repetitive enough for prompt lookup."""
    chosen = torch.Generator().manual_seed(seed)
    width = max(lengths)
    ids = torch.full((len(lengths), width), PAD)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, width - length :] = torch.randint(1, 12, (length,), generator=chosen)
        mask[row, width - length :] = 1
    return {"input_ids": ids, "attention_mask": mask}


def both(
    model: Any, inputs: dict[str, torch.Tensor], drafter: Any = "ngram", **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(transformers' own, ours)."""
    ours = model.generate(**inputs, custom_generate=draftproof.hf.generate, drafter=drafter, **options)
    return model.generate(**inputs, **options), ours


# Greedy: the same tensor.


@pytest.mark.parametrize("length", [1, 2, 3, 17])
@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_greedy_is_transformers_greedy(model: Any, draft: Any, length: int, k: int) -> None:
    inputs = prompts(length)
    expected = model.generate(**inputs, do_sample=False, max_new_tokens=40)
    for drafter in ({"method": "ngram", "num_speculative_tokens": k}, draft, model, NGram()):
        config = None if isinstance(drafter, dict) else {"num_speculative_tokens": k}
        ours = model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=40,
            custom_generate=draftproof.hf.generate,
            drafter=drafter,
            speculative_config=config,
        )
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("family", [name for name in tiny.FAMILIES if name != "llama"])
def test_other_families(family: str) -> None:
    module = tiny.FAMILIES[family](torch.float64)
    expected, ours = both(module, prompts(5), do_sample=False, max_new_tokens=20)
    assert torch.equal(ours, expected)
    expected, ours = both(module, prompts(5), drafter=module, do_sample=False, max_new_tokens=20)
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("drafter", ["ngram", "draft"])
def test_left_padded_rows_are_transformers_rows(model: Any, draft: Any, drafter: str) -> None:
    options = {"do_sample": False, "max_new_tokens": 24}
    free = model.generate(**prompts(2, 7, 15), **options)
    end = int(free[1, 15 + 5])  # one row ends early, the others go on or end elsewhere
    expected, ours = both(model, prompts(2, 7, 15), draft if drafter == "draft" else drafter, eos_token_id=end, **options)
    assert torch.equal(ours, expected)
    assert (ours[1, 21:] == PAD).all() and ours.shape[1] > 21


def test_without_a_mask_padding_is_found_as_transformers_finds_it(model: Any) -> None:
    ids = prompts(3, 6)["input_ids"]
    expected, ours = both(model, {"input_ids": ids}, do_sample=False, max_new_tokens=12)
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("place", range(8))
def test_an_end_token_inside_a_block_ends_the_row(model: Any, place: int) -> None:
    inputs = prompts(6)
    free = model.generate(**inputs, do_sample=False, max_new_tokens=12)
    ends = [int(free[0, 6 + place]), 63]
    expected, ours = both(model, inputs, model, do_sample=False, max_new_tokens=12, eos_token_id=ends)
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("limit", [{"max_new_tokens": 1}, {"max_new_tokens": 3}, {"max_length": 10}])
def test_limits(model: Any, limit: dict[str, int]) -> None:
    expected, ours = both(model, prompts(6), model, do_sample=False, **limit)
    assert torch.equal(ours, expected)


# Processors: each once, in transformers' order, on every drafted position.


class Push(lp.LogitsProcessor):
    """The caller's own: token (sum of the ids so far mod 64) gains 3."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        lucky = input_ids.sum(dim=1) % scores.shape[-1]
        return scores.scatter_add(1, lucky[:, None], torch.full((len(scores), 1), 3.0, dtype=scores.dtype))


def one_of_three(batch: int, ids: torch.Tensor) -> list[int]:
    start = (int(ids[-1]) * 5 + batch) % 60
    return [start, start + 1, start + 2]


CONFIGS: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 1.7},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "bad_words_ids": {"bad_words_ids": [[9], [4, 5], [11, 3]]},
    "sequence_bias of one token": {"sequence_bias": [[[3], 4.0], [[5], -4.0]]},
    "sequence_bias of two tokens": {"sequence_bias": [[[3], 4.0], [[3, 3], -9.0]], "repetition_penalty": 1.3},
    "min_new_tokens": {"min_new_tokens": 9, "eos_token_id": [END, 3, 40, 41, 42]},
    "min_length": {"min_length": 18, "eos_token_id": [END, 3, 40, 41, 42]},
    "suppress_tokens": {"suppress_tokens": [1, 2, 3, 4, 40]},
    "begin_suppress_tokens": {"begin_suppress_tokens": list(range(5, 60))},
    "forced_eos_token_id": {"forced_eos_token_id": END, "eos_token_id": END},
    "exponential_decay_length_penalty": {"exponential_decay_length_penalty": (3, 1.5), "eos_token_id": END},
    "remove_invalid_values": {"remove_invalid_values": True, "renormalize_logits": True},
    "prefix_allowed_tokens_fn": {"prefix_allowed_tokens_fn": one_of_three},
    "own processor": {"logits_processor": LogitsProcessorList([Push()])},
    "own in the place of the config's": {
        "repetition_penalty": 1.7,
        "logits_processor": LogitsProcessorList([lp.RepetitionPenaltyLogitsProcessor(1.2)]),
    },
    "own warper": {"logits_processor": LogitsProcessorList([lp.TemperatureLogitsWarper(0.5), Push()])},
    "many": {
        "repetition_penalty": 1.2,
        "bad_words_ids": [[9]],
        "min_new_tokens": 4,
        "eos_token_id": END,
        "suppress_tokens": [1],
        "no_repeat_ngram_size": 3,
        "logits_processor": LogitsProcessorList([Push()]),
    },
}
WARPERS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.6, "top_k": 0},
    "defaults": {},
    "top_p and min_p": {"temperature": 1.4, "top_k": 30, "top_p": 0.9, "min_p": 0.02},
    "typical": {"typical_p": 0.8, "top_k": 0},
    "top_h among the rest": {"top_h": 0.6, "temperature": 0.9, "top_k": 20, "top_p": 0.95},
    "cutoffs": {"epsilon_cutoff": 0.01, "eta_cutoff": 0.02, "top_k": 0, "renormalize_logits": True},
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("lengths", [(6,), (2, 9)], ids=["one", "padded"])
def test_processors_act_once_and_on_every_drafted_position(model: Any, draft: Any, name: str, lengths: tuple[int, ...]) -> None:
    for drafter in ("ngram", draft):
        expected, ours = both(model, prompts(*lengths), drafter, do_sample=False, max_new_tokens=20, **CONFIGS[name])
        assert torch.equal(ours, expected)


def handed_over(model: Any, inputs: dict[str, torch.Tensor], **options: Any) -> dict[str, Any]:
    """What transformers gives to a custom function."""
    found: dict[str, Any] = {}

    def spy(module: Any, input_ids: torch.Tensor, **given: Any) -> torch.Tensor:
        found.update(given, input_ids=input_ids)
        return input_ids

    model.generate(**inputs, custom_generate=spy, **options)
    return found


@pytest.mark.parametrize("lengths", [(6,), (2, 9)], ids=["one", "padded"])
@pytest.mark.parametrize("warpers", WARPERS)
@pytest.mark.parametrize("name", CONFIGS)
def test_the_law_is_the_one_transformers_would_sample_from(
    model: Any, name: str, warpers: str, lengths: tuple[int, ...]
) -> None:
    options = {"do_sample": True, "max_new_tokens": 20, **CONFIGS[name], **WARPERS[warpers]}
    given = handed_over(model, prompts(*lengths), **options)
    processors, ids = given["logits_processor"], given["input_ids"]
    chosen = torch.Generator().manual_seed(1)
    batch = rows(ids, given)
    for drafted in ((), (3,), (3, 9, 4)):
        extended = torch.cat([ids, torch.tensor([list(drafted)] * len(ids), dtype=torch.long).reshape(len(ids), -1)], dim=1)
        logits = 3 * torch.randn(len(ids), tiny.VOCAB, generator=chosen)
        expected = processors(extended, logits.clone()).softmax(-1)
        for number, row in enumerate(batch):
            eos = eos_token_ids(given["stopping_criteria"])
            params = row_params(processors, row, number, samples=1, greedy=False, max_tokens=20, eos=set(eos), seed=0)
            pipeline = LawPipeline(params, num_prompt_tokens=len(row.prompt), vocab_size=tiny.VOCAB, eos_token_ids=eos)
            law = pipeline.law(logits[number], list(row.prompt), drafted)
            torch.testing.assert_close(torch.as_tensor(law, dtype=torch.float32), expected[number], rtol=0, atol=2e-6)


def test_common_parameters_become_fields_that_drafters_can_heed(model: Any) -> None:
    options = {"do_sample": True, "max_new_tokens": 20, "suppress_tokens": [9], "repetition_penalty": 1.1, "temperature": 0.7}
    given = handed_over(model, prompts(5), top_p=0.9, **options)
    (row,) = rows(given["input_ids"], given)
    params = row_params(given["logits_processor"], row, 0, samples=1, greedy=False, max_tokens=20, eos=set(), seed=0)
    assert (params.suppress_tokens, params.repetition_penalty, params.temperature) == ((9,), 1.1, 0.7)
    assert (params.top_k, params.top_p, params.logits_processors, params.logits_warpers) == (50, 0.9, (), ())


# Sampling.


def test_torchs_seed_replays_a_call(model: Any, draft: Any) -> None:
    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        options = {"do_sample": True, "top_k": 0, "max_new_tokens": 16, "custom_generate": draftproof.hf.generate}
        return torch.stack([model.generate(**prompts(5), drafter=draft, **options) for _ in range(2)])

    first = run(1)
    assert torch.equal(run(1), first)
    assert not torch.equal(run(2), first)
    assert not torch.equal(first[0], first[1])  # the generator moves on from call to call


def test_greedy_leaves_torchs_generator_alone(model: Any) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    both(model, prompts(5), do_sample=False, max_new_tokens=4)
    assert torch.equal(torch.get_rng_state(), before)


def test_sampled_tokens_follow_the_targets_law(model: Any, draft: Any) -> None:
    """300 first tokens against the exact law: chi-square over the six that top-k leaves, false alarm 1e-5."""
    from scipy.stats import chisquare

    inputs, count = prompts(5), 300
    torch.manual_seed(0)
    options = {"do_sample": True, "top_k": 6, "temperature": 3.0, "max_new_tokens": 2, "num_return_sequences": count}
    ours = model.generate(**inputs, custom_generate=draftproof.hf.generate, drafter=draft, **options)
    assert ours.shape == (count, 7) and (ours[:, :5] == inputs["input_ids"]).all()
    with torch.no_grad():
        best = (model(**inputs).logits[0, -1].double() / 3.0).topk(6)
    observed = torch.bincount(ours[:, 5], minlength=tiny.VOCAB)[best.indices]
    assert int(observed.sum()) == count
    expected = best.values.softmax(-1) * count
    assert chisquare(observed.numpy(), expected.numpy()).pvalue > 1e-5


def test_several_sequences_of_several_prompts(model: Any) -> None:
    torch.manual_seed(0)
    inputs = prompts(3, 6)
    options = {"do_sample": True, "top_k": 0, "max_new_tokens": 6, "num_return_sequences": 3}
    ours = model.generate(**inputs, custom_generate=draftproof.hf.generate, **options)
    assert torch.equal(ours[:, :6], inputs["input_ids"].repeat_interleave(3, dim=0))
    assert len({tuple(row) for row in ours[:, 6:].tolist()}) == 6


# Stopping criteria, asked after every token.


class Until(StoppingCriteria):
    """Ends a row at a length, or at the first of some tokens; remembers the lengths it was asked about."""

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
    options = {"do_sample": False, "max_new_tokens": 12, "custom_generate": draftproof.hf.generate, "drafter": model}
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
    assert torch.equal(model.generate(**prompts(2, 6), stopping_criteria=criteria[1], **options, **hooked), expected)


def test_stop_strings_through_the_criterion() -> None:
    inner = Tokenizer(models.BPE({letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner)
    module = tiny.llama(torch.float64, vocab_size=256)
    letters = set(tokenizer.convert_tokens_to_ids(list("abcdefghijklmnopqrstuvwxyz")))
    options = {"do_sample": False, "max_new_tokens": 12, "suppress_tokens": [i for i in range(256) if i not in letters]}
    free = module.generate(**prompts(6), **options)
    string = tokenizer.decode(free[0, 6 + 3 : 6 + 5])
    for drafter in (module, "ngram"):
        criteria = [StoppingCriteriaList([StopStringCriteria(tokenizer, string)]) for _ in range(2)]
        expected = module.generate(**prompts(6), stopping_criteria=criteria[0], **options)
        hooked = {"custom_generate": draftproof.hf.generate, "drafter": drafter}
        ours = module.generate(**prompts(6), stopping_criteria=criteria[1], **options, **hooked)
        assert torch.equal(ours, expected) and ours.shape[1] == 6 + 5


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
    hooked = {"custom_generate": draftproof.hf.generate, "drafter": model if drafter == "model" else drafter}
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
        model.generate(**prompts(6, 6), streamer=Collect(), max_new_tokens=4, custom_generate=draftproof.hf.generate)


# A cache of the caller's.


@pytest.mark.parametrize("drafter", ["ngram", "draft"])
def test_a_cache_of_the_callers_changes_nothing_and_stays_as_it_was(model: Any, draft: Any, drafter: str) -> None:
    inputs = prompts(9)
    expected = model.generate(**inputs, do_sample=False, max_new_tokens=20)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=inputs["input_ids"][:, :-1], cache=cache, use_cache=True)
    before = [layer.keys.clone() for layer in cache.layers]
    hooked = {"custom_generate": draftproof.hf.generate, "drafter": draft if drafter == "draft" else drafter}
    ours = model.generate(**inputs, cache=cache, do_sample=False, max_new_tokens=20, **hooked)
    assert torch.equal(ours, expected)
    assert cache.get_seq_length() == 8
    assert all(torch.equal(layer.keys, old) for layer, old in zip(cache.layers, before, strict=True))


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


# What comes back, and what is left behind.


@pytest.mark.parametrize(
    ("drafter", "method"), [("ngram", "ngram"), ({"method": "ngram"}, "ngram"), (NGram(), "ngram"), ("draft", "draft_model")]
)
def test_the_dictionary_names_the_drafter_and_counts_its_drafts(model: Any, draft: Any, drafter: Any, method: str) -> None:
    options = {"do_sample": False, "max_new_tokens": 30, "return_dict_in_generate": True}
    found = model.generate(
        **prompts(8, 8), custom_generate=draftproof.hf.generate, drafter=draft if drafter == "draft" else drafter, **options
    )
    assert torch.equal(found.sequences, model.generate(**prompts(8, 8), **options).sequences)
    assert len(found.statistics) == 2
    for figures in found.statistics:
        assert figures.method == method and figures.num_draft_tokens > 0 and figures.num_emitted_tokens == 30


def test_drafters_from_a_folder_and_none(model: Any, draft: Any, tmp_path: Path) -> None:
    draft.save_pretrained(tmp_path)
    options = {"do_sample": False, "max_new_tokens": 12, "return_dict_in_generate": True}
    hooked = {"custom_generate": draftproof.hf.generate, **options}
    found = model.generate(**prompts(8), drafter={"method": "draft_model", "model": str(tmp_path)}, **hooked)
    assert found.statistics[0].method == "draft_model"
    found = model.generate(**prompts(8), drafter="none", **hooked)
    assert (found.statistics[0].method, found.statistics[0].num_drafts) == ("none", 0)


def test_models_are_left_as_they_were(model: Any, draft: Any) -> None:
    states = [str(module.config) + str(module.generation_config) for module in (model, draft)]
    try:
        model.train()
        model.lm_head.eval()
        ours = model.generate(
            **prompts(5), do_sample=False, max_new_tokens=6, custom_generate=draftproof.hf.generate, drafter=draft
        )
        assert model.training and model.model.training and not model.lm_head.training
    finally:
        model.eval()
    assert torch.equal(ours, model.generate(**prompts(5), do_sample=False, max_new_tokens=6))
    assert states == [str(module.config) + str(module.generation_config) for module in (model, draft)]
    assert not list(model._forward_hooks) and not draft.training


def test_the_same_call_twice_is_the_same(model: Any, draft: Any) -> None:
    options = {"do_sample": False, "max_new_tokens": 20, "return_dict_in_generate": True}
    first, second = (
        model.generate(**prompts(5), custom_generate=draftproof.hf.generate, drafter=draft, **options).statistics[0]
        for _ in range(2)
    )
    assert (first.num_rounds, first.num_draft_tokens, first.accepted_per_position) == (
        second.num_rounds,
        second.num_draft_tokens,
        second.accepted_per_position,
    )


# Refusals by name.


def stateful_guidance() -> LogitsProcessorList:
    guidance = lp.UnbatchedClassifierFreeGuidanceLogitsProcessor(2.0, tiny.llama())
    return LogitsProcessorList([guidance])


REFUSED: list[tuple[Callable[[], dict[str, Any]], str]] = [
    (lambda: {"num_beams": 2}, "num_beams=2"),
    (lambda: {"prompt_lookup_num_tokens": 3}, "drafter='ngram'"),
    (lambda: {"cache_implementation": "static"}, "cache_implementation='static'"),
    (lambda: {"use_cache": False}, "use_cache=False"),
    (lambda: {"prefill_chunk_size": 4}, "prefill_chunk_size=4"),
    (lambda: {"return_dict_in_generate": True, "output_scores": True}, "output_scores=True"),
    (lambda: {"return_dict_in_generate": True, "output_logits": True}, "output_logits=True"),
    (lambda: {"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states=True"),
    (lambda: {"assistant_model": tiny.llama()}, "drafter="),
    (lambda: {"synced_gpus": True}, "synced_gpus=True"),
    (lambda: {"logits_processor": stateful_guidance()}, "UnbatchedClassifierFreeGuidanceLogitsProcessor"),
    (lambda: {"encoder_repetition_penalty": 2.0}, "EncoderRepetitionPenaltyLogitsProcessor"),
    (lambda: {"position_ids": torch.arange(6)[None] + 3}, "position_ids"),
    (lambda: {"drafter": "ngramm"}, "'ngramm' is unknown"),
    (lambda: {"drafter": None}, "drafter is None"),
    (lambda: {"drafter": 5}, "int"),
    (lambda: {"drafter": "draft_model"}, "draft_model"),
    (lambda: {"drafter": {"metod": "ngram"}}, "did you mean 'method'"),
    (lambda: {"drafter": {"method": "ngram"}, "speculative_config": {"num_speculative_tokens": 2}}, "speculative_config"),
    (lambda: {"drafter": NGram(), "speculative_config": {"method": "ngram"}}, "contradicts the drafter"),
]


@pytest.mark.parametrize(("options", "expected"), REFUSED, ids=[expected for _, expected in REFUSED])
def test_what_is_not_supported_is_refused_by_name(model: Any, options: Callable[[], dict[str, Any]], expected: str) -> None:
    with pytest.raises(UsageError, match=expected.replace("(", r"\(")) as error:
        model.generate(**prompts(6), max_new_tokens=4, custom_generate=draftproof.hf.generate, **options())
    assert "\n" not in str(error.value)


def test_masks_that_are_not_left_padding_are_refused(model: Any) -> None:
    inputs = prompts(6, 6)
    for row, mask in itertools.product((0, 1), ([1, 1, 1, 1, 1, 0], [1, 0, 1, 1, 1, 1], [0] * 6)):
        broken = torch.ones(2, 6, dtype=torch.long)
        broken[row] = torch.tensor(mask)
        with pytest.raises(UsageError, match=f"row {row} is not left padding"):
            rows(inputs["input_ids"], {"attention_mask": broken})


def test_embeddings_and_encoder_decoder_models_are_refused(model: Any) -> None:
    embeddings = model.get_input_embeddings()(prompts(6)["input_ids"])
    with pytest.raises(UsageError, match="inputs_embeds"):
        model.generate(inputs_embeds=embeddings, max_new_tokens=4, custom_generate=draftproof.hf.generate)
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    with pytest.raises(UsageError, match="encoder-decoder"):
        T5ForConditionalGeneration(config).generate(
            torch.tensor([[3, 4]]), max_new_tokens=4, custom_generate=draftproof.hf.generate
        )


def test_a_sliding_window_model_gives_what_transformers_gives() -> None:
    module = tiny.mistral(torch.float64)
    options = {"do_sample": False, "max_new_tokens": 20}
    ours = module.generate(**prompts(6, 11), custom_generate=draftproof.hf.generate, **options)
    assert torch.equal(ours, module.generate(**prompts(6, 11), **options))


def test_a_prompt_that_fills_the_context_is_refused_and_a_long_text_ends_there() -> None:
    module = tiny.gpt2(torch.float64)
    options = {"do_sample": False, "custom_generate": draftproof.hf.generate}
    assert module.generate(**prompts(30), max_new_tokens=10, **options).shape[1] == 32
    with pytest.raises(UsageError, match="32"):
        module.generate(**prompts(32), max_new_tokens=4, **options)
