"""A generation config is honoured or refused by name. That its law is transformers' own:
`test_pipeline_transformers.py`."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import GenerationConfig, WatermarkingConfig
from transformers.generation import logits_process

from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError


def read(
    num_prompt_tokens: int | None = None, overrides: dict[str, Any] | None = None, **fields: Any
) -> SamplingParams:
    config = GenerationConfig(**fields)
    return SamplingParams.from_generation_config(
        config, num_prompt_tokens=num_prompt_tokens, **(overrides or {})
    )


def test_plain_fields() -> None:
    params = read(
        do_sample=True,
        temperature=0.6,
        top_k=20,
        top_p=0.95,
        min_p=0.1,
        repetition_penalty=1.05,
        max_new_tokens=40,
        min_new_tokens=3,
        suppress_tokens=[9],
        bad_words_ids=[[4, 5]],
        stop_strings=["end"],
        num_return_sequences=2,
        sequence_bias=[[[7], -2.0]],
    )
    assert params == SamplingParams(
        temperature=0.6,
        top_k=20,
        top_p=0.95,
        min_p=0.1,
        repetition_penalty=1.05,
        max_tokens=40,
        min_tokens=3,
        suppress_tokens=[9],
        bad_words_ids=[[4, 5]],
        stop=["end"],
        include_stop_str_in_output=True,
        n=2,
        logit_bias={7: -2.0},
    )


def test_what_the_config_leaves_open_is_as_in_generate() -> None:
    assert read() == SamplingParams(temperature=0, top_k=50)
    assert read(do_sample=True) == SamplingParams(temperature=1.0, top_k=50)
    assert read(do_sample=True, top_k=0) == SamplingParams()


def test_an_older_or_foreign_config_object_will_do() -> None:
    class Bare:
        do_sample = True
        temperature = 0.5

    assert SamplingParams.from_generation_config(Bare()) == SamplingParams(temperature=0.5)


def test_overrides_win() -> None:
    params = read(
        overrides={"temperature": 0.9, "max_tokens": None, "seed": 4},
        temperature=0.5,
        top_k=7,
        max_length=100,
    )
    assert params == SamplingParams(temperature=0.9, top_k=7, max_tokens=None, seed=4)
    with pytest.raises(
        UsageError, match="'temprature' is not a sampling parameter; did you mean temperature"
    ):
        read(overrides={"temprature": 1})
    with pytest.raises(UsageError, match="^top_p is 2"):
        read(overrides={"top_p": 2})


def test_lengths_that_count_the_prompt() -> None:
    assert read(10, max_length=30, min_length=15).max_tokens == 20
    assert read(10, max_length=30, min_length=15).min_tokens == 5
    assert read(10, max_length=30, min_length=5).min_tokens == 0
    assert read(10, max_length=30, max_new_tokens=4).max_tokens == 4
    with pytest.raises(
        UsageError, match="max_length counts the prompt: num_prompt_tokens must be given"
    ):
        read(max_length=30)
    with pytest.raises(UsageError, match="min_length counts the prompt"):
        read(max_new_tokens=30, min_length=15)
    with pytest.raises(
        UsageError,
        match="max_length is 30, which is not supported: the prompt has 30 tokens already",
    ):
        read(30, max_length=30)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_beams", 4),
        ("num_beam_groups", 2),
        ("constraints", ["x"]),
        ("force_words_ids", [[1]]),
        ("penalty_alpha", 0.6),
        ("dola_layers", "high"),
        ("guidance_scale", 1.5),
        ("watermarking_config", WatermarkingConfig()),
        ("encoder_repetition_penalty", 1.2),
        ("encoder_no_repeat_ngram_size", 3),
        ("token_healing", True),
        ("max_time", 5.0),
        ("assistant_ensemble_weight", 0.5),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, value: Any) -> None:
    config = GenerationConfig()
    setattr(config, name, value)
    with pytest.raises(
        UsageError, match=f"^the generation config's {name} is .*, which is not supported: .+"
    ):
        SamplingParams.from_generation_config(config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"sequence_bias": [[[7, 8], -2.0]], "repetition_penalty": 1.2},
            "sequence_bias is .*together with repetition_penalty",
        ),
        (
            {"exponential_decay_length_penalty": (1, 1.1)},
            "exponential_decay_length_penalty is .*no eos_token_id",
        ),
        (
            {"exponential_decay_length_penalty": (1, 1.1), "eos_token_id": 2},
            "exponential_decay_length_penalty counts the prompt",
        ),
        ({"begin_suppress_tokens": [3]}, "begin_suppress_tokens counts the prompt"),
        (
            {"forced_eos_token_id": 2},
            "forced_eos_token_id is 2, .*without max_new_tokens or max_length",
        ),
        ({"forced_eos_token_id": 2, "max_new_tokens": 5}, "forced_eos_token_id counts the prompt"),
        (
            {"forced_eos_token_id": [2, 3], "max_new_tokens": 5, "suppress_tokens": [2]},
            r"forced_eos_token_id is \[2, 3\], .*suppressed",
        ),
        ({"top_h": 0.4}, "top_h is 0.4, .*only without top_k"),
    ],
)
def test_what_cannot_be_honoured_here_is_refused_by_name(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read(**fields)


def test_fields_without_effect_on_a_law_are_no_reason_to_refuse() -> None:
    params = read(
        length_penalty=1.5,
        early_stopping=True,
        use_cache=False,
        renormalize_logits=True,
        max_new_tokens=5,
        pad_token_id=0,
    )
    assert params == SamplingParams(temperature=0, top_k=50, max_tokens=5)


def test_processors_are_transformers_own_and_in_its_order() -> None:
    params = read(
        5,
        do_sample=True,
        top_k=0,
        eos_token_id=2,
        max_new_tokens=9,
        sequence_bias=[[[7, 8], -2.0]],
        no_repeat_ngram_size=2,
        forced_eos_token_id=2,
        remove_invalid_values=True,
        exponential_decay_length_penalty=(1, 1.1),
        begin_suppress_tokens=[3],
        top_h=0.5,
        typical_p=0.9,
        epsilon_cutoff=0.01,
        eta_cutoff=0.01,
    )
    assert [type(processor).__name__ for processor in params.logits_processors] == [
        "SequenceBiasLogitsProcessor",
        "NoRepeatNGramLogitsProcessor",
        "ForcedEOSTokenLogitsProcessor",
        "InfNanRemoveLogitsProcessor",
        "ExponentialDecayLengthPenalty",
        "SuppressTokensAtBeginLogitsProcessor",
    ]
    assert [type(processor).__name__ for processor in params.logits_warpers] == [
        "TopHLogitsWarper",
        "TypicalLogitsWarper",
        "EpsilonLogitsWarper",
        "EtaLogitsWarper",
    ]


def test_the_callers_processor_replaces_the_configs_of_its_kind() -> None:
    own = logits_process.NoRepeatNGramLogitsProcessor(4)
    params = read(
        overrides={"logits_processors": [own]}, no_repeat_ngram_size=2, remove_invalid_values=True
    )
    assert [type(processor).__name__ for processor in params.logits_processors] == [
        "InfNanRemoveLogitsProcessor",
        "NoRepeatNGramLogitsProcessor",
    ]
    assert params.logits_processors[1] is own


def test_a_bad_word_that_is_only_eos_is_left_out_as_transformers_does() -> None:
    params = read(bad_words_ids=[[2], [3], [2, 3]], eos_token_id=[2, 9])
    assert params.bad_words_ids == ((3,), (2, 3))
