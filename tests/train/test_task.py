"""What a loss compares: laws at one temperature, or at each text's own, where total variation is
what verification rejects."""

from __future__ import annotations

import pytest
import torch

from draftproof.errors import UsageError
from draftproof.heads.target import target_view
from draftproof.models.hf import HFModel
from draftproof.train import heldout
from draftproof.train.distil import DraftTask
from draftproof.train.heldout import held_out
from draftproof.train.loop import Settings
from draftproof.train.losses import LOSSES
from draftproof.train.run import Recipe, fresh_head
from draftproof.train.store import Text
from draftproof.train.task import Aim, HeadTask
from random_heads import random_head
from tiny import VOCAB, llama
from toy_language import SIZE, speaker, texts


def random_text(temperature: float | None) -> Text:
    generator = torch.Generator().manual_seed(3)
    return Text(
        "0" * 16,
        "a",
        tuple(torch.randint(0, VOCAB, (14,), generator=generator).tolist()),
        5,
        temperature,
    )


def tiny_task(draft_vocab_size: int | None = VOCAB) -> HeadTask:
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    recipe = Recipe("eagle3", draft_vocab_size=draft_vocab_size, begin="random")
    return HeadTask(target, fresh_head(recipe, target_view(target), [random_text(0.7)], 3))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_total_variation_at_a_text_s_own_temperature_is_what_verification_rejects(temperature):
    task, text = tiny_task(), random_text(temperature)
    own = task.loss([text], Aim(1, 0.8, "total_variation", 1.0, None)).detach()
    overlap = held_out(task.head, [task._states([text], None)], 1).overlap[0]
    assert float(own) == pytest.approx(1.0 - overlap, abs=1e-6)
    at_one = task.loss([text], Aim(1, 0.8, "total_variation", 1.0)).detach()
    assert (float(at_one) == pytest.approx(float(own), abs=1e-6)) == (temperature == 1.0)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("temperature", [0.0, 0.7, None])
def test_every_loss_has_a_gradient_at_every_temperature_whatever_is_outside_the_draft_vocabulary(
    loss, temperature
):
    task = tiny_task(draft_vocab_size=VOCAB // 2)
    value = task.loss([random_text(temperature)], Aim(2, 0.8, loss, 1.0, None))
    value.backward()
    weights = [weight.grad for weight in task.module.parameters() if weight.grad is not None]
    assert torch.isfinite(value) and all(torch.isfinite(grad).all() for grad in weights)
    assert any(bool(grad.abs().max() > 0) for grad in weights)


def test_a_batch_without_one_known_token_costs_nothing():
    target = speaker()
    task = HeadTask(
        target,
        fresh_head(Recipe("eagle3", draft_vocab_size=4), target_view(target), texts(range(1)), 3),
    )
    known = {int(token) for token in task.head.draft_ids}
    strange = [text for text in texts() if not known.intersection(text.tokens)][:2]
    assert len(strange) == 2
    value = task.loss(strange, Aim(1, 0.8, "cross_entropy", 1.0, None))
    value.backward()
    assert float(value.detach()) == 0.0


def test_a_draft_model_is_compared_at_a_text_s_own_temperature_too():
    target, draft = (HFModel(llama(num_hidden_layers=n), name="tiny", check=False) for n in (2, 1))
    text = random_text(0.5)
    task = DraftTask(target, draft)
    own = float(task.loss([text], Aim(1, 0.8, "total_variation", 1.0, None)).detach())
    assert own == pytest.approx(1.0 - task.acceptance([text], 1, 1).overlap[0], abs=1e-6)
    assert own != pytest.approx(
        float(task.loss([text], Aim(1, 0.8, "total_variation", 1.0)).detach()), abs=1e-6
    )


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_no_law_has_is_refused(temperature):
    with pytest.raises(UsageError, match="loss's temperature is .*allowed: a number above 0"):
        Settings(temperature=temperature)


def test_the_toy_language_is_learnt_at_temperature_zero():
    target = speaker()
    cold = [Text(t.key, t.source, t.tokens, t.prompt, 0.0) for t in texts()]
    task = HeadTask(
        target, fresh_head(Recipe("eagle3", draft_vocab_size=SIZE), target_view(target), texts(), 3)
    )
    optimizer = torch.optim.AdamW(task.module.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        task.loss(cold, Aim(1, 0.8, "log_acceptance", 1.0, None)).backward()
        optimizer.step()
    assert task.acceptance(cold, 1, 8).marginal[0] >= 0.95


@pytest.mark.parametrize("drawn", [True, False])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_held_out_acceptance_is_the_product_over_the_text_s_own_tokens(
    monkeypatch, temperature, drawn
):
    """By hand: of a draft from row r, the drafts before position i are kept with the product of
    min(1, q/p) at the text. What Medusa's heads say is not drawn from: their likeliest token is the
    draft, q is one-hot."""
    task, text, steps = tiny_task(), random_text(temperature), 3
    states = task._states([text], None)
    generator = torch.Generator().manual_seed(1)
    given = [
        torch.randn(len(states.rows(ahead)[0]), VOCAB, generator=generator)
        for ahead in range(1, steps + 1)
    ]
    monkeypatch.setattr(
        heldout,
        "guesses",
        lambda head, states, steps: ((i, None, logits) for i, logits in enumerate(given, 1)),
    )
    found = held_out(task.head if drawn else random_head("medusa"), [states], steps)
    order = _order_of(task.head)
    rows = range(len(states.rows(steps)[0]))
    for i in range(1, steps + 1):
        expected, overlaps = 0.0, 0.0
        for r in rows:
            reached = 1.0
            for j in range(1, i + 1):
                p = states.log_laws[0][j - 1 + r].exp()
                q = (given[j - 1][r] / temperature).softmax(-1)
                q = q if drawn else torch.nn.functional.one_hot(q.argmax(), VOCAB).float()
                x = order[text.tokens[text.prompt + r + j]]
                overlap = float(torch.minimum(p, q).sum())
                if j < i:
                    reached *= min(1.0, float(q[x] / p[x]))
            expected, overlaps = expected + reached * overlap, overlaps + overlap
        assert found.marginal[i - 1] == pytest.approx(expected / len(rows), abs=1e-5)
        assert found.overlap[i - 1] == pytest.approx(overlaps / len(rows), abs=1e-5)


def _order_of(head) -> dict[int, int]:
    """Token -> its place in the draft vocabulary."""
    return {int(token): place for place, token in enumerate(head.draft_ids)}
