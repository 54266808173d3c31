"""Logits processors with a state of their own: plain decoding's text with every draft, or a refusal
before any work.

transformers calls a processor once for each token, so one that counts its calls or moves a matcher
on is right there. With drafts it is asked about rows that never become text.
"""

from __future__ import annotations

import threading
from functools import partial

import pytest
import torch

import draftproof
import tiny
from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.processor_state import Forked, with_forks
from draftproof.errors import UsageError
from hf_calls import prompts

VOCAB = 8
PROMPT = [1, 2, 1, 2, 1]


class Budget:
    """Allows `budget` calls; from then on only token 7, as a limit on thinking does."""

    def __init__(self, budget: int = 4) -> None:
        self.calls, self.budget = 0, budget

    def __call__(self, input_ids, scores):
        self.calls += 1
        return scores if self.calls <= self.budget else only(scores, 7)


class Matcher:
    """Moves on by the last token at every call but the first, as xgrammar's processor does: no
    token twice in a row."""

    def __init__(self) -> None:
        self.prefilled, self.text = False, []

    def __call__(self, input_ids, scores):
        if self.prefilled:
            self.text.append(int(input_ids[0, -1]))
            assert self.text == input_ids[0, -len(self.text) :].tolist(), "called out of order"
        self.prefilled = True
        scores = scores.clone()
        scores[:, self.text[-1:]] = -float("inf")
        return scores


class Remembering:
    """A function that remembers what it has been asked."""

    def __init__(self) -> None:
        self.known = {}

    def __call__(self, input_ids, scores):
        bias = self.known.setdefault(tuple(input_ids[0].tolist()), float(input_ids.sum() % 3))
        return scores + torch.arange(scores.shape[1]) * bias


class Locked(Budget):
    """Can be copied only in part."""

    def __init__(self, budget: int = 4) -> None:
        super().__init__(budget)
        self.lock = threading.Lock()


class Generated:
    """Nobody can copy where a generator stands."""

    def __init__(self) -> None:
        self.budget = iter(calls < 40 for calls in range(99))

    def __call__(self, input_ids, scores):
        return scores if next(self.budget) else only(scores, 7)


class LockedFunction:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, input_ids, scores):
        with self.lock:
            return scores - (torch.arange(scores.shape[1]) == input_ids[0, -1]) * 2.0


def only(scores, token):
    kept = torch.full_like(scores, -float("inf"))
    kept[:, token] = 0
    return kept


def counting_closure():
    calls = 0

    def processor(input_ids, scores):
        nonlocal calls
        calls += 1
        return scores if calls < 40 else only(scores, 7)

    return processor


_calls = 0


def counting_global(input_ids, scores):
    global _calls
    _calls += 1
    return scores if _calls < 40 else only(scores, 7)


def table(seed: int) -> TableModel:
    generator = torch.Generator().manual_seed(seed)
    return TableModel(
        torch.randn(VOCAB, VOCAB, generator=generator, dtype=torch.float64)
        .mul(2)
        .softmax(-1)
        .numpy()
    )


TARGET, DRAFT = table(1), table(2)
SETTINGS = [
    *({"num_speculative_tokens": 3, "rule": rule} for rule in ("match", "gumbel")),
    {"tree": "2,2", "rule": "match"},
    *(
        {"method": method, "num_speculative_tokens": 3}
        for method in ("ngram", "suffix", "recycling", "lookahead")
    ),
    {"method": "auto", "drafters": ["suffix", "ngram"], "num_speculative_tokens": 3},
]


@pytest.mark.parametrize(
    "make", [Budget, Locked, Matcher, Remembering], ids=lambda make: make.__name__
)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_text_is_plain_decodings(setting, make):
    made = SpeculativeDecoder(
        None if "method" in setting else DRAFT, TARGET, speculative_config=setting
    )
    for seed, temperature in ((1, 1.0), (2, 1.0), (3, 0.0)):
        params = partial(SamplingParams, max_tokens=12, seed=seed, temperature=temperature)
        plain = made.plain.generate(PROMPT, params(logits_processors=[make()]))
        for _ in range(2):
            processor = make()
            assert (
                made.generate(PROMPT, params(logits_processors=[processor])).token_ids
                == plain.token_ids
            )
            assert {**vars(processor), "lock": 0} == {**vars(make()), "lock": 0}, (
                "what the caller gave was called or written to"
            )


@pytest.mark.parametrize("rule", ["token", "block", "traversal"])
def test_a_greedy_text_is_plain_decodings_under_every_rule(rule):
    made = SpeculativeDecoder(
        DRAFT, TARGET, speculative_config={"num_speculative_tokens": 4, "rule": rule}
    )
    params = partial(SamplingParams, max_tokens=12, temperature=0)
    for make in (Budget, Matcher):
        plain = made.plain.generate(PROMPT, params(logits_processors=[make()]))
        assert (
            made.generate(PROMPT, params(logits_processors=[make()])).token_ids == plain.token_ids
        )


def test_every_sample_row_and_warper_has_states_of_its_own():
    made = SpeculativeDecoder(
        DRAFT, TARGET, speculative_config={"num_speculative_tokens": 3, "rule": "match"}
    )
    params = partial(SamplingParams, max_tokens=10)
    alone = [
        made.plain.generate(PROMPT, params(seed=seed, logits_processors=[Budget()])).token_ids
        for seed in (1, 2)
    ]
    together = made.generate(
        [PROMPT, PROMPT],
        [params(seed=seed, logits_processors=[one]) for seed in (1, 2) for one in [Budget()]],
    )
    assert [result.token_ids for result in together] == alone
    shared = Budget()
    several = made.generate(PROMPT, params(seed=1, n=2, logits_warpers=[shared])).outputs
    assert all(output.token_ids[4:] == (7,) * 6 for output in several) and shared.calls == 0
    with made.session() as turns:
        for seed, text in zip((1, 2), alone, strict=True):
            assert (
                turns.generate(PROMPT, params(seed=seed, logits_processors=[Budget()])).token_ids
                == text
            )


@pytest.mark.parametrize(
    "make",
    [Generated, counting_closure, lambda: counting_global],
    ids=["generator", "closure", "global"],
)
def test_a_state_that_cannot_be_copied_is_refused_before_any_work(make):
    made = SpeculativeDecoder(DRAFT, TARGET, speculative_config={"num_speculative_tokens": 3})
    for field in ("logits_processors", "logits_warpers"):
        processor = make()
        params = SamplingParams(max_tokens=10, seed=1, **{field: [processor]})
        with pytest.raises(
            UsageError, match="keeps a state of its own that cannot be copied along drafts"
        ):
            made.request(PROMPT, params)
    plain = SamplingParams(
        max_tokens=10, seed=1, num_speculative_tokens=0, logits_processors=[make()]
    )
    assert len(made.generate(PROMPT, plain).token_ids) == 10


def test_functions_are_used_as_they_are():
    functions = [LockedFunction(), lambda ids, scores: scores]
    assert with_forks(functions, PROMPT, VOCAB) == tuple(functions)
    assert [type(one) for one in with_forks([Budget(), Matcher()], PROMPT, VOCAB)] == [
        Forked,
        Forked,
    ]


def test_xgrammars_own_processor():
    xgrammar = pytest.importorskip("xgrammar")
    hf = pytest.importorskip("xgrammar.contrib.hf")
    end = 62
    spelled = [chr(97 + i) if i < 52 else str(i % 10) for i in range(62)] + ["</s>", "<pad>"]
    told = dict(vocab_type=xgrammar.VocabType.RAW, vocab_size=64, stop_token_ids=[end])
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(spelled, **told))
    grammar = compiler.compile_grammar('root ::= ("ab" | "cd" | [0-9]) root | "."')
    model = tiny.llama()
    model.generation_config.eos_token_id = end
    for setting in (
        {"method": "ngram"},
        {"method": "early_exit", "early_exit_layers": 1},
        {"method": "lookahead"},
    ):
        made = SpeculativeDecoder(None, model, speculative_config={**setting, "rule": "match"})
        for seed in range(4):
            params = partial(SamplingParams, max_tokens=12, seed=seed)
            plain = made.plain.generate(
                PROMPT, params(logits_processors=[hf.LogitsProcessor(grammar)])
            )
            ours = made.generate(PROMPT, params(logits_processors=[hf.LogitsProcessor(grammar)]))
            assert ours.token_ids == plain.token_ids


class Raising:
    def __call__(self, input_ids, scores):
        if int(input_ids[0, -1]) == 3:
            raise KeyError("no rule for 3")
        return scores


def test_an_error_in_a_drafters_row_ends_the_draft_alone():
    """The draft would go to token 3, which the target never takes: plain decoding does not ask what
    comes after it."""
    target, draft = (TableModel([[float(j == to) for j in range(5)]] * 5) for to in (2, 3))
    made = SpeculativeDecoder(
        draft, target, speculative_config={"num_speculative_tokens": 3, "rule": "token"}
    )
    result = made.generate([0], SamplingParams(max_tokens=6, seed=1, logits_processors=[Raising()]))
    assert result.token_ids == (2,) * 6
    assert any("raised KeyError" in note for note in result.stats.notes)


@pytest.mark.parametrize(
    "drafter", ["ngram", "draft", {"method": "early_exit", "early_exit_layers": 1}], ids=str
)
@pytest.mark.parametrize("make", [Budget, Matcher], ids=lambda make: make.__name__)
def test_inside_transformers_own_call(make, drafter):
    model = tiny.llama(torch.float64)
    model.generation_config.pad_token_id = 0
    drafter = tiny.llama(torch.float64, seed=1) if drafter == "draft" else drafter
    inputs = prompts(6)
    options = dict(do_sample=False, max_new_tokens=12)
    expected = model.generate(**inputs, logits_processor=[make()], **options)
    ours = model.generate(
        **inputs,
        logits_processor=[make()],
        custom_generate=draftproof.hf.generate,
        drafter=drafter,
        **options,
    )
    assert torch.equal(ours, expected)
    with pytest.raises(UsageError, match="keeps a state of its own"):
        model.generate(
            **inputs,
            logits_processor=[Generated()],
            custom_generate=draftproof.hf.generate,
            drafter=drafter,
            **options,
        )
