"""A seed replays a run; with `match` it even gives plain decoding's text. Nothing carries over from
one call to the next."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from tiny import llama


def decoder(method: str = "noisy", **config) -> SpeculativeDecoder:
    module = llama(torch.float32)
    if method == "ngram":
        return SpeculativeDecoder(None, module, speculative_config={"method": "ngram"} | config)
    if method == "tree":
        method, config = "noisy", {"model": "noisy", "tree": "2,2,1"} | config
    draft = {
        "noisy": lambda: llama(torch.float32, seed=0, num_hidden_layers=1),
        "same": lambda: module,
    }[method]()
    return SpeculativeDecoder(draft, module, speculative_config=config)


PROMPT = [5, 9, 2, 5, 9]
HOT = {"temperature": 2.0, "max_tokens": 10}


@pytest.mark.parametrize("method", ["ngram", "noisy", "tree"])
def test_same_seed_same_text_twice_and_streamed(method):
    """vllm#6038: acceptance draws came from a global generator."""
    made = decoder(method)
    first = made.generate(PROMPT, SamplingParams(seed=42, **HOT)).token_ids
    torch.manual_seed(999)
    assert made.generate(PROMPT, SamplingParams(seed=42, **HOT)).token_ids == first
    assert (
        tuple(
            t
            for piece in made.stream(PROMPT, SamplingParams(seed=42, **HOT))
            for t in piece.token_ids
        )
        == first
    )
    assert made.generate(PROMPT, SamplingParams(seed=43, **HOT)).token_ids != first


def test_same_seed_same_text_in_a_new_process():
    program = (
        "import sys; sys.path.insert(0, 'tests'); sys.path.insert(0, 'tests/decode')\n"
        "import json, test_seeds as t\n"
        "from draftproof import SamplingParams\n"
        "print(json.dumps(t.decoder().generate(t.PROMPT, SamplingParams(seed=42, "
        "**t.HOT)).token_ids))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    here = decoder().generate(PROMPT, SamplingParams(seed=42, **HOT)).token_ids
    assert tuple(json.loads(out.stdout)) == here


def test_clocks_that_disagree_give_one_text():
    """Three processes, one whose clock goes a step a look and two whose clocks run wild, and the
    method that chooses between drafters. With costs by these clocks the first would draft, and the
    others would not."""
    program = (
        "import random, sys, time; sys.path.insert(0, 'tests'); sys.path.insert(0, "
        "'tests/decode')\n"
        "clock, now = random.Random(int(sys.argv[1])), [0.0]\n"
        "def wild():\n"
        "    now[0] += 10 ** (int(sys.argv[1]) * clock.uniform(-2, 2))\n"
        "    return now[0]\n"
        "time.perf_counter = time.monotonic = time.process_time = wild\n"
        "import json, test_seeds as t\n"
        "from draftproof import SamplingParams\n"
        "draft = t.llama(t.torch.float32, seed=0, num_hidden_layers=1)\n"
        "config = {'method': 'auto', 'drafters': ['suffix', 'draft_model'], 'model': "
        "'noisy', 'rule': 'token'}\n"
        "made = t.SpeculativeDecoder(draft, t.llama(t.torch.float32), speculative_config=config)\n"
        "print(json.dumps([made.generate(t.PROMPT, SamplingParams(seed=seed, "
        "max_tokens=40)).token_ids for seed in range(4)]))"
    )
    command = [sys.executable, "-c", program]
    running = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    texts = [process.communicate()[0] for process in running]
    assert texts[0] == texts[1] == texts[2]
    assert len({tuple(text) for text in json.loads(texts[0])}) == 4


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
@pytest.mark.parametrize("method", ["ngram", "noisy", "same"])
def test_match_gives_plain_decodings_text_for_a_seed(method, length, temperature):
    made = decoder(method, rule="match", num_speculative_tokens=length)
    params = SamplingParams(temperature=temperature, max_tokens=40, seed=7)
    assert made.generate(PROMPT, params).token_ids == made.plain.generate(PROMPT, params).token_ids


def test_an_unseeded_result_says_which_seed_replays_it():
    made = decoder()
    result = made.generate(PROMPT, SamplingParams(**HOT))
    assert (
        made.generate(PROMPT, SamplingParams(seed=result.seed, **HOT)).token_ids == result.token_ids
    )
    assert made.generate(PROMPT, SamplingParams(**HOT)).seed != result.seed


def test_samples_of_one_prompt_differ_and_each_is_its_own_stream():
    result = decoder(rule="match").generate(PROMPT, SamplingParams(seed=1, n=4, **HOT))
    texts = [output.token_ids for output in result.outputs]
    assert len(set(texts)) == 4
    assert (
        decoder(rule="match")
        .plain.generate(PROMPT, SamplingParams(seed=1, n=4, **HOT))
        .outputs[3]
        .token_ids
        == texts[3]
    )


def test_nothing_carries_over_to_the_next_call():
    """transformers#28759, llama.cpp#27852: an adapted length, a store of n-grams, a drafter's cache
    outlived the request."""
    for method in ("ngram", "noisy"):
        made, fresh = decoder(method), decoder(method)
        params = SamplingParams(temperature=0.8, max_tokens=30, seed=3)
        made.generate([5, 6] * 40, params)
        again, alone = made.generate(PROMPT, params), fresh.generate(PROMPT, params)
        assert [(r.tokens, r.draft_tokens) for r in again.rounds] == [
            (r.tokens, r.draft_tokens) for r in alone.rounds
        ]


def test_configs_of_target_and_draft_are_left_alone():
    target, draft = llama(torch.float32), llama(torch.float32, num_hidden_layers=1)
    before = [(m.config.to_dict(), m.generation_config.to_dict()) for m in (target, draft)]
    SpeculativeDecoder(draft, target).generate(PROMPT, SamplingParams(max_tokens=10))
    assert before == [(m.config.to_dict(), m.generation_config.to_dict()) for m in (target, draft)]


def test_length_and_switch_per_call():
    made = decoder(num_speculative_tokens=3)
    params = {"temperature": 0, "max_tokens": 20}
    assert (
        max(len(r.draft_tokens) for r in made.generate(PROMPT, SamplingParams(**params)).rounds)
        == 3
    )
    longer = made.generate(PROMPT, SamplingParams(num_speculative_tokens=6, **params))
    assert max(len(r.draft_tokens) for r in longer.rounds) == 6
    off = made.generate(PROMPT, SamplingParams(num_speculative_tokens=0, **params))
    assert off.stats.num_drafts == 0
    assert off.stats.method == "none"
    assert set(off.outputs[0].origins) == {"plain"}
    assert off.token_ids == longer.token_ids


def test_a_closed_stream_leaves_the_decoder_usable():
    made = decoder(rule="match")
    params = SamplingParams(max_tokens=40, seed=5)
    whole = made.generate(PROMPT, params).token_ids
    stream = made.stream(PROMPT, params)
    next(stream)
    stream.close()
    assert made.generate(PROMPT, params).token_ids == whole


def test_an_interrupt_in_a_forward_pass_leaves_the_decoder_usable(monkeypatch):
    made = decoder(rule="match")
    params = SamplingParams(max_tokens=40, seed=5)
    whole = made.generate(PROMPT, params).token_ids
    forward, calls = made.target.extend_many, []

    def interrupted(steps):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return forward(steps)

    monkeypatch.setattr(made.target, "extend_many", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.generate(PROMPT, params)
    assert made.generate(PROMPT, params).token_ids == whole


@pytest.mark.parametrize("rule", ["token", "match"])
def test_prompts_of_a_list_share_no_coins_and_each_is_what_it_is_alone(rule):
    """One seed for all: copies of a prompt differ, the first is its text alone, and each replays by
    the seed it reports."""
    made, params = decoder(rule=rule), SamplingParams(seed=11, **HOT)
    prompts = [PROMPT, [7, 7, 3], PROMPT, PROMPT, [7, 7, 3], PROMPT, PROMPT, PROMPT]
    together = made.generate(prompts, params)
    assert [result.seed for result in together[:2]] == [11, 11]
    assert (
        len(
            {(tuple(prompt), result.seed) for prompt, result in zip(prompts, together, strict=True)}
        )
        == 8
    )
    assert (
        len(
            {
                (tuple(prompt), result.token_ids)
                for prompt, result in zip(prompts, together, strict=True)
            }
        )
        == 8
    )
    for prompt, result in zip(prompts, together, strict=True):
        assert (
            made.generate(prompt, SamplingParams(seed=result.seed, **HOT)).token_ids
            == result.token_ids
        )
    plain = made.plain.generate(prompts, params)
    if rule == "match":
        assert [result.token_ids for result in plain] == [result.token_ids for result in together]


def test_a_copys_seed_that_another_request_was_given_is_passed_over():
    from draftproof.core.chance import copy_seed
    from draftproof.decode.request import GenerationRequest
    from draftproof.decode.seeds import with_seeds_of_their_own

    taken = SamplingParams(seed=copy_seed(5, 1))
    found = with_seeds_of_their_own(
        [
            GenerationRequest((1,), taken),
            *[GenerationRequest((1,), SamplingParams(seed=5)) for _ in range(2)],
            GenerationRequest((2,), taken),
        ]
    )
    assert [request.seed for request in found] == [taken.seed, 5, copy_seed(5, 2), taken.seed]


def test_unseeded_requests_draw_fifty_three_bits():
    """As many as JSON keeps everywhere. Each of 64 seeds is below 2^52 with probability 1/2: all of
    them in one run in 2^64."""
    made = decoder(rule="match").plain
    seeds = [made.request(PROMPT, SamplingParams(**HOT)).seed for _ in range(64)]
    assert len(set(seeds)) == 64 and max(seeds) < 2**53
    assert any(seed >> 52 for seed in seeds) and any(seed & 1 for seed in seeds)
