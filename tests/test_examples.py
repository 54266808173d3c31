"""The programs under examples/, on tiny models: their law, their counts, what they read, and how they refuse."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

import draftproof
from draftproof import SamplingParams, TableModel
from draftproof.core.enumerate import EnumeratingChance, outcomes
from draftproof.errors import UsageError, VocabularyMismatchError
from draftproof.models.hf import HFModel
from sampling import assert_same_law
from tiny import VOCAB, gpt2, llama

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TARGET = np.array([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.1, 0.7, 0.2]])
DRAFT = np.array([[0.2, 0.5, 0.3], [0.5, 0.3, 0.2], [0.6, 0.2, 0.2]])


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


two_models = load("two_models")


def exact_texts(decoder: Any, prompt: str, **options: Any) -> dict[str, float]:
    """The law of `speculative_generate`'s text, by walking every outcome of its draws, each of which is independent."""
    law: dict[str, float] = {}

    def run(chance: EnumeratingChance) -> str:
        decoder.chance = chance
        return str(two_models.speculative_generate(decoder, prompt, **options)[0])

    fresh = itertools.count()
    for outcome, text in outcomes(run, 0, key=lambda start, purpose, node: (purpose, next(fresh), node)):
        law[text] = law.get(text, 0.0) + outcome.probability
    return law


def chain(size: int = 64, **options: Any) -> TableModel:
    """Token i is always followed by i + 1."""
    return TableModel([[1.0 if j == (i + 1) % size else 0.0 for j in range(size)] for i in range(size)], **options)


def word_tokenizer(size: int = VOCAB, swapped: Mapping[int, int] | None = None) -> PreTrainedTokenizerFast:
    """Words w0, w1, ...; unlike `tiny`'s, none of them is a special token, which a text would not show."""
    ids = {f"w{i}": (swapped or {}).get(i, i) for i in range(size)}
    inner = Tokenizer(WordLevel(ids, unk_token="w0"))
    inner.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner)


def words(*tokens: int) -> str:
    return " ".join(f"w{token}" for token in tokens)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("num_draft", [0, 1, 2, 4])
def test_the_texts_have_exactly_the_targets_law(num_draft: int, temperature: float) -> None:
    """Three tokens over every path of drafts, acceptances, replacements and bonuses: rounds that follow rounds included."""
    decoder = two_models.SpeculativeDecoder(TableModel(DRAFT), TableModel(TARGET), word_tokenizer(3))
    found = exact_texts(decoder, "w0", max_tokens=3, num_draft=num_draft, temperature=temperature)
    warmed = TARGET ** (1 / temperature)
    warmed /= warmed.sum(axis=1, keepdims=True)
    law = {words(0, a, b, c): warmed[0, a] * warmed[a, b] * warmed[b, c] for a, b, c in itertools.product(range(3), repeat=3)}
    assert_same_law(found, law, 1e-12)


def test_an_end_token_cuts_the_law_where_it_falls() -> None:
    decoder = two_models.SpeculativeDecoder(TableModel(DRAFT), TableModel(TARGET, eos_token_ids=(2,)), word_tokenizer(3))
    law = {words(0, 2): TARGET[0, 2]}
    for a, b in itertools.product(range(2), range(3)):
        law[words(0, a, b)] = TARGET[0, a] * TARGET[a, b]
    assert_same_law(exact_texts(decoder, "w0", max_tokens=2, num_draft=3), law, 1e-12)


def test_signatures_defaults_and_results() -> None:
    speculative = inspect.signature(two_models.speculative_generate).parameters
    assert list(speculative) == ["decoder", "prompt", "max_tokens", "num_draft", "temperature"]
    assert [speculative[name].default for name in ("max_tokens", "num_draft", "temperature")] == [50, 4, 1.0]
    standard = inspect.signature(two_models.standard_generate).parameters
    assert list(standard)[:6] == ["model", "tokenizer", "prompt", "max_tokens", "temperature", "device"]
    assert [standard[name].default for name in ("max_tokens", "temperature")] == [50, 1.0]
    decoder = two_models.SpeculativeDecoder(llama(seed=3), llama(), word_tokenizer(), torch.device("cpu"), seed=0)
    ids = torch.tensor([[1, 2, 3]])
    tokens, probs = decoder.draft_tokens(ids, 4)
    assert len(tokens) == len(probs) == len(decoder.draft_distributions) == 4 and all(0 < prob <= 1 for prob in probs)
    target_probs, laws = decoder.verify_tokens(ids, tokens)
    assert len(target_probs) == 4 and [law.shape for law in laws] == [(64,)] * 5
    emitted = decoder.accept_reject(tokens, probs, target_probs, laws, decoder.draft_distributions)
    assert 1 <= len(emitted) <= 5 and emitted[:-1] == tokens[: len(emitted) - 1]
    text, stats = two_models.speculative_generate(decoder, "w1 w2")
    assert text.startswith("w1 w2 ") and len(text.split()) == 52 and list(stats) == ["rounds", "drafted", "accepted"]
    assert len(two_models.standard_generate(llama(), word_tokenizer(), "w1 w2", device="cpu").split()) == 52


def test_what_two_calls_give_is_the_forwards_own_law() -> None:
    """Drafts and target laws against an uncached pass; padding rows of the output layer are cut."""
    draft, target = llama(seed=3, vocab_size=80), llama(vocab_size=80)
    decoder = two_models.SpeculativeDecoder(draft, target, word_tokenizer(64), seed=1)
    for context in ([5, 6, 7], [5, 6, 7, 8, 9], [5, 40]):
        tokens, probs = decoder.draft_tokens([context], 3, 0.8)
        target_probs, laws = decoder.verify_tokens([context], tokens, 0.8)
        for model, found in ((draft, decoder.draft_distributions), (target, laws)):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([context + tokens])).logits[0, len(context) - 1 :, :64]
            expected = torch.softmax(logits / 0.8, -1).numpy()
            assert all(law == pytest.approx(row, abs=1e-5) for law, row in zip(found, expected, strict=False))
        assert probs == [law[token] for law, token in zip(decoder.draft_distributions, tokens, strict=True)]
        assert target_probs == [law[token] for law, token in zip(laws, tokens, strict=False)]


def test_counts_with_a_draft_that_is_always_right_and_one_that_never_is() -> None:
    right = two_models.SpeculativeDecoder(chain(), chain(), word_tokenizer())
    text, stats = two_models.speculative_generate(right, "w0")
    assert text == words(*range(51)) and stats == {"rounds": 10, "drafted": 40, "accepted": 40}
    backwards = TableModel([[1.0 if j == (i - 1) % 64 else 0.0 for j in range(64)] for i in range(64)])
    wrong = two_models.SpeculativeDecoder(backwards, chain(), word_tokenizer())
    text, stats = two_models.speculative_generate(wrong, "w0")
    assert text == words(*range(51)) and stats == {"rounds": 50, "drafted": 46 * 4 + 3 + 2 + 1, "accepted": 0}


def test_never_more_tokens_than_asked_for_and_no_draft_that_could_not_be_emitted() -> None:
    decoder = two_models.SpeculativeDecoder(chain(), chain(), word_tokenizer())
    for count in range(8):
        text, stats = two_models.speculative_generate(decoder, "w0", count, num_draft=4)
        assert text == words(*range(count + 1)) and stats["drafted"] == stats["accepted"] <= max(0, count - 1)


def test_an_end_token_inside_a_block_ends_the_text_and_the_counts() -> None:
    model = chain(eos_token_ids=(3,))
    decoder = two_models.SpeculativeDecoder(chain(), model, word_tokenizer())
    text, stats = two_models.speculative_generate(decoder, "w0", num_draft=8)
    assert text == "w0 w1 w2 w3" and stats == {"rounds": 1, "drafted": 8, "accepted": 3}


@pytest.mark.parametrize("draft_seed", [0, 3])
def test_greedy_text_is_the_targets_own(draft_seed: int) -> None:
    target, draft = llama(torch.float64), llama(torch.float64, seed=draft_seed)
    decoder = two_models.SpeculativeDecoder(draft, target, word_tokenizer())
    text, stats = two_models.speculative_generate(decoder, "w3 w10 w17", 40, temperature=0)
    assert text == two_models.standard_generate(target, word_tokenizer(), "w3 w10 w17", 40, 0)
    ids = torch.tensor([[3, 10, 17]])
    expected = target.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False, pad_token_id=0)
    assert text == words(*expected[0].tolist())
    library = draftproof.SpeculativeDecoder(draft, target, word_tokenizer())
    counts = library.generate("w3 w10 w17", SamplingParams(temperature=0, max_tokens=40)).stats
    assert stats == {
        "rounds": counts.num_rounds,
        "drafted": counts.num_draft_tokens,
        "accepted": counts.num_accepted_tokens,
    }


def test_nothing_is_read_twice_and_the_draft_takes_one_step_a_draft() -> None:
    target, draft = HFModel(llama(torch.float64)), HFModel(llama(torch.float64, seed=3))
    decoder = two_models.SpeculativeDecoder(draft, target, word_tokenizer(), seed=0)
    read: dict[str, list[int]] = {"target": [], "draft": []}
    for name, model in (("target", target), ("draft", draft)):
        model.module.register_forward_pre_hook(
            lambda module, args, kwargs, seen=read[name]: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
        )
    text, stats = two_models.speculative_generate(decoder, words(1, 2, 3, 4, 5), 30)
    emitted, rejected = len(text.split()) - 5, stats["drafted"] - stats["accepted"]
    assert (len(read["target"]), sum(read["target"])) == (stats["rounds"], 5 + emitted - 1 + rejected)
    assert len(read["draft"]) == stats["drafted"] and rejected > 0


def test_the_context_of_either_model_may_run_out() -> None:
    """Learned positions, 32 of them: the text ends there, and a draft model with fewer stops drafting."""
    target = gpt2(torch.float64)
    decoder = two_models.SpeculativeDecoder(gpt2(torch.float64, seed=3, n_positions=16), target, word_tokenizer())
    text, stats = two_models.speculative_generate(decoder, words(*range(10)), 50, temperature=0)
    assert text == two_models.standard_generate(target, word_tokenizer(), words(*range(10)), 22, 0)
    assert 0 < stats["drafted"] < 50
    with pytest.raises(UsageError, match="the prompt has 32 tokens; .* holds 32"):
        two_models.speculative_generate(decoder, words(*range(32)))


def test_a_seed_repeats_a_text() -> None:
    texts = []
    for seed in (1, 1, 2):
        decoder = two_models.SpeculativeDecoder(llama(seed=3), llama(), word_tokenizer(), seed=seed)
        texts.append(two_models.speculative_generate(decoder, "w1", 20, temperature=1.5))
    assert texts[0] == texts[1] != texts[2]
    plain = [two_models.standard_generate(llama(), word_tokenizer(), "w1", 20, 1.5, seed=seed) for seed in (1, 1, 2)]
    assert plain[0] == plain[1] != plain[2]


def test_what_does_not_belong_together_is_refused() -> None:
    decoder = two_models.SpeculativeDecoder(TableModel(DRAFT), TableModel(TARGET), word_tokenizer(3), seed=0)
    tokens, probs = decoder.draft_tokens([0], 2)
    target_probs, laws = decoder.verify_tokens([0], tokens)
    for wrong, sentence in (
        ((tokens, probs, target_probs, laws[:-1], decoder.draft_distributions), "the last one for the bonus; got 2 and 2"),
        ((tokens, [0.5, 0.123], target_probs, laws, decoder.draft_distributions), "draft probability"),
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
            two_models.speculative_generate(decoder, "w0", **options)
    with pytest.raises(UsageError, match=r"input_ids has shape \[2, 3\]"):
        decoder.draft_tokens(torch.zeros(2, 3, dtype=torch.long), 2)
    with pytest.raises(UsageError, match="empty"):
        two_models.speculative_generate(decoder, "")
    pair = HFModel(llama(seed=3), word_tokenizer(swapped={3: 5, 5: 3})), HFModel(llama(), word_tokenizer())
    with pytest.raises(VocabularyMismatchError, match="id 3 is 'w3' and 'w5'"):
        two_models.SpeculativeDecoder(*pair, word_tokenizer())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A draft and a target as model folders with their tokenizer."""
    found = []
    for name, seed in (("draft", 3), ("target", 0)):
        folder = tmp_path_factory.mktemp(name)
        llama(seed=seed).save_pretrained(folder)
        word_tokenizer().save_pretrained(folder)
        found.append(str(folder))
    return found[0], found[1]


def test_the_program_on_a_pair_and_on_one_model(folders: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    draft, target = folders
    common = ["--target", target, "--prompt", "w1 w2 w1 w2", "--max-tokens", "12", "--device", "cpu"]
    assert two_models.main(["--draft", draft, *common]) == 0
    printed = capsys.readouterr().out
    assert f"target {target}, draft model {draft}" in printed and "--- speculative" in printed and "'drafted'" in printed
    assert two_models.main([*common, "--num-draft", "2", "--temperature", "0"]) == 0
    printed = capsys.readouterr().out
    plain, fast = (part.split("\n")[1] for part in printed.split("---")[1:])
    assert "drafts by prompt lookup" in printed and plain == fast and len(plain.split()) == 16


def test_the_program_says_in_a_sentence_what_is_wrong(capsys: pytest.CaptureFixture[str], folders: tuple[str, str]) -> None:
    assert two_models.main(["--target", "/nowhere/at/all"]) == 2
    assert capsys.readouterr().err == "two_models: there is no file or folder /nowhere/at/all\n"
    assert two_models.main(["--target", folders[1], "--temperature", "-1"]) == 2
    assert "temperature" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        two_models.main(["--draft", folders[0]])
    assert "--draft needs --target" in capsys.readouterr().err


def test_the_sweep_is_the_simulators(capsys: pytest.CaptureFixture[str]) -> None:
    assert two_models.main(["--sweep"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [float(line.split()[0]) for line in lines] == [0.5, 0.6, 0.7, 0.8, 0.9]
    for line, row in zip(lines, two_models.sweep(), strict=True):
        assert f"{row['tokens_mean']:.2f}" in line and f"{row['speedup_mean']:.2f}" in line


@pytest.mark.parametrize("reachable, fetched", [(True, False), (False, True), (False, False)])
def test_models_when_none_are_named(reachable: bool, fetched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locate(name: str) -> tuple[str, bool]:
        if not reachable:
            raise UsageError(f"{name} is not on this machine and the model hub cannot be reached")
        return name, False

    pulled = []
    monkeypatch.setattr(two_models, "locate", locate)
    monkeypatch.setattr(two_models, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(two_models, "pull", lambda: pulled.append(True))
    if fetched:
        (tmp_path / "models").mkdir()
        for name in two_models.FETCHED_PAIR:
            (tmp_path / "models" / name).touch()
    found = two_models.default_models()
    if reachable:
        assert found == ("gpt2", "gpt2-medium")
    elif fetched:
        assert found == tuple(str(tmp_path / "models" / name) for name in two_models.FETCHED_PAIR)
    else:
        assert found == (None, two_models.DEFAULT_MODEL)
    assert bool(pulled) == (not reachable and not fetched)
