"""Laws across requests: lists with a schedule, copies, stores that outlive a request, clocks; and
keys that bias them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from draftproof import TableModel
from draftproof.audit.exact import TOLERANCE
from draftproof.audit.requests import Case, EnumeratedDecoder, prove_requests
from draftproof.core.chance import stream_key
from draftproof.costs.round_costs import RoundCosts
from draftproof.drafters.auto import Auto
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.ngram_cache import NGramCache
from draftproof.drafters.prediction import Prediction
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.ngram_tables import StoredTable, build_tables
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.drafters.suffix import Suffix

ENDING = TableModel([[0.4, 0.3, 0.3]] * 3, eos_token_ids=[2])
SURE = TableModel([[0.9, 0.05, 0.05]] * 3)
GOING_ON = TableModel([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5]])
SCHEDULE = {
    "num_speculative_tokens": 1,
    "num_speculative_tokens_per_batch_size": [[1, 1, 0], [2, 8, 1]],
}
DRAFTS_MATTER = ("token", "block", "rrs", "traversal", "k_seq", "greedy_k")


def schedule(prompts, rule="token"):
    """A row drafts only while it has a neighbour."""
    return Case(
        lambda: EnumeratedDecoder(SURE, ENDING, speculative_config=SCHEDULE | {"rule": rule}),
        prompts,
        (2, 3),
    )


def store(rule, together=False):
    """The same request twice, over outputs of finished requests."""

    def make():
        config = {"num_speculative_tokens": 2, "rule": rule}
        return EnumeratedDecoder(Suffix(max_cached_requests=4), GOING_ON, speculative_config=config)

    return Case(make, ((0,), (0,)), (2, 3), together)


def live():
    """Two rows whose lengths follow a clock that everything done so far moves, neighbours included.
    Whether a draft pays is a close thing, so that one round's times decide about the next one."""
    target, draft = TableModel([[0.6, 0.4]] * 2), TableModel([[0.9, 0.1]] * 2)
    costs = RoundCosts(verify=((1, 1.0), (3, 1.3)), draft=0.1).as_dict()
    config = {
        "num_speculative_tokens": 1,
        "adaptive": "live",
        "auto_off": 0.9,
        "costs": costs,
        "rule": "token",
    }
    return Case(
        lambda: EnumeratedDecoder(draft, target, speculative_config=config), ((0, 0), (0,)), (3, 4)
    )


def knowing(what, rule, drafter, config=None):
    """The same request again, over the text that it gave before."""
    config = {"num_speculative_tokens": 2, "rule": rule} | (config or {})
    return Case(
        lambda: EnumeratedDecoder(drafter(), GOING_ON, speculative_config=config),
        ((0, 0), (0, 0)),
        (2, 3),
        False,
        knowing=what,
    )


def auto_with_prediction():
    return Auto({"prediction": Prediction(), "draft_model": DraftModel(SURE)})


def corpus_of(text, kind):
    if kind == "retrieval":
        return Retrieval(SuffixArray(build_suffix_array([np.asarray(text)])), trees=False)
    return NGramCache(StoredTable(build_tables([np.asarray(text)], least=1)))


TWO_PROMPTS, COPIES = ((0, 0), (0,)), ((0,), (0,))
CASES = {
    **{
        f"schedule, two prompts, {rule}": schedule(TWO_PROMPTS, rule) for rule in ("token", "block")
    },
    "schedule, copies": schedule(COPIES),
    **{f"store, {rule}": store(rule) for rule in DRAFTS_MATTER},
    "store, copies side by side": store("token", together=True),
    "live": live(),
    **{f"prediction, {rule}": knowing("prediction", rule, Prediction) for rule in DRAFTS_MATTER},
    "prediction within auto": knowing(
        "prediction", "token", auto_with_prediction, {"num_speculative_tokens": 1}
    ),
    **{
        f"corpus, {kind}, {rule}": knowing(
            "corpus", rule, partial(corpus_of, (0, 0, 1, 0, 0, 1), kind)
        )
        for kind in ("retrieval", "ngram_cache")
        for rule in ("token", "rrs")
    },
}


@pytest.fixture
def clock(monkeypatch):
    """Seconds that jump by what every row has drawn so far."""
    run = {}
    in_world = EnumeratedDecoder.in_world

    def begun(self, world):
        made = in_world(self, world)
        run.update(world=world, looks=0, now=0.0)
        return made

    def look():
        run["looks"] += 1
        drawn = sum((i + 1) * taken for i, taken in enumerate(run["world"].taken))
        run["now"] += 4.0 ** ((drawn * run["looks"] + run["looks"]) % 7)
        return run["now"]

    monkeypatch.setattr(EnumeratedDecoder, "in_world", begun)
    monkeypatch.setattr("draftproof.decode.generation.perf_counter", look)


def plant(monkeypatch, fault):
    """Leave the prompt, the copy or the opening of the memory out of the keys."""
    keyed = {
        "prompt": lambda seed, sample=0, *, prompt=(), opening=0, known=(): stream_key(
            seed, sample, opening=opening, known=known
        ),
        "opening": lambda seed, sample=0, *, prompt=(), opening=0, known=(): stream_key(
            seed, sample, prompt=prompt, known=known
        ),
        "known": lambda seed, sample=0, *, prompt=(), opening=0, known=(): stream_key(
            seed, sample, prompt=prompt, opening=opening
        ),
    }
    if fault == "copy":
        monkeypatch.setattr("draftproof.decode.base.with_seeds_of_their_own", list)
        # which would part them too
        monkeypatch.setattr("draftproof.decode.engine.Engine._shares_coins", lambda *asked: False)
    else:
        monkeypatch.setattr("draftproof.decode.speculation.stream_key", keyed[fault])


@pytest.mark.parametrize("name", CASES)
def test_requests_are_independent_and_each_has_the_targets_law(name, clock):
    found = prove_requests(CASES[name])
    assert found.tv <= TOLERANCE and found.joint_tv <= TOLERANCE, found
    assert found.outcomes > 50


def test_where_the_text_follows_the_seed_the_same_request_is_the_same_text_with_a_store_too():
    """The two texts are one, so their joint law is no product; each has the target's law."""
    found = prove_requests(store("match"))
    assert found.tv <= TOLERANCE
    assert found.joint_tv > 0.5


@pytest.mark.parametrize(
    "fault, name, least",
    [
        ("prompt", "schedule, two prompts, token", 0.04),
        ("prompt", "schedule, two prompts, block", 0.04),
        ("prompt", "live", 0.005),
        *[("opening", f"store, {rule}", 0.1) for rule in DRAFTS_MATTER],
        *[("known", f"prediction, {rule}", 0.05) for rule in DRAFTS_MATTER],
        ("known", "prediction within auto", 0.02),
        *[
            ("known", f"corpus, {kind}, {rule}", 0.02)
            for kind in ("retrieval", "ngram_cache")
            for rule in ("token", "rrs")
        ],
    ],
)
def test_a_key_without_it_is_seen_in_one_requests_own_law(fault, name, least, clock, monkeypatch):
    plant(monkeypatch, fault)
    assert prove_requests(CASES[name]).tv > least


@pytest.mark.parametrize(
    "fault, name",
    [("copy", "store, copies side by side"), ("copy", "schedule, copies"), ("prompt", "live")],
)
def test_a_key_without_it_is_seen_in_the_joint_law(fault, name, clock, monkeypatch):
    plant(monkeypatch, fault)
    if fault == "copy":
        plant(monkeypatch, "opening")  # either alone keeps them apart
    assert prove_requests(CASES[name]).joint_tv > 0.1
