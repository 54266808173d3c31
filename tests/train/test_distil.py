"""A draft model distilled from a target: from its own layers or a checkpoint; what it accepts is
what generation measures."""

from __future__ import annotations

import json

import pytest
import torch

from draftproof import SpeculativeDecoder
from draftproof.drafters.draft_model import DraftModel
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from draftproof.train.check import measured_acceptance
from draftproof.train.distil import DraftRecipe, DraftTask, fresh_draft, train_draft
from draftproof.train.loop import Settings, Training
from draftproof.train.store import Text
from tiny import VOCAB, llama, word_tokenizer
from toy_language import SIZE, speaker, texts

SETTINGS = dict(
    batch_size=8, unroll=3, learning_rate=1e-2, warmup=10, evaluate_every=20, patience=0
)


def test_a_draft_of_own_layers_learns_the_toy_language():
    target = speaker()
    draft = fresh_draft(target, DraftRecipe(num_layers=1))
    with torch.no_grad():
        draft.module.lm_head.weight.normal_(std=0.02)  # a copied layer knows the language already
    training = Training(
        DraftTask(target, draft),
        texts(range(55)),
        texts(range(55, SIZE)),
        Settings(steps=60, **SETTINGS),
    )
    assert training.evaluate().marginal[0] < 0.5
    training.run()
    foretold = training.evaluate()
    assert foretold.marginal[0] >= 0.95
    measured = measured_acceptance(target, DraftModel(draft), texts(), 3, 6)
    assert measured.drafts > 0 and measured.departs_from(foretold.marginal) == []


def test_copied_layers_are_the_draft_s_own():
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    before = {name: weight.clone() for name, weight in target.module.state_dict().items()}
    draft = fresh_draft(target, DraftRecipe(num_layers=2))
    layers = draft.module.model.layers
    assert len(layers) == 2
    for made, taken in zip(layers, (0, 3), strict=True):
        assert torch.equal(
            made.mlp.up_proj.weight, target.module.model.layers[taken].mlp.up_proj.weight
        )
    text = [Text(f"{i:016x}", "a", tuple(range(i, i + 12)), 4, 1.0) for i in range(4)]
    Training(DraftTask(target, draft), text, text, Settings(steps=2, **SETTINGS)).run()
    assert all(
        torch.equal(weight, before[name]) for name, weight in target.module.state_dict().items()
    )
    assert not torch.equal(
        layers[0].mlp.up_proj.weight, target.module.model.layers[0].mlp.up_proj.weight
    )


def test_acceptance_is_counted_as_verification_does():
    """Against a plain computation over every row, for a draft that is another random model."""
    target = HFModel(llama(num_hidden_layers=2), name="tiny", check=False)
    other = llama(num_hidden_layers=1)
    draft = HFModel(other, name="other", check=False)
    text = Text("0" * 16, "a", tuple(torch.randint(0, VOCAB, (14,)).tolist()), 5, 0.8)
    found = DraftTask(target, draft).acceptance([text], 3, 1)
    with torch.no_grad():
        ids = torch.tensor([text.tokens])
        p = (target.module(ids).logits[0] / 0.8).softmax(-1)
        q = (other(ids).logits[0] / 0.8).softmax(-1)
    expected, rows = [0.0, 0.0, 0.0], range(text.prompt - 1, len(text.tokens) - 3)
    for row in rows:
        reached = 1.0
        for place in range(3):
            at, token = row + place, text.tokens[row + place + 1]
            expected[place] += reached * float(torch.minimum(p[at], q[at]).sum()) / len(rows)
            reached *= min(1.0, float(q[at, token] / p[at, token]))
    assert found.marginal == pytest.approx(expected, rel=1e-4)
    assert found.rows == (7, 7, 7)


def test_layers_a_target_does_not_have_are_refused():
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    with pytest.raises(UsageError, match="tiny has 4, so 1 to 3"):
        fresh_draft(target, DraftRecipe(num_layers=4))


def test_from_texts_to_a_folder_that_drafts(tmp_path):
    target = HFModel(llama(num_hidden_layers=3), word_tokenizer(), name="tiny")
    size = target.vocab_size
    corpus = [
        Text(
            f"{i * 2654435761 % 2**32:08x}{i:08x}",
            "toy",
            tuple((i * 7 + j * j) % size for j in range(16)),
            6,
            1.0,
        )
        for i in range(120)
    ]
    settings = Settings(steps=4, **{**SETTINGS, "evaluate_every": 2, "unroll": 2})
    folder = tmp_path / "draft"
    done = train_draft(target, corpus, DraftRecipe(1, length=2), settings, folder)
    facts = json.loads((folder / "draftproof.json").read_text())
    assert facts["steps"] == 4 and facts["plan"]["best"][1] >= 1.0 and len(done.foretold) == 2
    assert "draft_model for tiny" in (folder / "card.md").read_text()
    again = train_draft(
        target, corpus, DraftRecipe(start=str(folder)), settings, tmp_path / "further"
    )
    decoder = SpeculativeDecoder(
        DraftModel(again.draft), target, speculative_config={"num_speculative_tokens": 2}
    )
    assert any(record.draft_tokens for record in decoder.generate([1, 2, 3]).rounds)
