"""No two requests over what a drafter remembers share coins."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.speculation import FOLLOWS_MEMORY, Speculation
from draftproof.drafters.auto import Auto
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.memory import Memory, take_opening
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.drafters.suffix import Suffix
from generations import generation_of

PROMPT = [0, 1, 2, 0, 1]
TARGET = TableModel([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])


def test_no_two_requests_that_share_a_memory_have_a_number():
    """Whatever memories they have beside it, in whatever order, and from several threads."""
    one, two, three = Memory(), Memory(), Memory()
    assert take_opening(()) == 0
    assert [
        take_opening(over) for over in [(one,), (two,), (two, one), (one, two), (three,), (one,)]
    ] == [1, 1, 2, 3, 1, 4]
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: take_opening((one, three)), range(400)))
    assert len(set(taken)) == 400
    assert min(taken) == 5, "above every number taken before over either"


@pytest.mark.parametrize("rule", ["token", "match"])
def test_the_seed_again_over_a_store_has_coins_of_its_own_where_drafts_shape_the_text(
    rule, monkeypatch
):
    """Under `match` the text follows the seed, with the store or without."""
    config = {"num_speculative_tokens": 3, "rule": rule}
    made = SpeculativeDecoder(Suffix(max_cached_requests=4), TARGET, speculative_config=config)
    params = SamplingParams(max_tokens=8, seed=3)
    streams = []
    chance_of = Speculation.chance_of

    def watched(*asked):
        streams.append((chance := chance_of(*asked))(0).key)
        return chance

    monkeypatch.setattr(Speculation, "chance_of", watched)
    for _ in range(3):
        made.generate(PROMPT, params)
    plain = generation_of(made.plain, TARGET.open(), PROMPT, params).chance_at(0).key
    assert (set(streams) == {plain}) if rule == "match" else (len({plain, *streams}) == 4)


def test_a_drafter_of_several_has_the_memories_of_all_and_every_one_is_numbered():
    first, second = Suffix(max_cached_requests=4), Suffix(max_cached_requests=4)
    made = Auto({"suffix": first, "other": second})
    assert made.memories == (*first.memories, *second.memories)
    config = {"num_speculative_tokens": 2, "rule": "token"}
    both = SpeculativeDecoder(made, TARGET, speculative_config=config)
    alone = SpeculativeDecoder(second, TARGET, speculative_config=config)
    keys = set()
    for decoder in (both, alone, both):
        keys.add(decoder.speculation.chance_of(tuple(PROMPT), SamplingParams(seed=3), 0)(0).key)
    assert len(keys) == 3 and [memory.num_openings for memory in made.memories] == [3, 3]


def test_what_was_written_before_is_in_the_stream_by_its_content():
    """The same request over the same corpus is the same text; over another one its coins are
    others."""

    def key(*text, rule="token"):
        drafter = Retrieval(SuffixArray(build_suffix_array([np.asarray(text)])), trees=False)
        made = SpeculativeDecoder(
            drafter, TARGET, speculative_config={"num_speculative_tokens": 2, "rule": rule}
        )
        return made.speculation.chance_of(tuple(PROMPT), SamplingParams(seed=3), 0)(0).key

    assert key(0, 1, 2) == key(0, 1, 2) != key(0, 1, 1)
    assert key(0, 1, 2, rule="match") == key(0, 1, 1, rule="match")


@pytest.mark.parametrize(
    ("rule", "kept", "said"), [("token", 4, True), ("token", 0, False), ("match", 4, False)]
)
def test_a_text_that_only_the_same_requests_give_again_says_so(rule, kept, said):
    config = {"num_speculative_tokens": 3, "rule": rule}
    made = SpeculativeDecoder(Suffix(max_cached_requests=kept), TARGET, speculative_config=config)
    assert (
        FOLLOWS_MEMORY in made.generate(PROMPT, SamplingParams(max_tokens=8, seed=3)).stats.notes
    ) == said
