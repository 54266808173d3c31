"""Our drafters behind vLLM's `custom_class` interface, in an engine that is faked: rows of a batch
that begin, move and end.

The fake follows what vLLM 0.32 does with such a proposer: it hands over what every row has just
got, the length of every text and the padded texts; a row that ends is replaced by the last one; a
prompt read in pieces gets no token at first."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import draftproof.vllm
from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.config import SpeculativeConfig
from draftproof.errors import UsageError
from draftproof.vllm import Auto, NGram, NGramCache, Proposer, Suffix
from draftproof.vllm.row import Row

VOCAB, LIMIT = 32, 400


def engine_config(length=6, max_model_len=LIMIT, **ours):
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=length),
        model_config=SimpleNamespace(
            model="target",
            tokenizer="target",
            max_model_len=max_model_len,
            get_vocab_size=lambda: VOCAB,
        ),
        additional_config={"draftproof": ours} if ours else {},
    )


def target_text(seed, length):
    """A text with stretches that come again, and with surprises."""
    rng = np.random.default_rng(seed)
    phrases = [rng.integers(0, VOCAB, rng.integers(3, 9)).tolist() for _ in range(4)]
    text = []
    while len(text) < length:
        text += phrases[rng.integers(4)] if rng.random() < 0.8 else [int(rng.integers(VOCAB))]
    return text[:length]


class Request:
    """text: prompt and what greedy decoding goes on with. chunks: steps in which its prompt is read
    before it gets a token."""

    def __init__(self, seed, prompt=20, answer=60, chunks=1):
        self.text, self.known = target_text(seed, prompt + answer), prompt
        self.end, self.chunks = prompt + answer, chunks
        self.draft, self.rounds = [], []

    def step(self):
        """Verify the draft; what is new, and the round as (context length, draft, accepted)."""
        if self.chunks > 1:
            self.chunks -= 1
            return []
        accepted = 0
        while (
            accepted < len(self.draft) and self.draft[accepted] == self.text[self.known + accepted]
        ):
            accepted += 1
            if self.known + accepted == self.end:
                break
        new = self.text[self.known : self.known + accepted + 1]
        self.rounds.append((self.known, tuple(self.draft), accepted))
        self.known += len(new)
        return new


def run(proposer, arrivals, at_once=3):
    """Serve requests, `at_once` at a time. Returns them."""
    waiting, batch = list(arrivals), []
    while waiting or batch:
        while waiting and len(batch) < at_once:
            batch.append(waiting.pop(0))
        sampled = [request.step() for request in batch]
        texts = np.zeros((len(batch), LIMIT + 10), np.int32)
        for place, request in enumerate(batch):
            texts[place, : request.known] = request.text[: request.known]
        lengths = np.array([request.known for request in batch])
        for request, draft in zip(
            batch, proposer.propose(sampled, lengths, texts, slot_mappings=None), strict=True
        ):
            assert isinstance(draft, list) and all(type(token) is int for token in draft)
            request.draft = draft
        for place in reversed(range(len(batch))):
            if batch[place].known >= batch[place].end:
                batch[place] = batch[-1]
                batch.pop()
    return list(arrivals)


def ours(method, request, length, **options):
    """The rounds of our own decoder over a table target that writes the same text."""
    drafter = SpeculativeConfig.from_dict(
        {"method": method, "num_speculative_tokens": length, **options}
    )
    # one token is there before vLLM asks for a first draft
    path, prompt = (
        request.text,
        request.rounds[1][0],
    )

    def law(context):
        one = np.zeros(VOCAB)
        one[path[len(context)] if len(context) < len(path) else 0] = 1.0
        return one

    target = TableModel(law, vocab_size=VOCAB)
    made = drafter.spec.make(drafter, SimpleNamespace(target=target, draft=None, tokenizer=None))
    decoder = SpeculativeDecoder(
        made, target, speculative_config={"num_speculative_tokens": length}
    )
    result = decoder.generate(
        path[:prompt], SamplingParams(max_tokens=len(path) - prompt, temperature=0.0)
    )
    assert list(result.token_ids) == path[prompt:]
    return [
        (record.start, record.draft_tokens, record.num_accepted_tokens) for record in result.rounds
    ]


@pytest.mark.parametrize(
    ("kind", "method"), [(Suffix, "suffix"), (NGram, "ngram"), (NGramCache, "ngram_cache")]
)
def test_drafts_are_those_of_our_own_decoder(kind, method):
    """Round by round in a batch whose rows move, but for the last rounds: ours stops at the limit,
    which vLLM does not tell."""
    requests = run(
        kind(engine_config()), [Request(seed, answer=40 + 13 * (seed % 3)) for seed in range(7)]
    )
    for request in requests:
        begun = [one for one in request.rounds[1:] if one[0] + 6 < request.end]
        same = ours(method, request, 6)
        assert len(begun) > 4 and same[: len(begun)] == begun
    assert sum(accepted for request in requests for _, _, accepted in request.rounds) > 100


def test_a_prompt_read_in_pieces_gets_no_draft_before_its_end():
    proposer = Suffix(engine_config())
    assert proposer.propose([[]], np.array([20]), np.zeros((1, LIMIT), np.int32)) == [[]]
    first, second = run(Suffix(engine_config()), [Request(1, chunks=4), Request(1)])
    assert first.rounds == second.rounds


class Watched(Row):
    """Keeps a weak hold on every row that was ever made."""

    seen: list[weakref.ref] = []

    def __init__(self, *args):
        super().__init__(*args)
        Watched.seen.append(weakref.ref(self))


def test_the_state_of_a_request_is_freed_once_it_is_gone(monkeypatch):
    monkeypatch.setattr("draftproof.vllm.proposer.Row", Watched)
    Watched.seen = []
    proposer = Suffix(engine_config())
    run(proposer, [Request(seed) for seed in range(9)])
    run(proposer, [Request(50)])
    gc.collect()
    assert len(Watched.seen) == 10 and sum(one() is not None for one in Watched.seen) == 1
    assert len(proposer._rows) == 1


def test_a_request_that_begins_as_another_one_ended_is_a_new_one(monkeypatch):
    """The next turn of a chat: the text goes on, but by more than a step can give."""
    monkeypatch.setattr("draftproof.vllm.proposer.Row", Watched)
    Watched.seen = []
    proposer = Auto(engine_config())
    first = run(proposer, [Request(3)])[0]
    second = Request(3)
    second.text, second.known = [*first.text, *target_text(4, 60)], first.end + 20
    second.end = first.end + 60
    run(proposer, [second])
    assert len(Watched.seen) == 2


def test_outputs_are_shared_between_requests_only_when_asked_for():
    alone, shared = ([Request(5), Request(5)] for _ in range(2))
    run(Suffix(engine_config()), alone, at_once=1)
    assert alone[0].rounds == alone[1].rounds
    kept = Suffix(engine_config(suffix_decoding_max_cached_requests=10))
    run(kept, [*shared, Request(9)], at_once=1)
    assert kept._drafter.shared.num_requests == 2
    assert len(shared[1].rounds) < len(shared[0].rounds) * 0.6


def test_auto_takes_turns_and_adapts():
    requests = run(Auto(engine_config(length=12)), [Request(seed) for seed in range(6)])
    lengths = {len(draft) for request in requests for _, draft, _ in request.rounds}
    assert len(lengths) > 3 and max(lengths) <= 12
    rounds = sum(len(request.rounds) for request in requests)
    other = run(
        Auto(engine_config(length=12, drafters=["suffix", "ngram_cache"])),
        [Request(seed) for seed in range(6)],
    )
    assert [one.rounds for one in other] != [one.rounds for one in requests]
    dear = Auto(engine_config(length=12, costs={"verify": {"1": 1.0, "13": 60.0}}))
    none = run(dear, [Request(seed) for seed in range(6)])
    assert sum(len(draft) for request in none for _, draft, _ in request.rounds) < 10
    assert rounds < sum(request.end - 20 for request in requests) * 0.7


def test_no_draft_goes_past_the_models_context():
    requests = run(NGram(engine_config(max_model_len=60)), [Request(2, answer=39)])
    assert all(start + len(draft) < 60 for start, draft, _ in requests[0].rounds)


def test_the_method_may_be_named_in_vllms_configuration():
    by_name = run(Proposer(engine_config(method="ngram", prompt_lookup_max=4)), [Request(1)])[0]
    by_class = run(NGram(engine_config(prompt_lookup_max=4)), [Request(1)])[0]
    assert by_name.rounds == by_class.rounds


@pytest.mark.parametrize(
    ("kind", "asked", "said"),
    [
        (Proposer, {}, "enough for .*ngram.*suffix.*; not for None"),
        (Proposer, {"method": "eagle3"}, "not for 'eagle3'"),
        (Proposer, {"method": "lookahead"}, "not for 'lookahead'"),
        (Suffix, {"method": "ngram"}, "Suffix drafts by method 'suffix', not 'ngram'"),
        (Suffix, {"rule": "match"}, "'rule'; inside vLLM"),
        (NGram, {"tree": "2,1"}, "'tree'; inside vLLM"),
        (NGram, {"num_speculative_tokens": 3}, "asks for 3 tokens a draft, vLLM for 6"),
        (Suffix, {"suffix_decoding_use_tree": True}, "cannot read a tree"),
        (
            NGram,
            {"prompt_lookup_maximum": 3},
            "has no key 'prompt_lookup_maximum'; did you mean 'prompt_lookup_max'",
        ),
        (
            Auto,
            {"drafters": ["suffix", {"method": "eagle3", "model": "head"}]},
            "auto chooses from .*, not 'eagle3'",
        ),
        (Proposer, {"method": "retrieval"}, 'needs "store"'),
    ],
)
def test_what_cannot_be_done_inside_vllm_is_refused(kind, asked, said):
    with pytest.raises(UsageError, match=said):
        kind(engine_config(**asked))


def test_every_class_is_found_by_the_path_vllm_is_given():
    for name in draftproof.vllm.__all__:
        assert callable(getattr(draftproof.vllm, name).propose)


def test_a_text_may_hold_ids_beyond_the_vocabulary():
    """Place holders of an image, say: they are looked up like any token and never proposed."""
    text = np.array([[1, VOCAB + 3, 2, 5, 1, 0, 0]], np.int32)
    for kind in (Suffix, NGram, Auto):
        drafts = kind(engine_config()).propose([[1]], np.array([5]), text)
        assert drafts == [[]], kind
