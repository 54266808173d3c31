"""Heads on real modules: greedy text is plain decoding's, states come through `observe` alone, and
configs find their folders."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.core.tree import TreeShape
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.medusa import Medusa
from draftproof.errors import UsageError
from draftproof.heads.eagle import Eagle as EagleHead
from draftproof.heads.eagle3 import Eagle3 as Eagle3Head
from draftproof.heads.folder import save_head
from draftproof.heads.medusa import Medusa as MedusaHeads
from draftproof.heads.target import target_view
from draftproof.models.hf import HFModel
from tiny import FAMILIES, VOCAB, gpt2, llama

PROMPT = [5, 9, 33, 2, 17]
SHAPE = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 32,
    "rms_norm_eps": 1e-6,
}


def head_for(method, target):
    torch.manual_seed(2)
    view = target_view(target)
    if method == "medusa":
        head = MedusaHeads.of(view, num_heads=3)
    elif method == "eagle":
        head = EagleHead.of(view, **SHAPE)
    else:
        head = Eagle3Head.of(view, range(0, VOCAB, 3), **SHAPE)
    return head.eval().requires_grad_(False)


def drafters(target):
    yield Medusa(head_for("medusa", target))
    yield Medusa(head_for("medusa", target), tree=TreeShape.parse("2,2,1"))
    yield Eagle(head_for("eagle", target))
    yield Eagle(head_for("eagle", target), num_nodes=7, top_k=3)
    yield Eagle(head_for("eagle3", target), name="eagle3")
    yield Eagle(head_for("eagle3", target), num_nodes=5, top_k=2, name="eagle3")


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_is_plain_and_sampled_by_match_is_too(family):
    target = HFModel(FAMILIES[family](), name=family, check=False)
    for drafter in drafters(target):
        for temperature in (0.0, 1.0):
            rule = {} if temperature == 0 else {"rule": "match"}
            decoder = SpeculativeDecoder(
                drafter, target, speculative_config={"num_speculative_tokens": 3, **rule}
            )
            params = SamplingParams(max_tokens=16, temperature=temperature, seed=5)
            result = decoder.generate(PROMPT, params)
            assert result.token_ids == decoder.plain.generate(PROMPT, params).token_ids
            assert result.stats.num_draft_tokens > 0


@pytest.mark.parametrize("method", ["medusa", "eagle", "eagle3"])
def test_no_second_forward_of_the_target(method):
    """A head's states come from the passes that verify: as many target passes as rounds."""
    target = HFModel(llama(), name="tiny", check=False)
    passes = []
    extend_many = target.extend_many
    target.extend_many = lambda steps: passes.append(len(steps)) or extend_many(steps)
    drafter = (
        Medusa(head_for(method, target)) if method == "medusa" else Eagle(head_for(method, target))
    )
    decoder = SpeculativeDecoder(drafter, target, speculative_config={"num_speculative_tokens": 3})
    result = decoder.generate(PROMPT, SamplingParams(max_tokens=12, temperature=0.0))
    assert len(passes) == result.stats.num_rounds


@pytest.mark.parametrize("method", ["medusa", "eagle", "eagle3"])
def test_a_config_names_the_folder(method, tmp_path):
    target = HFModel(llama(), name="tiny", check=False)
    save_head(tmp_path, head_for(method, target), target_view(target))
    config = {"method": method, "model": str(tmp_path), "num_speculative_tokens": 3}
    decoder = SpeculativeDecoder(None, target, speculative_config=config)
    params = SamplingParams(max_tokens=10, temperature=0.0)
    result = decoder.generate(PROMPT, params)
    assert result.stats.method == method and result.stats.num_draft_tokens > 0
    assert result.token_ids == decoder.plain.generate(PROMPT, params).token_ids
    with pytest.raises(UsageError, match="no folder"):
        SpeculativeDecoder(
            None, target, speculative_config={**config, "model": str(tmp_path / "nowhere")}
        )
    with pytest.raises(UsageError, match="folder of (its weights|one)"):
        SpeculativeDecoder(None, target, speculative_config={"method": method})


def test_a_dynamic_tree_is_asked_for_in_the_config(tmp_path):
    target = HFModel(llama(), name="tiny", check=False)
    save_head(tmp_path, head_for("eagle3", target), target_view(target))
    config = {
        "method": "eagle3",
        "model": str(tmp_path),
        "dynamic_tree_nodes": 6,
        "dynamic_tree_top_k": 3,
    }
    decoder = SpeculativeDecoder(None, target, speculative_config=config)
    assert decoder.rule.name == "match"
    result = decoder.generate(PROMPT, SamplingParams(max_tokens=12, temperature=1.0, seed=0))
    drafted = [record for record in result.rounds if record.draft_tokens]
    assert all(len(record.draft_tokens) == 6 for record in drafted[:-2])
    assert any(record.draft_parents != tuple(range(-1, 5)) for record in drafted)


def test_further_samples_of_a_prompt_draft_too():
    """Each reads the prompt, for the features; so a sample is the same alone, streamed and in a
    batch."""
    target = HFModel(llama(), name="tiny", check=False)
    decoder = SpeculativeDecoder(
        Eagle(head_for("eagle", target)), target, speculative_config={"num_speculative_tokens": 2}
    )
    params = SamplingParams(max_tokens=8, temperature=1.0, seed=3, n=3)
    result = decoder.generate(PROMPT, params)
    assert all(output.stats.num_draft_tokens > 0 for output in result.outputs)
    assert all(output.stats.notes == () for output in result.outputs), (
        "a first round without features is no news"
    )
    streamed: dict[int, list[int]] = {}
    for piece in decoder.stream(PROMPT, params):
        streamed.setdefault(piece.index, []).extend(piece.token_ids)
    assert [list(output.token_ids) for output in result.outputs] == list(streamed.values())
    twice = decoder.generate([PROMPT, PROMPT], replace(params, n=1))
    alone = [decoder.generate(PROMPT, replace(params, n=1, seed=one.seed)) for one in twice]
    drafted = [
        [[r.draft_tokens for r in one.rounds] for one in several] for several in (twice, alone)
    ]
    assert drafted[0] == drafted[1] and drafted[0][0] == [r.draft_tokens for r in result.rounds]


def test_more_levels_than_heads_are_refused():
    target = HFModel(llama(), name="tiny", check=False)
    with pytest.raises(UsageError, match="4 levels, but there are 3 heads"):
        Medusa(head_for("medusa", target), tree=TreeShape.parse("1,1,1,1"))


def test_a_text_longer_than_the_heads_positions_is_decoded_plainly():
    target = HFModel(gpt2(n_positions=64), name="tiny", check=False)
    torch.manual_seed(0)
    head = (
        EagleHead.of(target_view(target), **SHAPE, max_position_embeddings=12)
        .eval()
        .requires_grad_(False)
    )
    decoder = SpeculativeDecoder(
        Eagle(head), target, speculative_config={"num_speculative_tokens": 3}
    )
    params = SamplingParams(max_tokens=20, temperature=0.0)
    result = decoder.generate(PROMPT, params)
    assert result.token_ids == decoder.plain.generate(PROMPT, params).token_ids
    assert any("outgrew the head's 12 positions" in (record.note or "") for record in result.rounds)
    assert any(record.draft_tokens for record in result.rounds)
