"""Many prompts at once: every row is its solo run, whatever its neighbours do, and passes are
really shared.

Classes of public reports: text-generation-inference#1411 and #2997 (wrong text in a batch),
transformers#29769 (rows that accept different counts), vllm#6038 (a seed that depends on the
neighbours).
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.errors import UsageError
from tiny import gpt2, llama, word_tokenizer

PROMPTS = [[5, 9, 2], [1, 2, 3, 1, 2], [7, 7, 7, 7, 7, 7, 7, 7, 7], list(range(10, 27)), [40, 3]]


def make(
    method: str, dtype: torch.dtype = torch.float64, family=llama, **config
) -> SpeculativeDecoder:
    target = family(dtype)
    if method in ("ngram", "none"):
        made = SpeculativeDecoder(None, target, speculative_config={"method": method} | config)
    else:
        draft = {"noisy": lambda: family(dtype, seed=1), "same": lambda: family(dtype)}[method]()
        made = SpeculativeDecoder(
            draft, target, speculative_config={"num_speculative_tokens": 4} | config
        )
    made.batch_bytes([[1]])  # what a session takes is found out once, by a pass
    return made


@contextmanager
def watched(model):
    """The sizes of the passes of `model`, and how many of its sessions were open at most."""
    sizes, live, most = [], set(), [0]
    extend_many, open_session = model.extend_many, model.open

    def extend(steps):
        sizes.append(len(steps))
        live.update(id(step.session) for step in steps)
        live.intersection_update(
            {id(session) for session in opened if session.length or id(session) in live}
        )
        most[0] = max(most[0], sum(not closed(session) for session in opened))
        return extend_many(steps)

    opened = []

    def opening():
        opened.append(open_session())
        return opened[-1]

    model.extend_many, model.open = extend, opening
    try:
        yield sizes, most, opened
    finally:
        del model.extend_many, model.open


def closed(session) -> bool:
    return not session._caches


def alone(decoder, prompts, params):
    params = params if isinstance(params, list) else [params] * len(prompts)
    return [decoder.generate(prompt, one) for prompt, one in zip(prompts, params, strict=True)]


def same(batch, solo):
    assert [r.token_ids for r in batch] == [r.token_ids for r in solo]
    assert [r.finish_reason for r in batch] == [r.finish_reason for r in solo]
    for mine, other in zip(batch, solo, strict=True):
        assert [x.draft_tokens for x in mine.rounds] == [x.draft_tokens for x in other.rounds]


@pytest.mark.parametrize("family", [llama, gpt2])
@pytest.mark.parametrize("method", ["none", "ngram", "noisy", "same"])
@pytest.mark.parametrize("batch_size", [2, 5])
def test_greedy_rows_are_their_solo_runs(family, method, batch_size):
    """0%, mixed and 100% acceptance beside one another; gpt2 has room for 32 tokens only."""
    decoder = make(method, family=family)
    params = SamplingParams(temperature=0, max_tokens=14)
    same(decoder.generate(PROMPTS, params, batch_size=batch_size), alone(decoder, PROMPTS, params))


@pytest.mark.parametrize(
    "method, rule",
    [("ngram", None), ("noisy", None), ("noisy", "block"), ("noisy", "match"), ("none", None)],
)
def test_sampled_rows_with_their_own_parameters_and_seeds(method, rule):
    decoder = make(method, **({} if rule is None else {"rule": rule}))
    params = [
        SamplingParams(temperature=1.0, seed=3, max_tokens=12),
        SamplingParams(temperature=0, max_tokens=3),
        SamplingParams(temperature=1.7, top_k=9, seed=3, max_tokens=20, repetition_penalty=1.3),
        SamplingParams(
            temperature=0.7,
            top_p=0.9,
            seed=8,
            max_tokens=9,
            num_speculative_tokens=0 if method != "none" else None,
        ),
        SamplingParams(temperature=1.0, seed=3, max_tokens=12, logprobs=2),
    ]
    batch, solo = decoder.generate(PROMPTS, params, batch_size=3), alone(decoder, PROMPTS, params)
    same(batch, solo)
    for mine, other in zip(batch[4].logprobs, solo[4].logprobs, strict=True):
        assert mine.logprob == pytest.approx(other.logprob, abs=1e-9)


def test_seeded_rows_beside_unseeded_ones():
    """Neighbours without a seed change from call to call; a row with one does not."""
    decoder = make("noisy")
    params = [SamplingParams(max_tokens=10, seed=4 if i == 2 else None) for i in range(5)]
    first, second = (decoder.generate(PROMPTS, params) for _ in range(2))
    assert (
        first[2].token_ids
        == second[2].token_ids
        == decoder.generate(PROMPTS[2], params[2]).token_ids
    )
    assert first[0].seed != second[0].seed
    again = decoder.generate(PROMPTS[0], SamplingParams(max_tokens=10, seed=first[0].seed))
    assert again.token_ids == first[0].token_ids


@pytest.mark.parametrize("method", ["none", "ngram", "same"])
def test_a_row_that_ends_early_makes_room(method):
    decoder = make(method)
    end = decoder.generate(PROMPTS[1], SamplingParams(temperature=0, max_tokens=4)).token_ids[2]
    params = [
        SamplingParams(temperature=0, max_tokens=16, stop_token_ids=[end] if i == 1 else [])
        for i in range(5)
    ]
    solo = alone(decoder, PROMPTS, params)
    with watched(decoder.target) as (sizes, most, opened):
        batch = decoder.generate(PROMPTS, params, batch_size=2)
        assert max(sizes) == most[0] == 2
        assert all(closed(session) for session in opened)
    same(batch, solo)
    assert batch[1].finish_reason == "stop"
    assert len(batch[1].token_ids) <= 3


def test_target_and_draft_passes_are_shared():
    """Five rows of equal length and full acceptance: as many passes of either model as one row
    alone needs."""
    decoder = make("same")
    params = SamplingParams(temperature=0, max_tokens=11)
    prompts = [[token, 9, 2] for token in range(5)]
    counts = {}
    for many in (1, 5):
        with (
            watched(decoder.target) as (target, _, _),
            watched(decoder.drafter.model) as (draft, _, _),
        ):
            decoder.generate(prompts[:many], params, batch_size=5)
            counts[many] = (len(target), len(draft))
            assert set(target) == set(draft) == {many}
    assert counts[1] == counts[5]


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_samples_of_one_prompt_are_a_batch_too(batch_size):
    decoder = make("noisy")
    params = SamplingParams(n=5, seed=11, max_tokens=9)
    whole = decoder.generate(PROMPTS[3], params, batch_size=batch_size)
    streamed = {i: [] for i in range(5)}
    for piece in decoder.stream(PROMPTS[3], params):
        streamed[piece.index] += piece.token_ids
    assert [list(output.token_ids) for output in whole.outputs] == list(streamed.values())
    assert [output.index for output in whole.outputs] == list(range(5))
    assert len({output.token_ids for output in whole.outputs}) == 5


def test_several_prompts_with_several_samples():
    decoder = make("ngram")
    params = SamplingParams(n=3, seed=2, max_tokens=8, prompt_logprobs=1)
    batch, solo = decoder.generate(PROMPTS, params, batch_size=4), alone(decoder, PROMPTS, params)
    assert [[o.token_ids for o in r.outputs] for r in batch] == [
        [o.token_ids for o in r.outputs] for r in solo
    ]
    assert [len(r.prompt_logprobs) for r in batch] == [len(prompt) for prompt in PROMPTS]


def test_the_plain_decoder_has_batches_too():
    plain = make("ngram").plain
    params = SamplingParams(seed=5, max_tokens=10)
    with watched(plain.target) as (sizes, _, _):
        batch = plain.generate(PROMPTS, params, batch_size=5)
    assert len(sizes) == 10
    same(batch, alone(plain, PROMPTS, params))


def test_results_come_as_they_finish_and_closing_frees_all():
    decoder = make("ngram")
    params = [SamplingParams(temperature=0, max_tokens=n) for n in (20, 3, 9, 1, 2)]
    order = [index for index, _ in decoder.as_finished(PROMPTS, params, batch_size=2)]
    assert order[0] == 1
    assert order[-1] == 0 or order.index(0) > 2
    with watched(decoder.target) as (_, _, opened):
        results = decoder.as_finished(PROMPTS, params, batch_size=2)
        next(results)
        results.close()
        assert opened
        assert all(closed(session) for session in opened)


def test_text_in_a_batch():
    words = word_tokenizer()
    decoder = SpeculativeDecoder(
        None, llama(torch.float64), words, speculative_config={"method": "ngram"}
    )
    params = SamplingParams(temperature=0, max_tokens=8)
    batch = decoder.generate(["w1 w2 w3", "w9"], params)
    assert [r.text for r in batch] == [
        decoder.generate(prompt, params).text for prompt in ("w1 w2 w3", "w9")
    ]
    assert all(result.text for result in batch)


def test_bfloat16_rows_part_from_their_solo_runs_at_ties_only():
    """Rows computed together round differently; where a text parts, the two best logits are next to
    one another."""
    decoder = make("ngram", torch.bfloat16)
    params = SamplingParams(temperature=0, max_tokens=24, logprobs=2)
    for mine, other in zip(
        decoder.generate(PROMPTS, params), alone(decoder, PROMPTS, params), strict=True
    ):
        differing = [
            i
            for i, (a, b) in enumerate(zip(mine.token_ids, other.token_ids, strict=True))
            if a != b
        ]
        if differing:
            (_, best), (_, second) = other.logprobs[differing[0]].top
            assert best - second < 0.15


def test_wrong_requests_are_refused_before_any_pass():
    decoder = make("ngram")
    params = SamplingParams(max_tokens=4)
    with watched(decoder.target) as (sizes, _, _):
        with pytest.raises(UsageError, match=r"prompt 1: token 0 of the prompt is 900"):
            decoder.generate([[1], [900]], params)
        with pytest.raises(UsageError, match="list of 1 for 2 prompts"):
            decoder.generate([[1], [2]], [params])
        with pytest.raises(UsageError, match="batch_size is 0"):
            decoder.generate([[1], [2]], params, batch_size=0)
        with pytest.raises(UsageError, match="prompt 1: params is a dict"):
            decoder.generate([[1], [2]], [params, {}])
        with pytest.raises(UsageError, match="prompt 1: logit_bias has token id 900"):
            decoder.as_finished([[1], [2]], [params, SamplingParams(logit_bias={900: 1.0})])
        with pytest.raises(UsageError, match="prompt 1: allowed_token_ids, suppress_tokens"):
            decoder.as_finished(
                [[1], [2]], [params, SamplingParams(allowed_token_ids=[3], suppress_tokens=[3])]
            )
        with pytest.raises(UsageError, match="several prompts are a list"):
            decoder.as_finished("w1 w2", params)
    assert sizes == []
    assert decoder.generate([[1]], params)[0].token_ids


def test_a_draft_length_that_a_tree_has_not_is_refused_before_any_pass():
    decoder = make("ngram", tree="2,1")
    with (
        watched(decoder.target) as (sizes, _, _),
        pytest.raises(UsageError, match="prompt 1: num_speculative_tokens is 5"),
    ):
        decoder.as_finished(
            [[1], [2]], [SamplingParams(), SamplingParams(num_speculative_tokens=5)]
        )
    assert sizes == []


def test_prompts_may_be_arrays():
    decoder = make("ngram")
    params = SamplingParams(temperature=0, max_tokens=6)
    arrays = [torch.tensor([1, 2, 3]), np.array([4, 5])]
    assert [r.token_ids for r in decoder.generate(arrays, params)] == [
        decoder.generate(array.tolist(), params).token_ids for array in arrays
    ]


def test_a_schedule_never_drafts_more_than_a_row_asked_for():
    decoder = make("same", num_speculative_tokens_per_batch_size=[[1, 8, 3]])
    params = [SamplingParams(temperature=0, max_tokens=9, num_speculative_tokens=n) for n in (1, 3)]
    short, long = decoder.generate(PROMPTS[:2], params)
    assert max(len(record.draft_tokens) for record in short.rounds) == 1
    assert max(len(record.draft_tokens) for record in long.rounds) == 3


def test_models_without_shared_passes_run_the_same_rows():
    laws = [[0.6 if j == (i + 1) % 8 else 0.4 / 7 for j in range(8)] for i in range(8)]
    decoder = SpeculativeDecoder(
        TableModel(laws), TableModel(laws), speculative_config={"num_speculative_tokens": 3}
    )
    params = SamplingParams(seed=1, max_tokens=12)
    prompts = [[0, 1], [3], [5, 5, 5]]
    same(decoder.generate(prompts, params, batch_size=2), alone(decoder, prompts, params))
