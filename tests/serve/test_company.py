"""Continuous batching: who shares rounds with whom changes no text, and nobody waits or holds
memory for nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.decode.result import Update
from draftproof.models.protocol import Step
from draftproof.serve.prefix_cache import PrefixCache
from draftproof.serve.scheduler import Scheduler, Work
from serving import make_decoder, tokenizer

PROMPTS = (
    "the quick brown fox",
    "def add(one, other):",
    "a stitch in time saves nine",
    "the quick brown fox jumps over the dog",
)


class Asked:
    """One request to a scheduler, and what it was told."""

    def __init__(
        self, scheduler: Scheduler, decoder: SpeculativeDecoder, prompt: Any, **params: Any
    ) -> None:
        self.updates: list[Update] = []
        self.cancel = threading.Event()
        request = decoder.request(prompt, SamplingParams(**{"seed": 3, "max_tokens": 24} | params))
        scheduler.add(Work(decoder, request, self.updates.append, self.cancel))

    @property
    def texts(self) -> list[str]:
        done = [update.completion for update in self.updates if update.completion is not None]
        return [each.text for each in sorted(done, key=lambda each: each.index)]

    @property
    def num_cached(self) -> int:
        return next(
            update.completion.num_cached_tokens
            for update in self.updates
            if update.completion is not None
        )


def make_scheduler(
    decoder: SpeculativeDecoder,
    *,
    prefix_bytes: int = 2**24,
    max_num_seqs: int = 8,
    piece: int = 512,
) -> Scheduler:
    measure: Callable[[int], int] = decoder.target.session_bytes  # type: ignore[attr-defined]
    prefixes = PrefixCache(prefix_bytes, measure)
    return Scheduler(decoder, prefixes, max_num_seqs=max_num_seqs, piece=piece)


def run(scheduler: Scheduler) -> int:
    """Until nothing is left; the rounds it took."""
    rounds = 0
    while scheduler.has_unfinished():
        scheduler.step()
        rounds += 1
    return rounds


@pytest.mark.parametrize(
    ("method", "temperature"), [("ngram", 1.0), (None, 1.0), (None, 0.0), ("suffix", 0.7)]
)
@pytest.mark.parametrize("prefix_bytes", [0, 2**24])
def test_a_seed_gives_one_text_alone_and_in_company(
    method: str | None, temperature: float, prefix_bytes: int
) -> None:
    """Float32. Requests join at different rounds, leave at different ones, share beginnings, and
    are read in pieces of 8."""
    decoder = make_decoder(method)
    params = [
        SamplingParams(seed=seed, max_tokens=10 + 4 * seed, temperature=temperature)
        for seed in range(4)
    ]
    alone = [
        decoder.generate(prompt, one).text for prompt, one in zip(PROMPTS, params, strict=True)
    ]
    scheduler = make_scheduler(decoder, prefix_bytes=prefix_bytes, max_num_seqs=3, piece=8)
    asked = []
    for number, prompt in enumerate(PROMPTS):
        limits = {"seed": number, "max_tokens": 10 + 4 * number, "temperature": temperature}
        asked.append(Asked(scheduler, decoder, prompt, **limits))
        scheduler.step()
    run(scheduler)
    assert [one.texts for one in asked] == [[text] for text in alone]
    again = [
        Asked(
            scheduler,
            decoder,
            prompt,
            seed=number,
            max_tokens=10 + 4 * number,
            temperature=temperature,
        )
        for number, prompt in enumerate(PROMPTS)
    ]
    run(scheduler)
    assert [one.texts for one in again] == [[text] for text in alone]
    assert (sum(one.num_cached for one in again) > 0) == (prefix_bytes > 0)


def test_several_texts_of_a_prompt_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, read = make_decoder(), []
    extend = decoder.target.extend_many

    def counted(steps: list[Step]) -> Any:
        read.extend(len(step.tokens) for step in steps)
        return extend(steps)

    wanted = decoder.generate(
        PROMPTS[3] * 3, SamplingParams(seed=3, max_tokens=24, n=4, num_speculative_tokens=0)
    )
    monkeypatch.setattr(decoder.target, "extend_many", counted)
    scheduler = make_scheduler(decoder, prefix_bytes=0)
    asked = Asked(scheduler, decoder, PROMPTS[3] * 3, n=4, num_speculative_tokens=0)
    run(scheduler)
    assert asked.texts == [output.text for output in wanted.outputs]
    prompt = len(tokenizer().encode(PROMPTS[3] * 3))
    # the pending token is read by each, and every text's but its last
    assert sum(read) == prompt + 3 + 4 * 23


@pytest.mark.parametrize("scores", [{}, {"prompt_logprobs": 1}])
def test_a_long_prompt_does_not_stall_the_others(scores: dict[str, int]) -> None:
    """While 300 tokens are read in pieces of 32, a text beside them gets a token or more in every
    round; also when the prompt's own log-probabilities are wanted."""
    decoder = make_decoder()
    scheduler = make_scheduler(decoder, piece=32)
    short = Asked(scheduler, decoder, "the", max_tokens=60, num_speculative_tokens=0)
    scheduler.step()
    long = Asked(scheduler, decoder, [65] * 300, max_tokens=4, **scores)
    before = len(short.updates)
    rounds = 0
    while not long.updates:
        scheduler.step()
        rounds += 1
    assert rounds == 10  # nine pieces of 32, and the round that reads the last twelve
    assert len(short.updates) - before == rounds
    run(scheduler)
    assert long.texts == [decoder.generate([65] * 300, SamplingParams(seed=3, max_tokens=4)).text]


def test_pieces_of_all_prompts_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, sizes = make_decoder(), []
    extend = decoder.target.extend_many
    monkeypatch.setattr(
        decoder.target,
        "extend_many",
        lambda steps: sizes.append(sum(len(s.tokens) for s in steps)) or extend(steps),
    )
    scheduler = make_scheduler(decoder, piece=32)
    asked = [Asked(scheduler, decoder, [60 + number] * 200, max_tokens=2) for number in range(3)]
    scheduler.step()
    scheduler.step()
    assert sizes == [32, 32]
    run(scheduler)
    assert all(one.texts for one in asked)


def test_a_cancelled_request_leaves_within_one_round() -> None:
    """Running, still reading its prompt, and waiting; its memory is free, and the others' text is
    what it was."""
    decoder = make_decoder()
    scheduler = make_scheduler(decoder, max_num_seqs=3, piece=16, prefix_bytes=0)
    stays = Asked(scheduler, decoder, PROMPTS[0])
    writing, reading = Asked(scheduler, decoder, PROMPTS[1]), Asked(scheduler, decoder, [70] * 200)
    waiting = Asked(scheduler, decoder, PROMPTS[2])
    for _ in range(3):
        scheduler.step()
    assert scheduler.num_running == 3 and scheduler.num_waiting == 1
    for gone in (writing, reading, waiting):
        gone.cancel.set()
    scheduler.step()
    assert scheduler.num_running == 1
    scheduler.step()
    assert scheduler.num_waiting == 0
    run(scheduler)
    assert scheduler.num_tokens == 0
    assert stays.texts == [decoder.generate(PROMPTS[0], SamplingParams(seed=3, max_tokens=24)).text]
    assert not waiting.updates


def test_what_fails_for_a_reason_of_its_own_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that runs out on one long prompt ends that request; a fault of the program ends all
    that run, and no more."""
    decoder = make_decoder()
    extend, broken = decoder.target.extend_many, []

    def failing(steps: list[Step]) -> Any:
        if broken:
            raise RuntimeError("a fault")
        if any(len(step.tokens) > 100 for step in steps):
            raise MemoryError
        return extend(steps)

    monkeypatch.setattr(decoder.target, "extend_many", failing)
    scheduler = make_scheduler(decoder, max_num_seqs=2)
    short, long, behind = (
        Asked(scheduler, decoder, prompt) for prompt in (PROMPTS[0], [65] * 200, PROMPTS[2])
    )
    scheduler.step()
    assert long.updates[-1].failure is not None and "memory" in long.updates[-1].failure
    broken.append(True)
    with pytest.raises(RuntimeError):
        scheduler.step()
    assert [one.updates[-1].failure for one in (short, behind)] == [
        "the server failed; its log says why"
    ] * 2
    broken.clear()
    late = Asked(scheduler, decoder, PROMPTS[1])
    run(scheduler)
    assert late.texts == [decoder.generate(PROMPTS[1], SamplingParams(seed=3, max_tokens=24)).text]


def test_draft_lengths_follow_the_number_of_texts() -> None:
    """The plan's schedule: alone four tokens, in company none."""
    schedule = [[1, 1, 4], [2, 8, 0]]
    decoder = make_decoder("ngram", num_speculative_tokens_per_batch_size=schedule)
    drafted = []
    for together in (1, 3):
        scheduler = make_scheduler(decoder)
        asked = [
            Asked(scheduler, decoder, "a b a b a b a b", max_tokens=8, logit_bias={65: 100})
            for _ in range(together)
        ]
        run(scheduler)
        done = [update.completion for one in asked for update in one.updates if update.completion]
        drafted.append(max(len(record.draft_tokens) for each in done for record in each.rounds))
    assert drafted == [4, 0]


@pytest.mark.parametrize(("rule", "together"), [("token", 1), ("match", 3)])
def test_texts_that_would_share_coins_run_one_after_another(rule: str, together: int) -> None:
    """Where draft lengths follow the company; under `match` they shape no text."""
    decoder = make_decoder(
        "ngram", num_speculative_tokens_per_batch_size=[[1, 1, 4], [2, 8, 1]], rule=rule
    )
    scheduler = make_scheduler(decoder)
    asked = [Asked(scheduler, decoder, "a b a b a b", max_tokens=8) for _ in range(3)]
    other = Asked(scheduler, decoder, "a b a b a b", max_tokens=8, seed=4)
    scheduler.step()
    assert scheduler.num_running <= together + 1 and scheduler.num_waiting >= 3 - together
    run(scheduler)
    assert all(len(one.texts) == 1 for one in (*asked, other))


def test_kept_beginnings_stay_within_their_memory() -> None:
    """The least recently used goes first, and what another one begins with goes at once."""
    decoder = make_decoder()
    measure: Callable[[int], int] = decoder.target.session_bytes  # type: ignore[attr-defined]
    cache = PrefixCache(2 * measure(64), measure)

    def keep(token: int, length: int = 40) -> None:
        session = decoder.target.open()
        decoder.target.extend_many([Step(session, [token] * length)])
        cache.put((), session)

    def knows(token: int) -> int:
        copy = cache.find((token,) * 30)
        return 0 if copy is None else copy.length

    keep(1)
    keep(2)
    assert knows(1) == 29 and knows(3) == 0
    keep(3)
    assert [knows(token) for token in (1, 2, 3)] == [29, 0, 29]
    keep(3, 60)
    assert cache.num_tokens == 100 and cache.num_bytes <= 2 * measure(64)
    keep(3, 50)
    assert cache.num_tokens == 100
    cache.clear()
    assert cache.num_bytes == cache.num_tokens == knows(1) == 0
