"""A round taken apart, on tiny models: the law of its texts, its counts, what it reads, how it
refuses, which pair it takes."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import draftproof
from draftproof import SamplingParams, TableModel, walkthrough
from draftproof.core.enumerate import EnumeratingChance, outcomes
from draftproof.errors import UsageError, VocabularyMismatchError
from draftproof.models.hf import HFModel
from draftproof.models.place import check_place
from draftproof.models.pull import DEFAULT_MODEL
from sampling import assert_same_law
from tiny import gpt2, llama
from tokenizers_in_code import plain_words

TARGET = np.array([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.1, 0.7, 0.2]])
DRAFT = np.array([[0.2, 0.5, 0.3], [0.5, 0.3, 0.2], [0.6, 0.2, 0.2]])


def exact_texts(decoder: Any, prompt: str, **options: Any) -> dict[str, float]:
    """The law of `speculative_generate`'s text, by walking every outcome of its draws, each of
    which is independent."""
    law: dict[str, float] = {}

    def run(chance: EnumeratingChance) -> str:
        decoder.chance = chance
        return str(walkthrough.speculative_generate(decoder, prompt, **options)[0])

    fresh = itertools.count()
    for outcome, text in outcomes(
        run, 0, key=lambda start, purpose, node: (purpose, next(fresh), node)
    ):
        law[text] = law.get(text, 0.0) + outcome.probability
    return law


def chain(size: int = 64, **options: Any) -> TableModel:
    """Token i is always followed by i + 1."""
    return TableModel(
        [[1.0 if j == (i + 1) % size else 0.0 for j in range(size)] for i in range(size)], **options
    )


def words(*tokens: int) -> str:
    return " ".join(f"w{token}" for token in tokens)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("num_draft", [0, 1, 2, 4])
def test_the_texts_have_exactly_the_targets_law(num_draft: int, temperature: float) -> None:
    """Three tokens over every path of drafts, acceptances, replacements and bonuses: rounds that
    follow rounds included."""
    decoder = walkthrough.SpeculativeDecoder(TableModel(DRAFT), TableModel(TARGET), plain_words(3))
    found = exact_texts(decoder, "w0", max_tokens=3, num_draft=num_draft, temperature=temperature)
    warmed = TARGET ** (1 / temperature)
    warmed /= warmed.sum(axis=1, keepdims=True)
    law = {
        words(0, a, b, c): warmed[0, a] * warmed[a, b] * warmed[b, c]
        for a, b, c in itertools.product(range(3), repeat=3)
    }
    assert_same_law(found, law, 1e-12)


def test_an_end_token_cuts_the_law_where_it_falls() -> None:
    decoder = walkthrough.SpeculativeDecoder(
        TableModel(DRAFT), TableModel(TARGET, eos_token_ids=(2,)), plain_words(3)
    )
    law = {words(0, 2): TARGET[0, 2]}
    for a, b in itertools.product(range(2), range(3)):
        law[words(0, a, b)] = TARGET[0, a] * TARGET[a, b]
    assert_same_law(exact_texts(decoder, "w0", max_tokens=2, num_draft=3), law, 1e-12)


def test_signatures_defaults_and_results() -> None:
    speculative = inspect.signature(walkthrough.speculative_generate).parameters
    assert list(speculative) == ["decoder", "prompt", "max_tokens", "num_draft", "temperature"]
    assert [speculative[name].default for name in ("max_tokens", "num_draft", "temperature")] == [
        50,
        4,
        1.0,
    ]
    standard = inspect.signature(walkthrough.standard_generate).parameters
    assert list(standard)[:6] == [
        "model",
        "tokenizer",
        "prompt",
        "max_tokens",
        "temperature",
        "device",
    ]
    assert [standard[name].default for name in ("max_tokens", "temperature")] == [50, 1.0]
    decoder = walkthrough.SpeculativeDecoder(
        llama(seed=3), llama(), plain_words(), torch.device("cpu"), seed=0
    )
    ids = torch.tensor([[1, 2, 3]])
    tokens, probs = decoder.draft_tokens(ids, 4)
    assert len(tokens) == len(probs) == len(decoder.draft_distributions) == 4 and all(
        0 < prob <= 1 for prob in probs
    )
    target_probs, laws = decoder.verify_tokens(ids, tokens)
    assert len(target_probs) == 4 and [law.shape for law in laws] == [(64,)] * 5
    emitted = decoder.accept_reject(tokens, probs, target_probs, laws, decoder.draft_distributions)
    assert 1 <= len(emitted) <= 5 and emitted[:-1] == tokens[: len(emitted) - 1]
    text, stats = walkthrough.speculative_generate(decoder, "w1 w2")
    assert (
        text.startswith("w1 w2 ")
        and len(text.split()) == 52
        and list(stats) == ["rounds", "drafted", "accepted"]
    )
    assert (
        len(walkthrough.standard_generate(llama(), plain_words(), "w1 w2", device="cpu").split())
        == 52
    )


def test_what_two_calls_give_is_the_forwards_own_law() -> None:
    """Drafts and target laws against an uncached pass; padding rows of the output layer are cut."""
    draft, target = llama(seed=3, vocab_size=80), llama(vocab_size=80)
    decoder = walkthrough.SpeculativeDecoder(draft, target, plain_words(64), seed=1)
    for context in ([5, 6, 7], [5, 6, 7, 8, 9], [5, 40]):
        tokens, probs = decoder.draft_tokens([context], 3, 0.8)
        target_probs, laws = decoder.verify_tokens([context], tokens, 0.8)
        for model, found in ((draft, decoder.draft_distributions), (target, laws)):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([context + tokens])).logits[
                    0, len(context) - 1 :, :64
                ]
            expected = torch.softmax(logits / 0.8, -1).numpy()
            assert all(
                law == pytest.approx(row, abs=1e-5)
                for law, row in zip(found, expected, strict=False)
            )
        assert probs == [
            law[token] for law, token in zip(decoder.draft_distributions, tokens, strict=True)
        ]
        assert target_probs == [law[token] for law, token in zip(laws, tokens, strict=False)]


def test_counts_with_a_draft_that_is_always_right_and_one_that_never_is() -> None:
    right = walkthrough.SpeculativeDecoder(chain(), chain(), plain_words())
    text, stats = walkthrough.speculative_generate(right, "w0")
    assert text == words(*range(51)) and stats == {"rounds": 10, "drafted": 40, "accepted": 40}
    backwards = TableModel(
        [[1.0 if j == (i - 1) % 64 else 0.0 for j in range(64)] for i in range(64)]
    )
    wrong = walkthrough.SpeculativeDecoder(backwards, chain(), plain_words())
    text, stats = walkthrough.speculative_generate(wrong, "w0")
    assert text == words(*range(51)) and stats == {
        "rounds": 50,
        "drafted": 46 * 4 + 3 + 2 + 1,
        "accepted": 0,
    }


def test_never_more_tokens_than_asked_for_and_no_draft_that_could_not_be_emitted() -> None:
    decoder = walkthrough.SpeculativeDecoder(chain(), chain(), plain_words())
    for count in range(8):
        text, stats = walkthrough.speculative_generate(decoder, "w0", count, num_draft=4)
        assert text == words(*range(count + 1)) and stats["drafted"] == stats["accepted"] <= max(
            0, count - 1
        )


def test_an_end_token_inside_a_block_ends_the_text_and_the_counts() -> None:
    model = chain(eos_token_ids=(3,))
    decoder = walkthrough.SpeculativeDecoder(chain(), model, plain_words())
    text, stats = walkthrough.speculative_generate(decoder, "w0", num_draft=8)
    assert text == "w0 w1 w2 w3" and stats == {"rounds": 1, "drafted": 8, "accepted": 3}


@pytest.mark.parametrize("draft_seed", [0, 3])
def test_greedy_text_is_the_targets_own(draft_seed: int) -> None:
    target, draft = llama(torch.float64), llama(torch.float64, seed=draft_seed)
    decoder = walkthrough.SpeculativeDecoder(draft, target, plain_words())
    text, stats = walkthrough.speculative_generate(decoder, "w3 w10 w17", 40, temperature=0)
    assert text == walkthrough.standard_generate(target, plain_words(), "w3 w10 w17", 40, 0)
    ids = torch.tensor([[3, 10, 17]])
    expected = target.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False, pad_token_id=0
    )
    assert text == words(*expected[0].tolist())
    library = draftproof.SpeculativeDecoder(draft, target, plain_words())
    counts = library.generate("w3 w10 w17", SamplingParams(temperature=0, max_tokens=40)).stats
    assert stats == {
        "rounds": counts.num_rounds,
        "drafted": counts.num_draft_tokens,
        "accepted": counts.num_accepted_tokens,
    }


def test_nothing_is_read_twice_and_the_draft_takes_one_step_a_draft() -> None:
    target, draft = HFModel(llama(torch.float64)), HFModel(llama(torch.float64, seed=3))
    decoder = walkthrough.SpeculativeDecoder(draft, target, plain_words(), seed=0)
    read: dict[str, list[int]] = {"target": [], "draft": []}
    for name, model in (("target", target), ("draft", draft)):
        model.module.register_forward_pre_hook(
            lambda module, args, kwargs, seen=read[name]: seen.append(kwargs["input_ids"].shape[1]),
            with_kwargs=True,
        )
    text, stats = walkthrough.speculative_generate(decoder, words(1, 2, 3, 4, 5), 30)
    emitted, rejected = len(text.split()) - 5, stats["drafted"] - stats["accepted"]
    assert (len(read["target"]), sum(read["target"])) == (
        stats["rounds"],
        5 + emitted - 1 + rejected,
    )
    assert len(read["draft"]) == stats["drafted"] and rejected > 0


def test_the_context_of_either_model_may_run_out() -> None:
    """Learned positions, 32 of them: the text ends there, and a draft model with fewer stops
    drafting."""
    target = gpt2(torch.float64)
    decoder = walkthrough.SpeculativeDecoder(
        gpt2(torch.float64, seed=3, n_positions=16), target, plain_words()
    )
    text, stats = walkthrough.speculative_generate(decoder, words(*range(10)), 50, temperature=0)
    assert text == walkthrough.standard_generate(target, plain_words(), words(*range(10)), 22, 0)
    assert 0 < stats["drafted"] < 50
    with pytest.raises(UsageError, match="the prompt has 32 tokens; .* holds 32"):
        walkthrough.speculative_generate(decoder, words(*range(32)))


def test_a_seed_repeats_a_text() -> None:
    texts = []
    for seed in (1, 1, 2):
        decoder = walkthrough.SpeculativeDecoder(llama(seed=3), llama(), plain_words(), seed=seed)
        texts.append(walkthrough.speculative_generate(decoder, "w1", 20, temperature=1.5))
    assert texts[0] == texts[1] != texts[2]
    plain = [
        walkthrough.standard_generate(llama(), plain_words(), "w1", 20, 1.5, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert plain[0] == plain[1] != plain[2]


def test_what_does_not_belong_together_is_refused() -> None:
    decoder = walkthrough.SpeculativeDecoder(
        TableModel(DRAFT), TableModel(TARGET), plain_words(3), seed=0
    )
    tokens, probs = decoder.draft_tokens([0], 2)
    target_probs, laws = decoder.verify_tokens([0], tokens)
    for wrong, sentence in (
        (
            (tokens, probs, target_probs, laws[:-1], decoder.draft_distributions),
            "the last one for the bonus; got 2 and 2",
        ),
        (
            (tokens, [0.5, 0.123], target_probs, laws, decoder.draft_distributions),
            "draft probability",
        ),
        ((tokens, probs, [0.5, 0.123], laws, decoder.draft_distributions), "target probability"),
    ):
        with pytest.raises(UsageError, match=sentence):
            decoder.accept_reject(*wrong)
    for options, sentence in (
        ({"max_tokens": -1}, "max_tokens"),
        ({"num_draft": 1.5}, "num_draft"),
        ({"temperature": -1}, "temperature"),
    ):
        with pytest.raises(UsageError, match=sentence):
            walkthrough.speculative_generate(decoder, "w0", **options)
    with pytest.raises(UsageError, match=r"input_ids has shape \[2, 3\]"):
        decoder.draft_tokens(torch.zeros(2, 3, dtype=torch.long), 2)
    with pytest.raises(UsageError, match="empty"):
        walkthrough.speculative_generate(decoder, "")
    pair = (
        HFModel(llama(seed=3), plain_words(swapped={3: 5, 5: 3})),
        HFModel(llama(), plain_words()),
    )
    with pytest.raises(VocabularyMismatchError, match="id 3 is 'w3' and 'w5'"):
        walkthrough.SpeculativeDecoder(*pair, plain_words())


@pytest.fixture
def models_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models, an empty working folder, no model downloaded before, and a hub
    that has nothing."""
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("draftproof.models.place._is_kept", lambda hub_id, revision: False)
    monkeypatch.setattr("draftproof.models.place._is_kept_only", refuse)
    monkeypatch.setattr(walkthrough, "pull", lambda: None)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "cache" / "models").mkdir(parents=True)
    return tmp_path / "cache" / "models"


def refuse(hub_id: str, revision: str | None, advice: str) -> bool:
    raise UsageError(
        f"{hub_id} is not on this machine and the model hub cannot be reached; {advice}"
    )


def test_without_any_pair_it_is_the_default_target_alone(models_folder: Path) -> None:
    assert walkthrough.default_pair() == (None, DEFAULT_MODEL)


@pytest.mark.parametrize("pair", walkthrough.PAIRS)
@pytest.mark.parametrize("kind", ["a model folder here", "downloaded from a hub"])
def test_a_pair_is_found_by_any_of_its_names(
    pair: tuple[str, str], kind: str, models_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "downloaded from a hub":
        monkeypatch.setattr(
            "draftproof.models.place._is_kept", lambda hub_id, revision: hub_id in pair
        )
    else:
        for name in pair:
            Path(name).mkdir(parents=True)
            (Path(name) / "config.json").write_text("{}")
    assert walkthrough.default_pair() == pair
    for name in pair:
        check_place(name)


@pytest.mark.parametrize("suffix", ["", ".gguf"])
def test_a_pair_lies_where_pull_puts_models(suffix: str, models_folder: Path) -> None:
    """A model there is found by its name in every command; half a pair is none."""
    pair = walkthrough.PAIRS[2]
    for name in pair:
        assert walkthrough.default_pair() == (None, DEFAULT_MODEL)
        with pytest.raises(UsageError, match="cannot be reached"):
            check_place(name)
        place = models_folder / f"{name}{suffix}"
        if suffix:
            place.touch()
        else:
            place.mkdir()
            (place / "config.json").write_text("{}")
        check_place(name)
    assert walkthrough.default_pair() == pair


def test_the_hub_is_asked_where_no_pair_is_here(
    models_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "draftproof.models.place._is_kept_only", lambda hub_id, revision, advice: False
    )
    assert walkthrough.default_pair() == walkthrough.PAIRS[0]
