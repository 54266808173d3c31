"""alpha_per_position: against the sum by hand, the decoder's own overlaps, and everything that
cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import draftproof
from draftproof import SamplingParams, SpeculativeDecoder, TableModel, alpha_per_position
from draftproof.errors import UsageError, VocabularyMismatchError
from draftproof.models.hf import HFModel
from draftproof.plan import alpha
from tiny import fresh_logits, gpt2, llama, qwen2, word_tokenizer

IDS = [3, 10, 17, 24, 31, 38, 45, 52, 59, 2, 9, 16]


def by_hand(target, draft, ids, n_prompt, temperature=1.0, vocab=None):
    """One uncached pass each, the two softmaxes, and the sum of the smaller."""
    p, q = (
        torch.softmax(fresh_logits(m, ids)[n_prompt - 1 : -1, :vocab].double() / temperature, -1)
        for m in (target, draft)
    )
    return torch.minimum(p, q).sum(-1).numpy()


@pytest.mark.parametrize("temperature", [1.0, 0.7, 3.0])
@pytest.mark.parametrize("n_prompt", [1, 4, 11])
def test_it_is_the_sum_of_the_smaller_probabilities(temperature, n_prompt):
    target, draft = llama(), qwen2(seed=3)
    found = alpha_per_position(target, draft, IDS, n_prompt, temperature)
    assert found.shape == (len(IDS) - n_prompt,) and found.dtype == np.float64
    assert found == pytest.approx(by_hand(target, draft, IDS, n_prompt, temperature), abs=1e-5)
    assert found.min() > 0 and found.max() < 1


def test_ids_come_in_any_form():
    target, draft = HFModel(llama()), HFModel(llama(seed=3))
    once = alpha_per_position(target, draft, IDS, 4)
    for ids in (
        tuple(IDS),
        np.array(IDS),
        torch.tensor(IDS),
        torch.tensor([IDS]),
        [IDS],
        np.array([IDS]),
    ):
        assert np.array_equal(alpha_per_position(target, draft, ids, 4), once)


def test_reading_in_pieces_changes_nothing(monkeypatch):
    target, draft = HFModel(llama(torch.float64)), HFModel(llama(torch.float64, seed=3))
    whole = alpha_per_position(target, draft, IDS, 2)
    for rows in (1, 3, 10):
        monkeypatch.setattr(alpha, "ROWS", rows)
        assert alpha_per_position(target, draft, IDS, 2) == pytest.approx(whole, abs=1e-9)


def test_no_more_rows_than_that_are_asked_for_and_every_token_is_read_once(monkeypatch):
    monkeypatch.setattr(alpha, "ROWS", 4)
    seen = []
    model = TableModel(np.full((64, 64), 1 / 64))
    inner = model.extend_many
    monkeypatch.setattr(
        model,
        "extend_many",
        lambda steps: [seen.append((s.tokens, len(s.rows))) or inner([s])[0] for s in steps],
    )
    alpha_per_position(model, TableModel(np.full((64, 64), 1 / 64)), IDS, 3)
    assert [rows for _, rows in seen] == [4, 4, 1]
    assert [token for tokens, _ in seen for token in tokens] == IDS[:-1]


def test_greedy_is_agreement_of_the_favourites():
    target, draft = llama(), llama(seed=3)
    best = [fresh_logits(m, IDS)[3:-1].argmax(-1) for m in (target, draft)]
    agree = (best[0] == best[1]).double().numpy()
    assert np.array_equal(alpha_per_position(target, draft, IDS, 4, 0), agree)
    assert np.array_equal(alpha_per_position(target, target, IDS, 4, 0), np.ones(8))


def test_a_model_agrees_with_itself():
    module = llama(torch.float64)
    assert alpha_per_position(module, module, IDS, 4) == pytest.approx(np.ones(8), abs=1e-12)


@pytest.mark.parametrize("target_rows, draft_rows", [(80, 64), (64, 80), (80, 80), (80, 72)])
@pytest.mark.parametrize("temperature", [1.5, 0])
def test_padding_of_output_layers_counts_for_nothing(target_rows, draft_rows, temperature):
    target, draft = llama(vocab_size=target_rows), llama(seed=3, vocab_size=draft_rows)
    found = alpha_per_position(target, draft, IDS, 4, temperature, tokenizer=word_tokenizer(64))
    if temperature:
        expected = by_hand(target, draft, IDS, 4, temperature, vocab=64)
    else:
        best = [fresh_logits(m, IDS)[3:-1, :64].argmax(-1) for m in (target, draft)]
        expected = (best[0] == best[1]).double().numpy()
    assert found == pytest.approx(expected, abs=1e-5)


def test_it_is_what_a_decoder_meets_on_the_same_text():
    """Where a round reached a position, its recorded overlap is ours for that token."""
    target, draft = HFModel(llama(torch.float64)), HFModel(llama(torch.float64, seed=3))
    decoder = SpeculativeDecoder(draft, target, speculative_config={"num_speculative_tokens": 4})
    result = decoder.generate([1, 2, 3], SamplingParams(max_tokens=60, seed=5, temperature=1.3))
    found = alpha_per_position(target, draft, [1, 2, 3, *result.token_ids], 3, 1.3)
    place = met = 0
    for record in result.rounds:
        for i, value in enumerate(record.overlaps):
            assert value == pytest.approx(found[place + i], abs=1e-9)
            met += 1
        place += len(record.tokens)
    assert met == result.stats.num_overlaps > 20


def test_laws_by_hand_and_models_of_two_kinds():
    target, draft = TableModel([[0.5, 0.3, 0.2]] * 3), TableModel([[0.3, 0.3, 0.4]] * 3)
    assert alpha_per_position(target, draft, [0, 1, 2, 0], 1) == pytest.approx([0.8] * 3)
    uniform, module = TableModel(np.full((64, 64), 1 / 64)), llama()
    law = torch.softmax(fresh_logits(module, IDS)[3:-1].double(), -1).numpy()
    expected = np.minimum(law, 1 / 64).sum(-1)
    assert alpha_per_position(uniform, module, IDS, 4) == pytest.approx(expected, abs=1e-5)
    assert alpha_per_position(module, uniform, IDS, 4) == pytest.approx(expected, abs=1e-5)


def test_positions_a_learned_position_table_still_has():
    module = gpt2()  # 32 positions; the 33rd token is judged, not read
    ids = [1 + i % 60 for i in range(33)]
    assert alpha_per_position(module, module, ids, 1).shape == (32,)
    with pytest.raises(UsageError, match="ids has 34 tokens; the target reads at most 32"):
        alpha_per_position(module, module, [*ids, 5], 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((IDS, 0), "n_prompt is 0; allowed: a whole number from 1 to 11"),
        ((IDS, 12), "n_prompt is 12; allowed: a whole number from 1 to 11"),
        ((IDS, 1.5), "n_prompt is 1.5"),
        ((IDS, True), "n_prompt is True"),
        (([IDS, IDS], 2), "ids holds 2 texts"),
        (("abc", 1), "ids is a str"),
        (([1, 2.5], 1), "token 1 of ids is 2.5"),
        (([], 1), "ids has 0 tokens"),
        (([[]], 1), "ids has 0 tokens"),
        (([1, 64, 2], 1), "token id 64 is none of the target's, which go from 0 to 63"),
        (([1, -1, 2], 1), "token id -1 is none of the target's"),
        ((IDS, 2, -1.0), "temperature"),
        ((IDS, 2, float("nan")), "temperature"),
    ],
)
def test_what_does_not_fit_is_named(arguments, sentence):
    model = TableModel(np.full((64, 64), 1 / 64))
    with pytest.raises(UsageError) as caught:
        alpha_per_position(model, model, *arguments)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_models_over_other_tokens_are_refused():
    with pytest.raises(VocabularyMismatchError, match="more than padding"):
        alpha_per_position(
            TableModel(np.full((64, 64), 1 / 64)), TableModel([[0.5, 0.5]] * 2), [0, 1, 0], 1
        )
    pair = (
        HFModel(llama(), word_tokenizer(64)),
        HFModel(llama(seed=3), word_tokenizer(64, swapped=(3, 5))),
    )
    with pytest.raises(VocabularyMismatchError, match=r"id 3 is 'w3' and 'w5'"):
        alpha_per_position(*pair, IDS, 2)
    with pytest.raises(
        UsageError, match="a model is a transformers module or a LanguageModel, not str"
    ):
        alpha_per_position("gpt2", "gpt2-medium", IDS, 2)


def test_it_is_public():
    assert (
        draftproof.alpha_per_position is alpha.alpha_per_position
        and "alpha_per_position" in draftproof.__all__
    )
