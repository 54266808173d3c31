"""Use under stress: threads, cancelled and closed streams, memory that runs out, and a thousand
short generations.

Classes of vllm#15506 (memory grows while drafts are off), am17an/llama.cpp#20 (a client that left
kept its slot) and of memory that runs out in the middle of a batch.
"""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.failures import explain, is_memory_error
from draftproof.errors import InvalidLogitsError, UsageError
from tiny import llama

PROMPTS = [[5, 9, 2], [1, 2, 3, 1, 2], [7] * 9, list(range(10, 27))]
NO_MEMORY = {
    "the host's": lambda: MemoryError(),
    "torch's on a CPU": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"
    ),
    "CUDA's": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
}


def make(method: str = "ngram", **config) -> SpeculativeDecoder:
    if method == "ngram":
        made = SpeculativeDecoder(
            None, llama(torch.float64), speculative_config={"method": "ngram"} | config
        )
    else:
        draft = llama(torch.float64, seed=1)
        made = SpeculativeDecoder(
            draft, llama(torch.float64), speculative_config={"num_speculative_tokens": 3} | config
        )
    made.batch_bytes([[1]])
    return made


def failing(model, unlucky, error):
    """Let every pass of `model` fail that holds a session which has read, or reads, the tokens
    `unlucky` first."""
    extend_many = model.extend_many

    def extend(steps):
        for step in steps:
            if [*step.session.tokens, *step.tokens][
                : len(unlucky)
            ] == unlucky and step.session.length >= len(unlucky):
                raise error()
        return extend_many(steps)

    model.extend_many = extend


@pytest.mark.parametrize("error", NO_MEMORY.values(), ids=NO_MEMORY)
@pytest.mark.parametrize("where", ["target", "draft"])
def test_a_row_that_runs_out_of_memory_fails_alone(where, error):
    decoder = make("draft_model")
    params = SamplingParams(temperature=0, max_tokens=12)
    solo = [decoder.generate(prompt, params).token_ids for prompt in PROMPTS]
    failing(decoder.target if where == "target" else decoder.drafter.model, PROMPTS[2], error)
    results = decoder.generate(PROMPTS, params, batch_size=3)
    failed = results[2]
    assert failed.finish_reason == "error"
    assert failed.error.startswith("memory ran out")
    assert failed.token_ids == solo[2][: len(failed.token_ids)]
    for index in (0, 1, 3):
        assert (results[index].token_ids, results[index].error) == (solo[index], None)


def test_logits_that_are_no_numbers_end_their_row_only():
    def laws(prefix):
        row = [0.25] * 4 if len(prefix) < 5 or prefix[0] != 3 else [float("nan")] * 4
        return row

    decoder = SpeculativeDecoder(
        None, TableModel(laws, vocab_size=4), speculative_config={"method": "ngram"}
    )
    params = SamplingParams(seed=1, max_tokens=9)
    results = decoder.generate([[0], [3], [1]], params)
    assert [result.finish_reason for result in results] == ["length", "error", "length"]
    assert "NaN" in results[1].error
    with pytest.raises(InvalidLogitsError):
        decoder.generate([3], params)


def test_other_errors_stop_everything_and_leave_nothing_open():
    decoder = make()
    opened, open_session = [], decoder.target.open
    decoder.target.open = lambda: opened.append(open_session()) or opened[-1]
    failing(decoder.target, PROMPTS[0], lambda: ZeroDivisionError("a fault of the program"))
    with pytest.raises(ZeroDivisionError):
        decoder.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=12))
    assert opened
    assert not any(session._caches for session in opened)


def test_which_errors_are_memory():
    assert all(is_memory_error(error()) for error in NO_MEMORY.values())
    assert not is_memory_error(RuntimeError("shapes do not match"))
    assert explain(UsageError("first line\nsecond")) == "first line"


def test_two_threads_on_one_decoder():
    decoder = make("draft_model")
    params = SamplingParams(seed=3, max_tokens=20)
    expected = [decoder.generate(prompt, params).token_ids for prompt in PROMPTS]
    found: dict[int, list[object]] = {}
    inside: list[int] = []
    most = [0]

    def enter(*_):
        inside.append(1)
        most[0] = max(most[0], len(inside))
        time.sleep(0.001)  # lets the other thread run, and so begin a pass of its own if it may

    def leave(*_):
        inside.pop()

    decoder.target.module.register_forward_pre_hook(enter)
    decoder.target.module.register_forward_hook(leave)

    def work(number):
        found[number] = [decoder.generate(prompt, params).token_ids for prompt in PROMPTS * 3]
        found[number].append([r.token_ids for r in decoder.generate(PROMPTS, params)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[0], found[1]] == [[*expected * 3, expected]] * 2
    assert most == [1], "passes of one model take turns"


@pytest.mark.parametrize("when", [3, 4])
@pytest.mark.parametrize("many", [False, True])
def test_cancelling_from_another_thread_takes_one_round(many, when):
    """The thread that cancels waits for a pass to begin; no pass begins after the one that was
    running, whichever that is."""
    decoder = make()
    cancel, running, passes = threading.Event(), threading.Event(), []
    extend_many = decoder.target.extend_many

    def extend(steps):
        passes.append(cancel.is_set())
        if len(passes) == when:
            running.set()
            assert cancel.wait(30)
        return extend_many(steps)

    decoder.target.extend_many = extend
    canceller = threading.Thread(target=lambda: (running.wait(30), cancel.set()))
    canceller.start()
    params = SamplingParams(temperature=0, max_tokens=60)
    got = decoder.generate(PROMPTS if many else PROMPTS[0], params, cancel=cancel)
    canceller.join()
    assert len(passes) == when
    assert not any(passes)
    for result in got if many else [got]:
        assert result.finish_reason == "abort"
        assert 0 < len(result.token_ids) < 60
    decoder.target.extend_many = extend_many
    whole = decoder.generate(PROMPTS[0], params).token_ids
    assert (got[0] if many else got).token_ids == whole[: len((got[0] if many else got).token_ids)]


def test_a_cancelled_stream_says_so_in_its_last_piece():
    cancel = threading.Event()
    stream = make().stream(PROMPTS[0], SamplingParams(temperature=0, max_tokens=60), cancel=cancel)
    pieces = [next(stream)]
    cancel.set()
    pieces += list(stream)
    assert pieces[-1].finish_reason == "abort"
    assert [piece.finish_reason for piece in pieces[:-1]] == [None] * (len(pieces) - 1)


def test_ten_closed_streams_leave_nothing_behind():
    decoder = make("draft_model")
    params = SamplingParams(temperature=0, max_tokens=60)
    whole = decoder.generate(PROMPTS[0], params).token_ids
    gc.collect()
    threads, tensors = threading.active_count(), live_tensors()
    for _ in range(10):
        stream = decoder.stream(PROMPTS[0], params)
        next(stream)
        stream.close()
        del stream
    gc.collect()
    assert (threading.active_count(), live_tensors()) == (threads, tensors)
    assert decoder.generate(PROMPTS[0], params).token_ids == whole


def live_tensors() -> int:
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def test_a_thousand_short_generations_do_not_grow():
    """Mixed lengths and parameters, half of them without drafts, alone and in batches."""
    decoder = make("ngram", num_speculative_tokens=4)
    params = [
        SamplingParams(
            temperature=i % 2,
            seed=i,
            max_tokens=1 + i % 4,
            num_speculative_tokens=0 if i % 4 < 2 else None,
        )
        for i in range(20)
    ]
    prompts = [[1 + i % 7] * (1 + i % 9) for i in range(20)]

    def run(times):
        for _ in range(times):
            decoder.generate(prompts, params, batch_size=5)
        for prompt, one in zip(prompts, params, strict=True):
            decoder.generate(prompt, one)

    run(1)
    gc.collect()
    tensors = live_tensors()
    tracemalloc.start()
    try:
        run(5)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        run(42)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert live_tensors() == tensors
    assert grown < 100_000


def test_a_schedule_sets_the_length_by_batch_size_and_says_so():
    decoder = make(
        "draft_model", num_speculative_tokens_per_batch_size=[[1, 1, 3], [2, 3, 1], [4, 8, 0]]
    )
    params = SamplingParams(temperature=0, max_tokens=10)
    four = decoder.generate(PROMPTS, params)
    assert all(result.stats.num_draft_tokens == 0 for result in four)
    assert (
        "no drafts at batch size 4, as num_speculative_tokens_per_batch_size says"
        in four[0].stats.notes
    )
    two = decoder.generate(PROMPTS[:2], params)
    assert {len(record.draft_tokens) for record in two[0].rounds[:2]} == {1}
    one = decoder.generate(PROMPTS[0], params)
    assert max(len(record.draft_tokens) for record in one.rounds) == 3
    assert one.stats.notes == ()
    assert [r.token_ids for r in four[:2]] == [r.token_ids for r in two]
    assert one.token_ids == two[0].token_ids


def test_rows_that_leave_bring_the_drafts_back():
    """After falling back to one sequence, acceptance is what it is alone: the draft model reads
    what it missed."""
    draft = llama(torch.float64)
    schedule = {"num_speculative_tokens_per_batch_size": [[1, 1, 3], [2, 8, 0]]}
    decoder = SpeculativeDecoder(draft, llama(torch.float64), speculative_config=schedule)
    params = [
        SamplingParams(temperature=0, max_tokens=40),
        SamplingParams(temperature=0, max_tokens=6),
    ]
    result = decoder.generate(PROMPTS[:2], params)[0]
    drafted = [record for record in result.rounds if record.draft_tokens]
    assert len(drafted) > 5
    assert all(record.num_accepted_tokens == len(record.draft_tokens) for record in drafted[:-1])
