"""The engine: requests come and go between rounds, each text is what it is alone, and what ends
takes nothing with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.pipeline import LawPipeline
from draftproof.decode import sequences
from draftproof.decode.engine import Engine
from draftproof.decode.result import Result, Update
from draftproof.drafters.ngram import NGram
from draftproof.errors import UsageError
from tiny import llama, word_tokenizer

PROMPTS = [[5, 9, 2], [1, 2, 3, 1, 2], [7, 7, 7, 7], [5, 9, 2]]
LAWS = [[0.6 if j == (i + 1) % 8 else 0.4 / 7 for j in range(8)] for i in range(8)]
CONFIGS: list[dict[str, Any]] = [
    {"method": "ngram"},
    {"method": "suffix", "rule": "match"},
    {"method": "none"},
]


def decoder(target: Any = None, **config: Any) -> SpeculativeDecoder:
    settings = {"method": "ngram"} | config
    return SpeculativeDecoder(
        None, llama(torch.float64) if target is None else target, speculative_config=settings
    )


def finish(engine: Engine) -> dict[int, Result]:
    """Step until nothing is left."""
    results: dict[int, Result] = {}
    while engine.has_unfinished_requests():
        results |= {output.request_id: output.result for output in engine.step()}
    return results


class Counted(TableModel):
    """A table that knows its open sessions and the tokens it reads; `fork` can be taken away."""

    forks = True

    def __init__(self) -> None:
        super().__init__(LAWS)
        self.live: set[int] = set()
        self.read = 0

    def open(self) -> Any:
        session = super().open()
        close, kind = session.close, type(session)
        forks = self.forks

        class Watched(kind):  # type: ignore[misc, valid-type]
            can_fork = forks

        session.__class__ = Watched
        self.live.add(id(session))

        def closing() -> None:
            self.live.discard(id(session))
            close()

        session.close = closing
        return session

    def extend_many(self, steps: Any) -> Any:
        self.read += sum(len(step.tokens) for step in steps)
        return super().extend_many(steps)


def test_requests_that_join_between_rounds_are_what_they_are_alone() -> None:
    """Three ways to draft over one target, one request more a step, two texts at a time."""
    target = decoder().target
    made = [decoder(target, **config) for config in CONFIGS]
    params = [
        SamplingParams(seed=seed, max_tokens=6 + 3 * seed, n=1 + seed % 2) for seed in range(4)
    ]
    alone = [made[i % 3].generate(prompt, params[i]) for i, prompt in enumerate(PROMPTS)]
    engine, results = Engine(target, max_num_seqs=2), dict[int, Result]()
    for number, prompt in enumerate(PROMPTS):
        one = made[number % 3]
        assert (
            engine.add_request(one.request(prompt, params[number]), speculation=one.speculation)
            == number
        )
        results |= {output.request_id: output.result for output in engine.step()}
        assert engine.num_running <= 2
    results |= finish(engine)
    for number, whole in enumerate(alone):
        assert [output.token_ids for output in results[number].outputs] == [
            output.token_ids for output in whole.outputs
        ]
        assert (
            results[number].stats.method == whole.stats.method
            and results[number].seed == whole.seed
        )


def test_updates_are_the_text_as_it_comes_and_end_with_the_whole() -> None:
    """Stop strings are held back, log-probabilities come with their tokens, and each text ends
    once."""
    tokenizer = word_tokenizer(64)
    made = SpeculativeDecoder(
        None, llama(torch.float64), tokenizer, speculative_config={"method": "ngram"}
    )
    plain = made.generate("w1 w2 w1 w2", SamplingParams(seed=1, max_tokens=16))
    stop = plain.text.split()[8]
    engine, heard = made.engine(4), list[Update]()
    params = SamplingParams(seed=1, max_tokens=16, n=2, stop=[stop], logprobs=1, prompt_logprobs=0)
    engine.add_request(made.request("w1 w2 w1 w2", params), on_update=heard.append)
    (result,) = finish(engine).values()
    for output in result.outputs:
        mine = [update for update in heard if update.index == output.index]
        assert "".join(update.text for update in mine) == output.text and stop not in output.text
        assert tuple(token for update in mine for token in update.token_ids) == output.token_ids
        assert tuple(one for update in mine for one in update.logprobs or ()) == output.logprobs
        assert [update.completion for update in mine if update.completion] == [output] and mine[
            -1
        ].completion is output
    assert [update.prompt_logprobs for update in heard if update.prompt_logprobs] == [
        result.prompt_logprobs
    ]


def test_an_aborted_request_is_gone_at_once_and_no_other_notices() -> None:
    """One that runs, and one whose second text waits."""
    made = decoder(Counted())
    wanted = made.generate([1, 2], SamplingParams(seed=3, max_tokens=12)).token_ids
    target, heard = made.target, list[Update]()
    engine = made.engine(3)
    stays = engine.add_request(made.request([1, 2], SamplingParams(seed=3, max_tokens=12)))
    goes = engine.add_request(
        made.request([3, 4], SamplingParams(seed=3, max_tokens=12, n=3)), on_update=heard.append
    )
    engine.step()
    told = len(heard)
    engine.abort_request(goes)
    engine.abort_request(goes)
    assert not engine.is_unfinished(goes) and engine.is_unfinished(stays)
    assert (engine.num_running, engine.num_waiting, len(target.live)) == (1, 0, 1)  # type: ignore[attr-defined]
    results = finish(engine)
    assert len(heard) == told and set(results) == {stays} and results[stays].token_ids == wanted
    engine.close()
    assert not target.live  # type: ignore[attr-defined]


def test_a_request_that_is_cancelled_while_it_waits_is_never_opened() -> None:
    class Set:
        def is_set(self) -> bool:
            return True

    made = decoder(Counted())
    engine, heard = made.engine(1), list[Update]()
    engine.add_request(
        made.request([1], SamplingParams(max_tokens=5, n=2)), cancel=Set(), on_update=heard.append
    )
    (output,) = engine.step()
    assert [each.finish_reason for each in output.result.outputs] == [
        "abort"
    ] * 2 and output.error is None
    assert [piece.finish_reason for update in heard for piece in update.pieces] == ["abort"] * 2
    assert made.target.read == 0 and not engine.has_unfinished_requests()  # type: ignore[attr-defined]


class Failing(NGram):
    """A drafter that cannot be opened for a prompt of one token."""

    error: Callable[[], Exception] = MemoryError

    def open(self, request: Any) -> Any:
        if len(request.prompt) == 1:
            raise self.error()
        return super().open(request)


def test_a_drafter_that_finds_no_memory_fails_its_own_text() -> None:
    made = SpeculativeDecoder(Failing(3, 1), Counted())
    params = SamplingParams(seed=2, max_tokens=6)
    wanted = made.generate([1, 2], params).token_ids
    failed, fine = made.generate([[1], [1, 2]], params)
    assert (
        failed.finish_reason == "error"
        and "memory ran out" in (failed.error or "")
        and failed.token_ids == ()
    )
    assert fine.token_ids == wanted
    with pytest.raises(MemoryError):
        made.generate([1], params)
    assert not made.target.live  # type: ignore[attr-defined]


def test_a_fault_ends_what_ran_and_leaves_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    made = decoder(Counted())
    wanted = made.generate([3, 4], SamplingParams(seed=1, max_tokens=6)).token_ids
    engine = made.engine(1)
    ran = engine.add_request(made.request([1, 2], SamplingParams(seed=1, max_tokens=6, n=2)))
    waits = engine.add_request(made.request([3, 4], SamplingParams(seed=1, max_tokens=6)))
    with monkeypatch.context() as patched:
        patched.setattr(made.target, "extend_many", lambda steps: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    assert not engine.is_unfinished(ran) and not made.target.live  # type: ignore[attr-defined]
    assert finish(engine)[waits].token_ids == wanted


@pytest.mark.parametrize("forks", [True, False])
@pytest.mark.parametrize("max_num_seqs", [1, 3])
def test_texts_of_one_prompt_read_it_once(forks: bool, max_num_seqs: int) -> None:
    """Side by side by copies of the first one's session; one after another by going on with it,
    where it cannot be copied."""
    target = Counted()
    target.forks = forks
    made, prompt = decoder(target, rule="match"), [1, 2, 3, 4, 5, 6, 7, 0] * 4
    params = SamplingParams(seed=1, max_tokens=1, n=3)
    engine = made.engine(max_num_seqs)
    engine.add_request(made.request(prompt, params))
    (result,) = finish(engine).values()
    plain = made.plain.generate(prompt, params)
    assert [output.token_ids for output in result.outputs] == [
        output.token_ids for output in plain.outputs
    ]
    cached = [output.num_cached_tokens for output in result.outputs]
    shares = forks or max_num_seqs == 1
    assert cached[0] == 0 and cached[-1] == (len(prompt) - 1 if shares else 0)
    assert (engine.num_tokens, target.live) == (0, set())


def test_a_text_makes_its_laws_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its drafter are a view of them; checking a request makes none."""
    made, laws = decoder(), list[LawPipeline]()

    class Seen(LawPipeline):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            laws.append(self)

    monkeypatch.setattr(sequences, "LawPipeline", Seen)
    request = made.request([1, 2], SamplingParams(max_tokens=4, seed=0, n=2, frequency_penalty=0.5))
    assert not laws
    made.engine(2).generate(request)
    assert len(laws) == 2
    with pytest.raises(UsageError, match="leave no token"):
        made.request(
            [1, 2], SamplingParams(allowed_token_ids=[1], suppress_tokens=[1], max_tokens=2)
        )
