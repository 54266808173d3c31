"""Arms on a tiny real model: ours and transformers' agree greedily, and acceptance by chance keeps
the loop and its name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.bench.arms import OurArm
from draftproof.bench.hf_arms import HFArm
from draftproof.bench.run import measure
from draftproof.bench.specs import build_arms, check_specs, parse_spec, told_apart
from draftproof.bench.summary import document
from draftproof.bench.synthetic import SyntheticRule, make_synthetic, parse_rates
from draftproof.core.rules import RULES
from draftproof.decode.statistics import statistics
from draftproof.drafters.auto import Auto
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.medusa import Medusa
from draftproof.drafters.protocol import Drafter, DraftSession, Request
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from draftproof.report.provenance import model_hashes
from draftproof.workloads.prompt_files import Encoded, Item
from random_heads import random_head
from tiny import llama, word_tokenizer

IDS = (5, 6, 7, 5, 6, 7, 5, 6)
GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, seed=0)


@pytest.fixture(scope="module")
def target() -> HFModel:
    return HFModel(llama(), word_tokenizer())


@pytest.fixture(scope="module")
def draft() -> HFModel:
    return HFModel(llama(seed=1, num_hidden_layers=1), word_tokenizer())


def test_greedy_text_is_one_in_all_arms_and_every_token_is_timed(
    target: HFModel, draft: HFModel
) -> None:
    decoder = SpeculativeDecoder(None, target, target.tokenizer)
    arms = [
        OurArm("plain", decoder.plain),
        HFArm("plain", target),
        HFArm("assisted", target, draft=draft, length=3),
        HFArm("lookup", target, length=3),
        OurArm(
            "ours",
            SpeculativeDecoder(
                draft, target, target.tokenizer, speculative_config={"num_speculative_tokens": 3}
            ),
        ),
    ]
    runs = [arm.run(IDS, GREEDY) for arm in arms]
    for run in runs:
        assert run.token_ids == runs[0].token_ids and run.num_tokens == 20
        assert run.num_rounds is not None and run.num_rounds <= 20
        assert run.first_token_seconds is not None and run.first_token_seconds <= run.seconds
        assert set(run.parts) == {"draft", "verify", "rest", "outside_forwards"}
    assert runs[0].num_rounds == runs[1].num_rounds == 20
    assert any(chunk.num_tokens > 1 for chunk in runs[3].chunks)
    assert getattr(draft.module.generation_config, "num_assistant_tokens", None) != 3


def test_transformers_arms_refuse_what_they_would_not_honour(target: HFModel) -> None:
    with pytest.raises(UsageError, match="do not take presence_penalty"):
        HFArm("plain", target).run(IDS, SamplingParams(presence_penalty=1.0))
    with pytest.raises(UsageError, match="needs a draft model"):
        HFArm("assisted", target)
    with pytest.raises(UsageError, match="allowed: plain"):
        HFArm("beam", target)


def test_sampling_in_a_transformers_arm_repeats_with_its_seed(target: HFModel) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True, seed=4)
    one, two = (HFArm("lookup", target, length=2).run(IDS, params) for _ in range(2))
    assert one.token_ids == two.token_ids and one.num_tokens == 12


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_synthetic_acceptance_has_the_rate_asked_for(
    target: HFModel, draft: HFModel, temperature: float
) -> None:
    """1200 tokens: the share accepted at the first position is within 0.08 of 0.6 with a false
    alarm below 1e-3 (binomial)."""
    decoder = make_synthetic(
        SpeculativeDecoder(
            draft, target, target.tokenizer, speculative_config={"num_speculative_tokens": 3}
        ),
        (0.6,),
        not temperature,
    )
    rounds = []
    for seed in range(12):
        params = SamplingParams(temperature=temperature, max_tokens=100, ignore_eos=True, seed=seed)
        rounds += decoder.generate(IDS, params).rounds
    stats = statistics(r for r in rounds if len(r.draft_tokens) == 3)
    first = stats.acceptance_per_position["conditional"][0]
    assert first is not None and abs(first - 0.6) < 0.08
    assert decoder.rule.lossless is False and "lossy" in decoder.rule.name
    assert isinstance(decoder.rule_for(GREEDY), SyntheticRule)


@pytest.mark.parametrize(
    ("rates", "accepted"), [((1.0,), 3), ((0.0,), 0), ((1.0, 0.0), 1), ((1.0, 1.0, 0.0), 2)]
)
def test_synthetic_rates_by_position(
    target: HFModel, draft: HFModel, rates: tuple[float, ...], accepted: int
) -> None:
    config = {"num_speculative_tokens": 3}
    decoder = make_synthetic(
        SpeculativeDecoder(draft, target, target.tokenizer, speculative_config=config), rates, True
    )
    full = [r for r in decoder.generate(IDS, GREEDY).rounds if len(r.draft_tokens) == 3]
    assert {r.num_accepted_tokens for r in full} == {accepted}


def test_rates_are_read_and_checked() -> None:
    assert parse_rates("0.9,0.5") == (0.9, 0.5)
    for text in ("x", "1.5", ""):
        with pytest.raises(UsageError):
            parse_rates(text)
    assert SyntheticRule(RULES["token"], (0.5,)).selections == RULES["token"].selections


def test_words_become_arms(target: HFModel, draft: HFModel) -> None:
    words = [
        "plain",
        "ngram:4",
        "draft_model:2:block",
        "draft_model:2,2,1",
        "ngram:2,1:match",
        "hf-plain",
        "hf-assisted:3",
        "hf-lookup",
        '{"method": "ngram"}',
    ]
    specs = [parse_spec(word, "D") for word in words]
    loaded: list[str] = []

    def drafts(name: str, revision: str | None = None, quantization: str | None = None) -> HFModel:
        loaded.append(name)
        return draft

    arms, _ = build_arms(specs, target, drafts, "D", None, True)
    assert [arm.name for arm in arms] == [
        *(
            "plain",
            "ngram k=4",
            "draft_model k=2 block",
            "draft_model tree 2,2,1",
            "ngram tree 2,1 match",
            "transformers plain",
        ),
        *("transformers assisted k=3", "transformers lookup k=10", "ngram k=10"),
    ]
    assert set(loaded) == {"D"}
    synthetic, _ = build_arms([specs[2]], target, drafts, "D", (0.8, 0.5), True)
    assert synthetic[1].name == "draft_model k=2 block (synthetic acceptance 0.8,0.5, lossy)"
    with pytest.raises(UsageError, match="draftproof's own arms only"):
        build_arms(specs, target, drafts, "D", (0.8,), True)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("fast", "there is no arm 'fast'"),
        ("none", "there is no arm 'none'"),
        ("ngram:0", "allowed: a whole number from 1"),
        ("ngram:x", "allowed: a whole number from 1"),
        ("draft_model:4", "add --draft"),
        ("hf-assisted:4", "add --draft"),
        ("hf-plain:3", "says too much"),
        ("{", "not JSON"),
        ('{"method": "none"}', "say plain"),
        ("ngram:3:4:5", "there is no arm"),
        ("ngram:2,x", "children per level"),
        ("hf-lookup:2,2", "says too much"),
    ],
)
def test_a_wrong_word_is_one_sentence(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_spec(word, None)


def test_a_tree_arm_is_measured_like_any_other(target: HFModel, draft: HFModel) -> None:
    arms, decoder = build_arms(
        [parse_spec("draft_model:2,2", "D")], target, lambda *name: draft, "D", None, True
    )
    prompts = [Encoded(Item("x", "qa", "line"), IDS)]
    result = document(
        measure(arms, prompts, GREEDY, calibrate=lambda: 1.0), decoder, {"dtype": "float32"}
    )
    tree = result["arms"][1]
    assert (
        tree["name"] == "draft_model tree 2,2"
        and tree["stats"]["num_draft_tokens"] > 2 * tree["stats"]["num_drafts"]
    )
    assert result["differences"] == []


class CutOff(Drafter, DraftSession):
    """Drafts a ring's next token only where the model is sure of it, which is in one state of
    ten."""

    name, selections, memories = "cut-off", frozenset({"fixed"}), ()

    def open(self, request: Request) -> CutOff:
        return self

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        if SURE[context[-1]].max() > 0.8:
            draft.guess(int(SURE[context[-1]].argmax()))

    def state_key(self) -> tuple[()]:
        return ()

    def fork(self) -> CutOff:
        return self


BEST = np.array([0.95] + [0.5] * 9)
SURE = np.stack(
    [np.where(np.arange(10) == (i + 1) % 10, BEST[i], (1 - BEST[i]) / 9) for i in range(10)]
)


def test_a_cut_off_that_proposes_only_sure_tokens_shows_how_seldom_it_does() -> None:
    """Acceptance near 1 beside few drafts: both must be in the statistics, and so must be that
    nearly nothing is gained."""
    target = TableModel(SURE)
    arm = OurArm(
        "cut-off",
        SpeculativeDecoder(CutOff(), target, speculative_config={"num_speculative_tokens": 1}),
    )
    run = arm.run((0,), SamplingParams(max_tokens=2000, seed=3, ignore_eos=True))
    stats = statistics(run.rounds, method=arm.method)
    assert stats.draft_acceptance_rate is not None and stats.draft_acceptance_rate > 0.9
    share = stats.as_dict()["share_of_rounds_with_draft"]
    assert 0.02 < share < 0.3 and stats.tokens_per_round == pytest.approx(1 + share, rel=0.05)


def test_peak_memory_is_a_number_where_linux_tells_it(target: HFModel) -> None:
    run = OurArm("plain", SpeculativeDecoder(None, target, target.tokenizer).plain).run(IDS, GREEDY)
    assert run.peak_memory_bytes is None or run.peak_memory_bytes > 1 << 20
    assert torch.is_inference_mode_enabled() is False


def test_arms_of_one_name_are_told_apart_by_what_their_configurations_differ_in() -> None:
    words = [
        '{"method": "draft_model", "model": "/models/one", "num_speculative_tokens": 4}',
        '{"method": "draft_model", "model": "org/two"}',
        '{"method": "ngram", "adaptive": "survival", "num_speculative_tokens": 16}',
        "ngram:16",
        "suffix",
    ]
    names = [spec.name for spec in told_apart([parse_spec(word, None) for word in words])]
    assert names == [
        *("draft_model k=4 model=one", "draft_model k=4 model=org/two"),
        *("ngram k=16 adaptive=survival", "ngram k=16", "suffix k=24"),
    ]
    twice = told_apart(
        [
            parse_spec(word, None)
            for word in ("ngram", '{"method": "ngram", "num_speculative_tokens": 10}')
        ]
    )
    with pytest.raises(UsageError, match="two arms are called 'ngram k=10'"):
        check_specs(twice, GREEDY, None)


def test_an_arm_remembers_where_requests_share_a_store(target: HFModel) -> None:
    def remembers(config: dict[str, object]) -> bool:
        return OurArm(
            "a", SpeculativeDecoder(None, target, target.tokenizer, speculative_config=config)
        ).remembers

    store = {"suffix_decoding_max_cached_requests": 9}
    assert remembers({"method": "suffix"} | store) and not remembers({"method": "suffix"})
    assert remembers({"method": "auto", "adaptive": "fixed"} | store) and not remembers(
        {"method": "ngram"}
    )


def test_weights_of_heads_are_in_the_provenance() -> None:
    head, other = Eagle(random_head("eagle")), Medusa(random_head("medusa"))
    several = Auto({"eagle": head, "medusa": other})
    hashes = model_hashes(TableModel([[1.0]]), {}, {"one": head, "both": several})
    assert (
        set(hashes) == {"target", "one", "both eagle", "both medusa"} and hashes["target"] is None
    )
    assert hashes["one"] == hashes["both eagle"] != hashes["both medusa"]
