"""The loop: the same losses after an interruption, nothing written that was not asked for, losses
that mean what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from draftproof.errors import UsageError
from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.feature_head import Rows
from draftproof.heads.medusa import Medusa
from draftproof.heads.target import target_view
from draftproof.models.hf import HFModel
from draftproof.train import losses
from draftproof.train.check import Measured, acceptance_faults, largest_difference
from draftproof.train.heldout import Acceptance
from draftproof.train.loop import CHECKPOINT, Settings, Training, frequent_ids, split
from draftproof.train.run import Recipe, check_recipe, fresh_head, train_head
from draftproof.train.states import show_states
from draftproof.train.store import Text
from draftproof.train.task import HeadTask
from draftproof.train.unroll import unrolled
from tiny import VOCAB, llama
from toy_language import SIZE, speaker, texts


def training(folder, **changes):
    target = speaker()
    head = fresh_head(Recipe("eagle3", draft_vocab_size=SIZE), target_view(target), texts(), 3)
    settings = Settings(
        **(
            {"steps": 60, "batch_size": 4, "unroll": 2, "evaluate_every": 10, "patience": 0}
            | changes
        )
    )
    return Training(
        HeadTask(target, head), texts(range(50)), texts(range(50, SIZE)), settings, folder
    )


def test_interrupted_and_resumed_has_the_same_losses(tmp_path):
    whole = training(tmp_path / "whole")
    whole.run()
    first = training(tmp_path / "parts")
    first.run(until=50)
    first._one_step()  # what an interruption throws away
    second = training(tmp_path / "parts")
    second.run()
    assert second.losses == whole.losses
    assert [look.acceptance for look in second.looks] == [look.acceptance for look in whole.looks]
    for one, other in zip(second.module.parameters(), whole.module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    training(tmp_path).run(until=10)
    with pytest.raises(UsageError, match="other settings \\(learning_rate\\)"):
        training(tmp_path, learning_rate=0.5).run()


def test_a_checkpoint_of_other_texts_or_of_another_model_is_refused(tmp_path):
    """Gone on with, the losses would be neither run's."""
    training(tmp_path).run(until=10)
    other = training(tmp_path)
    other.texts = other.texts[1:]
    with pytest.raises(UsageError, match="holds a run on other texts"):
        other.run()
    other = training(tmp_path)
    other.module = torch.nn.Linear(2, 2)
    with pytest.raises(UsageError, match="a model of another shape"):
        other.run()


def test_a_look_tells_the_mean_loss_since_the_look_before():
    run = training(None, steps=15)
    run.run()
    assert [look.step for look in run.looks] == [10, 15]
    assert run.looks[0].loss == pytest.approx(sum(run.losses[:10]) / 10)
    assert run.looks[1].loss == pytest.approx(sum(run.losses[10:]) / 5)


def test_a_run_that_stops_early_ends_with_its_best_weights(tmp_path, monkeypatch):
    """Also one that was interrupted after it had stopped."""
    lengths = iter([0.1, 0.5, 0.4, 0.3])
    monkeypatch.setattr(
        Training, "evaluate", lambda self: Acceptance.of((next(lengths),), (0.0,), 1)
    )
    run, weights = training(tmp_path, patience=2), []
    run.tell = lambda look: weights.append(
        {name: weight.clone() for name, weight in run.module.state_dict().items()}
    )
    run.run()
    assert run.stopped_early and len(weights) == 4
    again = training(tmp_path, patience=2)
    again.run()
    for name, weight in weights[1].items():
        assert torch.equal(run.module.state_dict()[name], weight) and torch.equal(
            again.module.state_dict()[name], weight
        )
    assert not torch.equal(weights[1]["fc.weight"], weights[3]["fc.weight"])


def test_nothing_is_written_without_a_folder_and_no_states_with_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    training(None).run(until=10)
    assert list(tmp_path.iterdir()) == []
    training(tmp_path / "kept").run(until=10)
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == [
        CHECKPOINT,
        "history.jsonl",
    ]
    history = [
        json.loads(line) for line in (tmp_path / "kept" / "history.jsonl").read_text().splitlines()
    ]
    assert history[0]["step"] == 10 and len(history[0]["acceptance"]["marginal"]) == 2


def test_the_rate_warms_up_in_a_line_and_falls_by_half_a_cosine():
    run = training(None, steps=60, warmup=20)
    assert [run._rate(step) for step in (0, 9, 19, 20)] == [0.05, 0.5, 1.0, 1.0]
    assert [run._rate(step) for step in (40, 60, 80)] == [
        pytest.approx(rate) for rate in (0.55, 0.1, 0.1)
    ]


def test_it_stops_when_nothing_improves_and_warns_of_little_data():
    run = training(None, learning_rate=0.0, patience=2, evaluate_every=5)
    said = []
    run.warn = said.append
    run.run()
    assert run.stopped_early and len(run.losses) == 15
    assert (
        said
        == [sentence for sentence in said if "300 answer tokens from 50 texts are few" in sentence]
        != []
    )


def test_the_mean_with_the_beginning_is_taken_once_at_the_end_and_again_of_a_finished_run(tmp_path):
    plain, run = training(None, steps=20), training(tmp_path, steps=20, average_start=True)
    begun = {name: weight.clone() for name, weight in run.module.state_dict().items()}
    plain.run()
    run.run(until=10)
    run.run()
    reopened = training(tmp_path, steps=20, average_start=True)
    reopened.run()
    moved = 0
    for name, ended in plain.module.state_dict().items():
        mean = (begun[name] + ended) / 2 if ended.is_floating_point() else ended
        assert torch.allclose(run.module.state_dict()[name], mean, atol=1e-6)
        assert torch.equal(reopened.module.state_dict()[name], run.module.state_dict()[name])
        moved += not torch.equal(ended, begun[name])
    assert moved > 3
    run.run()
    assert all(
        torch.equal(weight, run.module.state_dict()[name])
        for name, weight in reopened.module.state_dict().items()
    )


def test_texts_without_a_draft_are_no_data():
    target = speaker()
    head = fresh_head(Recipe("medusa"), target_view(target), texts(), 0)
    short = [Text("0" * 16, "toy", (1, 2, 3), 2)]
    with pytest.raises(UsageError, match="too few texts.*give more prompts"):
        Training(HeadTask(target, head), short, short)
    some = [text for text in texts() if text.answer >= 2][:2]
    with pytest.raises(UsageError, match=r"\(2\): some to train on, some to hold out"):
        Training(HeadTask(target, head), some, [])


def test_losses_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    law = torch.tensor([[0.25, 0.25, 0.5]])
    assert losses.acceptance(logits, law.log()).item() == pytest.approx(0.75)
    assert losses.total_variation(logits, law.log()).item() == pytest.approx(0.25)
    assert losses.negative_log_acceptance(logits, law.log()).item() == pytest.approx(-np.log(0.75))
    expected = -(0.25 * np.log(0.5) + 0.25 * np.log(0.25) + 0.5 * np.log(0.25))
    assert losses.soft_cross_entropy(logits, law.log()).item() == pytest.approx(expected)
    predicted, true = torch.tensor([[0.5, 3.0]]), torch.zeros(1, 2)
    assert losses.feature_distance(predicted, true).item() == pytest.approx(
        (0.5 * 0.5**2 + 3.0 - 0.5) / 2
    )
    half = (law / 2).log()  # half of the target's mass outside the draft vocabulary
    assert losses.soft_cross_entropy(logits, half).item() == pytest.approx(expected)
    assert losses.acceptance(logits, half).item() == pytest.approx(0.125 + 0.125 + 0.25)


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_training_time_test_is_what_drafting_does(kind):
    """Every row of every step against the head's own cached reading: true rows, then drafted rows
    on its own output."""
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    view = target_view(target)
    torch.manual_seed(0)
    head = (Eagle.of(view) if kind == "eagle" else Eagle3.of(view, range(VOCAB))).eval()
    text = Text("0" * 16, "toy", tuple(torch.randint(0, VOCAB, (12,)).tolist()), 1)
    other = Text("1" * 16, "toy", tuple(torch.randint(0, VOCAB, (9,)).tolist()), 3)
    states = show_states(target, [other, text], head.hidden_layers)
    with torch.no_grad():
        steps = list(unrolled(head, states, 4))
        features = head.fuse({layer: hidden[1] for layer, hidden in states.hidden.items()})
        for row in range(8):
            rows = Rows(head)
            out = rows.read(text.tokens[1 : row + 2], features[: row + 1], range(row + 1))[-1:]
            for step in range(4):
                if row + step + 2 < len(text.tokens):
                    first = len(states.rows(step + 1)[0])
                    torch.testing.assert_close(
                        out[0], steps[step][first + row], rtol=1e-5, atol=1e-5
                    )
                if row + step + 2 < len(text.tokens):
                    out = rows.read((text.tokens[row + step + 2],), out, (row + step + 1,))


def test_states_of_training_are_those_of_generation():
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    text = Text("0" * 16, "toy", tuple(range(3, 15)), 5)
    assert largest_difference(target, text, (0, 1, 3, 4)) <= 1e-5


def test_states_of_another_layer_are_caught(monkeypatch):
    import draftproof.train.check as check

    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    text = Text("0" * 16, "toy", tuple(range(3, 15)), 5)
    shown = show_states(target, [text], (1, 2, 3))

    class Off:
        hidden = {1: shown.hidden[2], 2: shown.hidden[3]}

    monkeypatch.setattr(check, "show_states", lambda *given: Off)
    assert largest_difference(target, text, (1, 2)) > 1e-2


def test_batches_and_padding_change_no_state():
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    short = Text("0" * 16, "a", tuple(range(9)), 4)
    long = Text("1" * 16, "b", tuple(range(20, 34)), 6)
    alone, together = show_states(target, [short], (2,)), show_states(target, [long, short], (2,))
    torch.testing.assert_close(together.hidden[2][1], alone.hidden[2][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.log_laws[1], alone.log_laws[0], rtol=1e-4, atol=1e-4)
    assert (
        together.targets(1).tolist() == [*range(27, 34), *range(5, 9)][: len(together.targets(1))]
    )


def test_splits_by_prompt_and_counts_ids():
    corpus = [
        Text(f"{i * 2654435761 % 2**32:08x}00000000", "toy", (1, 2, 7, 7, 3), 2) for i in range(400)
    ]
    train, held = split(corpus, 0.1)
    assert 20 <= len(held) <= 60 and len(train) + len(held) == 400
    assert not {text.key for text in train} & {text.key for text in held}
    # written in this order, so a young folder holds the lowest keys
    first = sorted(corpus, key=lambda text: text.key)[:100]
    assert 3 <= len(split(first, 0.1)[1]) <= 20
    assert frequent_ids(corpus, 3, 10) == [0, 3, 7]


def test_a_departure_beyond_chance_is_told():
    assert Measured((0.80, 0.40), 400).departs_from((0.78, 0.60)) == [2]
    assert Measured((0.5,), 10).departs_from((0.7,)) == []
    assert (
        "position 2: generation accepted 0.400"
        in acceptance_faults(Measured((0.80, 0.40), 400), (0.78, 0.60))[0]
    )


def test_a_check_that_saw_nothing_has_not_passed():
    """No draft of full length, and every acceptance within chance of what was foretold."""
    assert acceptance_faults(Measured((0.0, 0.0), 0), (0.5, 0.2)) == (
        "generation made no draft of 2 tokens, so acceptance was not checked",
    )


def test_fewer_heads_than_proposed_drafts_are_checked_as_far_as_they_go(tmp_path):
    settings = Settings(steps=4, batch_size=8, unroll=2, evaluate_every=2, patience=0)
    trained = train_head(
        speaker(), texts(), Recipe("medusa", num_heads=2, length=4), settings, tmp_path
    )
    assert (
        len(trained.measured.marginal) == len(trained.foretold) == 2 and trained.measured.drafts > 0
    )


def test_without_usable_texts_nothing_is_timed_or_trained(tmp_path):
    short = [Text(f"{i:016x}", "toy", (1, 2, 3), 2) for i in range(40)]
    for some in ([], short):
        with pytest.raises(UsageError, match="too few texts"):
            train_head(speaker(), some, Recipe("medusa"), Settings(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_layers": (1, 9)}, r"hidden states \[9\] are asked for"),
        ({"start": "nowhere"}, "nowhere"),
    ],
)
def test_what_no_text_could_mend_is_refused_before_any_is_written(changes, said):
    with pytest.raises(UsageError, match=said):
        check_recipe(Recipe("eagle3", **changes), speaker())
    check_recipe(Recipe("eagle3", hidden_layers=(1, 2)), speaker())


@pytest.mark.parametrize("method", ["medusa", "eagle", "eagle3"])
def test_from_texts_to_a_checked_folder(tmp_path, method):
    target = speaker()
    settings = Settings(
        steps=240,
        batch_size=8,
        unroll=3,
        learning_rate=1e-2,
        warmup=10,
        evaluate_every=60,
        patience=0,
    )
    corpus = texts()
    keyed = [
        Text(f"{i * 2654435761 % 2**32:08x}00000000", "toy", text.tokens, text.prompt)
        for i, text in enumerate(corpus)
    ]
    trained = train_head(
        target,
        keyed,
        Recipe(method, draft_vocab_size=SIZE, num_heads=3, length=3),
        settings,
        tmp_path,
    )
    assert trained.faults == ()
    assert trained.measured.marginal[0] >= 0.9 and trained.difference <= 1e-5
    card = (tmp_path / "card.md").read_text()
    assert f"# {method} head for speaker" in card and "Checks: passed." in card
    assert isinstance(trained.head, (Medusa, Eagle, Eagle3))
