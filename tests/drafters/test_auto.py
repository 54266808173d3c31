"""`auto`: any registered drafters side by side, by name or with keys of their own; heads and trees
among them."""

from __future__ import annotations

import json

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.records import Round
from draftproof.costs.round_costs import RoundCosts
from draftproof.costs.verify_curve import rising
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.controllers import by_level
from draftproof.decode.length import LengthController, Member, Situation
from draftproof.decode.lengths import LENGTHS
from draftproof.decode.lengths.auto_off import Ledger
from draftproof.drafters.auto import Auto
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.lookahead import Lookahead
from draftproof.drafters.protocol import Foreseen
from draftproof.drafters.recycling import Recycling
from draftproof.drafters.suffix import Suffix
from draftproof.errors import UsageError
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.folder import save_head
from draftproof.heads.target import target_view
from draftproof.models.hf import HFModel
from random_heads import random_head, random_state
from tiny import VOCAB, llama

CHEAP = RoundCosts(verify=((1, 1.0), (33, 1.3)), draft=0.02).as_dict()
SHAPE = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 32,
    "rms_norm_eps": 1e-6,
}
PROMPT = [5, 9, 33, 2, 17, 5, 9, 33]


@pytest.fixture(scope="module")
def target():
    return HFModel(llama(), name="llama", check=False)


@pytest.fixture(scope="module")
def head(target, tmp_path_factory):
    torch.manual_seed(2)
    view = target_view(target)
    folder = tmp_path_factory.mktemp("head")
    save_head(folder, Eagle3.of(view, range(0, VOCAB, 3), **SHAPE).eval(), view)
    return str(folder)


@pytest.mark.parametrize("form", ["one model", "keys of its own"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_head_beside_suffix_matches(target, head, form, temperature):
    """The text is plain decoding's, and both drafters have drafted."""
    config = {"method": "auto", "auto_off": False, "costs": CHEAP, "rule": "match"}
    if form == "one model":
        config |= {"model": head, "drafters": ["suffix", "eagle3"]}
    else:
        config |= {
            "drafters": ["suffix", {"method": "eagle3", "model": head, "num_speculative_tokens": 3}]
        }
    made = SpeculativeDecoder(None, target, speculative_config=config)
    params = SamplingParams(max_tokens=40, seed=3, temperature=temperature)
    result = made.generate(PROMPT * 3, params)
    assert result.token_ids == made.plain.generate(PROMPT * 3, params).token_ids
    assert result.stats.rounds_per_drafter.get("eagle3", 0) > 0
    assert temperature > 0 or result.stats.rounds_per_drafter.get("suffix", 0) > 0
    if form == "keys of its own":
        assert all(len(r.draft_tokens) <= 3 for r in result.rounds if r.drafter == "eagle3")


def test_sampled_drafts_of_a_head_keep_their_rule(target, head):
    made = SpeculativeDecoder(
        None,
        target,
        speculative_config={
            "method": "auto",
            "model": head,
            "drafters": ["suffix", "eagle3"],
            "costs": CHEAP,
        },
    )
    assert made.rule.name == "token"
    assert made.drafter.wants.hidden == made.drafter.members["eagle3"].wants.hidden


def test_the_table_of_costs_has_every_drafter(target, head):
    config = {"method": "auto", "model": head, "drafters": ["suffix", "eagle3", "recycling"]}
    costs = SpeculativeDecoder(None, target, speculative_config=config).config.costs
    assert set(costs) == {"suffix", "eagle3", "recycling"}
    assert costs["suffix"]["draft"] == 0.0


def test_trees_and_chains_side_by_side(target):
    """Chains of `suffix`, the tree of `recycling`, and what `lookahead` reads beside its own."""
    members = {"suffix": Suffix(), "recycling": Recycling(12, 4), "lookahead": Lookahead(3, 3, 3)}
    made = SpeculativeDecoder(
        Auto(members),
        target,
        speculative_config={"num_speculative_tokens": 6, "adaptive": "survival", "costs": CHEAP},
    )
    for temperature in (0.0, 1.0):
        params = SamplingParams(max_tokens=60, seed=3, temperature=temperature)
        result = made.generate(PROMPT * 2, params)
        assert result.token_ids == made.plain.generate(PROMPT * 2, params).token_ids
        assert len(result.stats.rounds_per_drafter) > 1


def test_the_caller_may_leave_the_model_out():
    made = SpeculativeDecoder(
        None, TableModel([[0.5, 0.5]] * 2), speculative_config={"method": "auto", "costs": CHEAP}
    )
    assert set(made.drafter.members) == {"suffix", "ngram"}


def test_keys_beside_the_list_are_for_bare_names():
    config = SpeculativeConfig.from_dict(
        {
            "method": "auto",
            "drafters": ["suffix", {"method": "ngram", "prompt_lookup_max": 5}],
            "suffix_decoding_max_tree_depth": 9,
        }
    )
    suffix, ngram = config.members
    assert suffix.option("suffix_decoding_max_tree_depth") == 9
    assert ngram.option("prompt_lookup_max") == 5
    again = SpeculativeConfig.from_dict(json.loads(json.dumps(config.as_dict())))
    assert again.members == config.members


@pytest.mark.parametrize(
    "config, said",
    [
        ({"drafters": ["suffix"]}, "at least two"),
        ({"drafters": ["suffix", "suffix"]}, "twice"),
        ({"drafters": ["suffix", "auto"]}, "allowed: draft_model"),
        ({"drafters": "suffix"}, "allowed: a list of"),
        ({"drafters": ["suffix", {"method": "ngram", "rule": "match"}]}, "holds for all drafters"),
        ({"drafters": ["suffix", "ngram"], "model": "d"}, "names no such"),
        ({"drafters": ["draft_model", "eagle3"], "model": "d"}, "each its own"),
        ({"drafters": ["suffix", "eagle"]}, 'needs "model"'),
        (
            {"drafters": ["suffix", "ngram"], "draft_sample_method": "greedy"},
            "none of the drafters",
        ),
        ({"drafters": ["suffix", {"method": "ngram", "store": "x"}]}, "is read by method"),
        ({"drafters": ["suffix", "retrieval"]}, 'needs "store"'),
    ],
)
def test_what_does_not_go_together_is_refused(config, said):
    with pytest.raises(UsageError, match=said):
        SpeculativeConfig.from_dict({"method": "auto"} | config)


def rounds_of(made, prompt, tokens):
    result = made.generate(prompt, SamplingParams(max_tokens=tokens, seed=1, temperature=0.0))
    return result.rounds


@pytest.mark.parametrize(
    "drafter",
    [
        lambda: Recycling(12, 4),
        lambda: Lookahead(3, 3, 3),
        lambda: Suffix(max_spec_factor=3.0, tree=True),
        lambda: Eagle(random_head("eagle"), num_nodes=8, top_k=3),
    ],
)
def test_the_budget_holds_for_trees_that_are_always_wrong(drafter):
    """A round is reckoned by all that the target reads: at most 3% more work than plain decoding
    over 200 tokens."""
    model = TableModel(
        [[float(j == (5 * i + 3) % 8) for j in range(8)] for i in range(8)],
        name="t",
        hidden=random_state,
    )
    dear = RoundCosts(verify=((1, 1.0), (2, 1.8), (33, 20.0)), fixed=0.05)
    config = {"num_speculative_tokens": 4, "adaptive": "survival", "costs": dear.as_dict()}
    made = SpeculativeDecoder(drafter(), model, speculative_config=config)
    uniform = SamplingParams(max_tokens=200, seed=2, temperature=1.0)
    flat = TableModel([[1 / 8] * 8] * 8, name="flat", hidden=random_state)
    for decoder in (made, SpeculativeDecoder(drafter(), flat, speculative_config=config)):
        rounds = decoder.generate([0, 1, 2], uniform).rounds
        work = sum(
            dear.round(len(r.draft_tokens) + r.num_read_beside, 0)
            if r.draft_tokens or r.num_read_beside
            else 1.0
            for r in rounds
        )
        assert work <= 1.03 * 200 + 1e-9


def test_costs_by_level_hold_the_whole_tree():
    costs = RoundCosts(verify=((1, 1.0), (41, 41.0)), each=0.1)
    shaped = by_level(costs, Recycling(12, 4), 4)
    assert shaped.round(4, 0) == pytest.approx(13.0 + 4 * shaped.each)
    assert shaped.each >= 0.1 * 12 / 4
    assert by_level(costs, Suffix(), 4) is costs
    assert Lookahead(3, 3, 3).most_read(2) == 3 * 2 + 3 * 3 - 1


def record(drafts, accepted, start=10):
    return Round(
        start=start,
        draft_tokens=(0,) * drafts,
        draft_parents=tuple(range(-1, drafts - 1)),
        tokens=(0,) * (accepted + 1),
        origins=("draft",) * accepted + ("replacement",),
        num_accepted_tokens=accepted,
        reached=min(accepted + 1, drafts),
    )


def test_weak_matches_are_given_up_and_strong_ones_are_not():
    """Matches of one token never hold, matches of six always do: the first losing must not silence
    the second."""
    costs = RoundCosts(verify=((1, 1.0), (2, 1.5), (17, 2.0)))
    controller = LengthController(
        [Member("x", LENGTHS["survival"].make(costs), costs, auto_off=True)], Ledger()
    )
    drafted = {1: 0, 6: 0}
    length = 10
    for turn in range(80):
        strength = 6 if turn % 4 == 3 else 1
        drafts = controller.begin(Situation(length, 16, 1000, {"x": Foreseen(strength, 8)}))
        drafts = min(drafts, controller.room(0)) if drafts else 0
        drafted[strength] += drafts > 0
        accepted = drafts if strength == 6 else 0
        controller.observe(record(drafts, accepted, length))
        length += accepted + 1
    assert drafted[6] == 20
    assert drafted[1] <= 12


def test_a_weak_match_that_failed_says_nothing_about_strong_ones():
    """Beside a drafter that is worth something, a long match is taken at its word from elsewhere;
    one that had to be tried first in this request never would be."""
    costs = RoundCosts(verify=((1, 1.0), (17, 1.3)))
    rule = LENGTHS["survival"].make(costs)
    rule.begin(2, Foreseen(1, 2, 0.2))
    rule.observe(record(2, 0))
    rule.begin(8, Foreseen(9, 8, 0.9))
    assert rule.expected(8) == pytest.approx(sum(0.9**i for i in range(1, 9)))
    rule.observe(record(8, 1))
    rule.begin(8, Foreseen(9, 8, 0.9))
    assert rule.expected(8) < 3  # its own rounds soon outweigh what is known from elsewhere


def test_a_slow_pass_is_not_the_price_of_longer_ones():
    assert rising([1.0, 3.0, 2.0, 2.5, 4.0]) == [1.0, 2.5, 2.5, 2.5, 4.0]
    assert rising([2.0, 1.0]) == [1.5, 1.5]
