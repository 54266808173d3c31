"""What every drafter must do, asked of every drafter: of those that files state, and of those that
need models or stores."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.guessing import Expecting
from draftproof.audit.others import Spelled
from draftproof.core.chance import KeyedChance
from draftproof.core.pipeline import LawPipeline
from draftproof.core.rules import RULES
from draftproof.core.tree import TreeShape
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.measured_costs import measured_costs
from draftproof.decode.passes import drive
from draftproof.drafters.auto import Auto
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.medusa import Medusa
from draftproof.drafters.ngram import NGram
from draftproof.drafters.ngram_cache import NGramCache
from draftproof.drafters.other_tokenizer import OtherTokenizer
from draftproof.drafters.protocol import Drafter, DraftSession, Request, Wants
from draftproof.drafters.registry import drafting_methods, examples
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.ngram_tables import StoredTable, build_tables
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.drafters.suffix import Suffix
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from draftproof.models.slices import early_exit, skipping
from draftproof.models.transcript import Vocabularies
from forks import check_forks, check_forks_of_a_draft
from random_heads import random_head, random_state
from tiny import llama

CYCLE = [[1.0 if j == (i + 1) % 8 else 0.0 for j in range(8)] for i in range(8)]
TARGET = TableModel(CYCLE, name="target", hidden=random_state)
UNEVEN = TableModel(
    np.random.default_rng(3).dirichlet(np.ones(8), 8), name="uneven", hidden=random_state
)
LIKELY = TableModel(
    [[0.6 if j == (i + 1) % 8 else 0.4 / 7 for j in range(8)] for i in range(8)], name="draft"
)
TREE = TreeShape.from_levels((2, 2, 1, 1))
CORPUS = np.arange(40) % 8
LETTERS = [bytes([97 + i]) for i in range(8)]
OTHER = TableModel(
    [[0.6 if j == (i - 1) % 9 else 0.05 for j in range(9)] for i in range(9)], name="other tokens"
)
BETWEEN = Vocabularies(
    Spelled(*LETTERS), Spelled(*reversed(LETTERS), b"z"), target_size=8, draft_size=9
)
LAYERED = HFModel(llama(vocab_size=8), name="layers", check=False)
COSTS = RoundCosts(verify=((1, 1.0), (9, 1.3)), draft=0.05).as_dict()
"""Given, since measured ones differ from one decoder to the next."""
DRAFTERS = examples() | {
    "draft_model": lambda: DraftModel(LIKELY),
    "draft_model, greedy": lambda: DraftModel(LIKELY, "greedy"),
    "draft_model, tree": lambda: DraftModel(LIKELY, tree=TREE, selection="without_replacement"),
    "draft_model, greedy tree": lambda: DraftModel(LIKELY, "greedy", tree=TREE),
    "medusa": lambda: Medusa(random_head("medusa")),
    "medusa, tree": lambda: Medusa(random_head("medusa"), tree=TREE),
    "eagle": lambda: Eagle(random_head("eagle")),
    "eagle, greedy": lambda: Eagle(random_head("eagle"), "greedy"),
    "eagle, dynamic tree": lambda: Eagle(random_head("eagle"), num_nodes=8, top_k=3),
    "eagle3": lambda: Eagle(random_head("eagle3"), name="eagle3"),
    "ngram_cache, stored": lambda: NGramCache(StoredTable(build_tables([CORPUS]))),
    "retrieval": lambda: Retrieval(SuffixArray(build_suffix_array([CORPUS])), 14),
    "text route": lambda: OtherTokenizer(OTHER, BETWEEN, "text"),
    "shared route": lambda: OtherTokenizer(OTHER, BETWEEN, "shared"),
    "either route": lambda: OtherTokenizer(OTHER, BETWEEN, "auto"),
    "early_exit": lambda: DraftModel(early_exit(LAYERED, 1), name="early_exit"),
    "layer_skip": lambda: DraftModel(skipping(LAYERED, attention=[1]), name="layer_skip"),
    "auto": lambda: Auto({"suffix": Suffix(), "draft_model": DraftModel(LIKELY)}),
    "auto, a head": lambda: Auto(
        {"suffix": Suffix(), "eagle3": Eagle(random_head("eagle3"), name="eagle3")}
    ),
    "prediction": lambda: Expecting(tuple(token % 8 for token in range(2, 60))),
    "retrieval, chain": lambda: Retrieval(
        SuffixArray(build_suffix_array([CORPUS])), 14, trees=False
    ),
}
STORES = tuple(
    name
    for name in DRAFTERS
    if name.startswith(("suffix", "ngram_cache", "recycling", "retrieval"))
)
PROMPT = [0, 1, 2, 3, 0, 1]


@pytest.fixture(params=DRAFTERS)
def drafter(request):
    return DRAFTERS[request.param]()


def decoder(drafter, **config):
    return SpeculativeDecoder(
        drafter, TARGET, speculative_config={"num_speculative_tokens": 4, "costs": COSTS} | config
    )


def depth(parents):
    depths = []
    for parent in parents:
        depths.append(1 if parent < 0 else 1 + depths[parent])
    return max(depths, default=0)


@pytest.mark.parametrize("method", drafting_methods())
def test_every_method_is_held_to_the_contract(method):
    made = {drafter().name for drafter in DRAFTERS.values()}
    assert method in made, f"method {method!r} has no examples= in its file"


def wild_clock(seed):
    """Seconds that have nothing to do with the time: every look finds a thousandth to a thousand of
    them gone."""
    rng, now = np.random.default_rng(seed), [0.0]

    def look():
        now[0] += float(10 ** rng.uniform(-3, 3))
        return now[0]

    return look


@pytest.mark.parametrize(
    "setting",
    [
        {"adaptive": "survival"},
        {"adaptive": "lab", "auto_off": False},
        {"adaptive": "heuristic", "auto_off": True},
        {"adaptive": "fixed", "auto_off": 0.05},
    ],
    ids=lambda setting: setting["adaptive"],
)
def test_a_seed_gives_one_text_whatever_the_clock_says(drafter, setting, monkeypatch):
    """Costs timed when a decoder is made set draft lengths, and under `token` the text depends on
    lengths."""
    texts = set()
    for number in range(3):
        look = wild_clock(number)
        for module in [
            module for name, module in sys.modules.items() if name.startswith("draftproof.")
        ]:
            if hasattr(module, "perf_counter"):
                monkeypatch.setattr(module, "perf_counter", look)
        monkeypatch.setattr(
            "draftproof.decode.cost_tables.measured_costs", partial(measured_costs, clock=look)
        )
        made = SpeculativeDecoder(
            drafter, UNEVEN, speculative_config={"num_speculative_tokens": 4} | setting
        )
        results = [
            made.generate(PROMPT, SamplingParams(max_tokens=16, seed=seed)) for seed in range(2)
        ]
        texts.add(tuple(result.token_ids for result in results))
    assert len(texts) == 1


def test_it_declares_itself(drafter):
    assert isinstance(drafter.name, str)
    assert drafter.selections
    assert isinstance(drafter.wants, Wants)
    assert isinstance(drafter.trees, bool)


def test_the_text_is_the_targets(drafter):
    made = decoder(drafter)
    params = SamplingParams(max_tokens=30, seed=1)
    result = made.generate(PROMPT, params)
    assert result.token_ids == made.plain.generate(PROMPT, params).token_ids
    assert result.stats.num_draft_tokens > 0
    assert result.stats.method == drafter.name


@pytest.mark.parametrize("size", [1, 2, 3])
def test_short_prompts_and_single_tokens(drafter, size):
    assert (
        len(
            decoder(drafter).generate(PROMPT[:size], SamplingParams(max_tokens=5, seed=0)).token_ids
        )
        == 5
    )


def test_never_more_than_the_budget(drafter):
    for limit in range(1, 6):
        result = decoder(drafter).generate(PROMPT, SamplingParams(max_tokens=limit, seed=0))
        assert len(result.token_ids) == limit
        left = limit
        for record in result.rounds:
            assert depth(record.draft_parents) <= min(4, left - 1)
            assert len(record.draft_tokens) <= (len(TREE) if drafter.trees else 4)
            left -= len(record.tokens)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_ends_where_the_targets_context_does(drafter, temperature):
    """The last passes hold fewer tokens than a tree of full shape has, down to none."""
    target = TableModel(CYCLE, name="target", hidden=random_state, max_length=len(PROMPT) + 12)
    made = SpeculativeDecoder(
        drafter, target, speculative_config={"num_speculative_tokens": 4, "costs": COSTS}
    )
    params = SamplingParams(max_tokens=12, seed=3, temperature=temperature)
    result = made.generate(PROMPT, params)
    assert (
        result.token_ids == made.plain.generate(PROMPT, params).token_ids
        and len(result.token_ids) == 12
    )


def test_requests_share_nothing(drafter):
    made = decoder(drafter)
    params = SamplingParams(max_tokens=20, seed=4)
    alone = [r.draft_tokens for r in decoder(drafter).generate(PROMPT, params).rounds]
    made.generate([5] * 30, params)
    assert [r.draft_tokens for r in made.generate(PROMPT, params).rounds] == alone


def test_two_requests_at_a_time_do_not_meet(drafter):
    made = decoder(drafter)
    params = SamplingParams(max_tokens=16, seed=4)
    whole = made.generate(PROMPT, params).token_ids
    one, other = made.stream(PROMPT, params), made.stream(PROMPT[:3], params)
    found = []
    for piece in one:
        found.extend(piece.token_ids)
        next(other, None)
    assert tuple(found) == whole


def test_what_it_learns_for_later_requests_it_declares(drafter):
    """A drafter that keeps something and does not say so would be judged with coins that its drafts
    know."""
    made = decoder(drafter)
    made.generate(PROMPT, SamplingParams(max_tokens=8, seed=4))  # fills what is only made once
    before, opened = remains(drafter), opening_numbers(drafter)
    made.generate([*PROMPT, 2, 0], SamplingParams(max_tokens=24, seed=4))
    assert drafter.memories or remains(drafter) == before
    assert opening_numbers(drafter) == opened, "it took a number that only a decoder takes"


def test_one_that_learns_in_silence_is_seen():
    class Hoarder(NGram):
        def open(self, request):
            session = super().open(request)
            observe = session.observe
            session.observe = lambda seen: (self.kept.append(tuple(seen.tokens)), observe(seen))
            return session

    hoarder = Hoarder()
    hoarder.kept = []
    with pytest.raises(AssertionError):
        test_what_it_learns_for_later_requests_it_declares(hoarder)


def test_a_store_that_outlives_a_request_is_a_memory_of_every_drafter_that_uses_it():
    keeping = Suffix(max_cached_requests=2)
    assert keeping.memories == (keeping.shared,)
    assert Auto({"suffix": keeping, "ngram": NGram()}).memories == (keeping.shared,)
    assert Suffix().memories == ()


def opening_numbers(drafter):
    return [memory.num_openings for memory in drafter.memories]


def remains(part, seen=()):
    """What a drafter holds, down to numbers: two equal ones will draft alike. Models of others are
    left out."""
    if isinstance(part, (str, bytes, int, float, bool, type(None))):
        return part
    if (
        id(part) in seen
        or isinstance(part, (TableModel, HFModel))
        or callable(part)
        and not hasattr(part, "state_dict")
    ):
        return type(part).__name__
    seen = (*seen, id(part))
    if hasattr(part, "state_dict"):
        return {name: value.tolist() for name, value in part.state_dict().items()}
    if hasattr(part, "tolist"):
        return part.tolist()
    if isinstance(part, dict):
        return [(remains(key, seen), remains(value, seen)) for key, value in part.items()]
    if isinstance(part, (list, tuple)):
        return [remains(one, seen) for one in part]
    if isinstance(part, (set, frozenset)):
        return sorted(map(repr, part))
    return type(part).__name__, remains({**getattr(part, "__dict__", {}), **slots_of(part)}, seen)


def slots_of(part):
    names = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(part, name) for name in names if hasattr(part, name)}


def test_state_key_is_hashable_and_close_is_idempotent(drafter):
    sampling = SamplingParams()
    laws = LawPipeline(sampling, num_prompt_tokens=2, vocab_size=8)
    session = drafter.open(Request((0, 1), sampling, laws, TARGET))
    assert {session.state_key(): "known"}[session.state_key()] == "known"
    session.close()
    session.close()
    assert drafter.open(Request((0, 1), sampling, laws, TARGET)).state_key() == session.state_key()


def test_a_drafter_of_the_callers_plugs_in():
    class AlwaysSeven(Drafter, DraftSession):
        name, selections, memories = "always_seven", frozenset({"fixed"}), ()

        def open(self, request):
            return self

        def propose(self, context, draft):
            while draft.room > 0:
                draft.guess(7)

        def observe(self, seen):
            self.seen = seen

        def state_key(self):
            return ()

        def fork(self):
            return self

    own = AlwaysSeven()
    made = decoder(own, num_speculative_tokens=3)
    result = made.generate([5], SamplingParams(max_tokens=9, seed=0))
    assert result.token_ids == (6, 7, 0, 1, 2, 3, 4, 5, 6)
    assert result.stats.method == "always_seven"
    assert result.stats.num_accepted_tokens == 1
    assert own.seen.round is not None
    from_class = SpeculativeDecoder(
        AlwaysSeven, TARGET, speculative_config={"num_speculative_tokens": 3}
    )
    assert (
        from_class.generate([5], SamplingParams(max_tokens=9, seed=0)).stats.num_accepted_tokens
        == 1
    )


def test_what_is_not_a_drafter_is_told_what_it_lacks():
    class Half(Drafter):
        name = "half"

        def open(self, request):
            raise AssertionError("opened")

    class Alike:
        name, selections, memories = "alike", frozenset({"fixed"}), ()

        def open(self, request):
            return self

    class Opens(Alike, Drafter):
        pass

    with pytest.raises(UsageError, match="Half does not say its selections, memories"):
        decoder(Half())
    with pytest.raises(
        UsageError,
        match="Alike cannot draft; allowed: .* a subclass of draftproof.drafters.protocol.Drafter",
    ):
        decoder(Alike())
    with pytest.raises(UsageError, match="opened a Opens, which is no subclass of DraftSession"):
        decoder(Opens()).generate(PROMPT, SamplingParams(max_tokens=2))


def test_a_rule_that_cannot_verify_the_drafts_is_refused_at_once():
    class Several(Drafter):
        name, selections, memories = "several", frozenset({"top_k_plus_one"}), ()

        def open(self, request):
            return self

    with pytest.raises(UsageError, match="cannot verify top_k_plus_one drafts"):
        decoder(Several(), rule="token")
    assert decoder(Several()).rule is RULES["greedy_k"]


def draft_after(session, context, laws):
    draft = DraftBuilder(KeyedChance((0, 0), len(context)), depth=4, vocab_size=8, max_nodes=14)
    proposal = session.propose(context, draft)
    if proposal is not None:
        drive(proposal)
    return draft.build().tokens


@pytest.mark.parametrize("kind", STORES)
def test_an_edited_context_is_read_anew(kind):
    """A context that does not go on from the last one gives what a session would give that never
    saw the last one."""
    drafter = DRAFTERS[kind]()
    params = SamplingParams()
    laws = LawPipeline(params, num_prompt_tokens=2, vocab_size=8)
    edited = [
        [0, 1, 2, 3, 0, 1],
        [0, 1, 2, 3, 0, 1, 5],
        [0, 1, 7],
        [0, 1, 7, 6, 7],
        [3],
        [3, 4, 3, 4, 3, 4],
    ]
    session = drafter.open(Request((0, 1), params, laws, TARGET))
    for context in edited:
        fresh = drafter.open(Request((0, 1), params, laws, TARGET))
        assert draft_after(session, context, laws) == draft_after(fresh, context, laws)


@pytest.mark.parametrize(
    "params",
    [
        {"suppress_tokens": [2]},
        {"bad_words_ids": [[1, 2], [5]]},
        {"logit_bias": {2: -float("inf")}},
        {"allowed_token_ids": [0, 1, 3, 4, 5, 6, 7]},
    ],
)
@pytest.mark.parametrize("kind", ["ngram", "ngram, trie", *STORES])
def test_nothing_forbidden_is_proposed(kind, params):
    drafter = DRAFTERS[kind]()
    sampling = SamplingParams(max_tokens=120, seed=1, **params)
    uniform = TableModel([[1 / 8] * 8] * 8, name="uniform")
    made = SpeculativeDecoder(
        drafter, uniform, speculative_config={"num_speculative_tokens": 4, "rule": "match"}
    )
    laws = LawPipeline(sampling, num_prompt_tokens=len(PROMPT), vocab_size=8)
    result = made.generate(PROMPT, sampling)
    assert result.token_ids == made.plain.generate(PROMPT, sampling).token_ids
    whole = (*PROMPT, *result.token_ids)
    assert sum(len(record.draft_tokens) for record in result.rounds) > 0
    for record in result.rounds:
        paths = {-1: ()}
        for node, (token, parent) in enumerate(
            zip(record.draft_tokens, record.draft_parents, strict=True)
        ):
            assert not laws.forbids(token, whole[: record.start], paths[parent])
            paths[node] = (*paths[parent], token)


def test_a_fork_goes_its_own_way(drafter):
    check_forks(drafter, UNEVEN)
    check_forks_of_a_draft(drafter, UNEVEN)
