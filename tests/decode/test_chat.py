"""Chats: a turn reads only what is new, and says what a cold run says, whatever became of the
earlier text.

Class of llama.cpp#28049: what was accepted behind the end token stayed in the cache, and the next
turn read everything again."""

from __future__ import annotations

import threading

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.history import common_prefix
from draftproof.drafters.ngram import NGram
from draftproof.errors import UsageError
from tiny import llama, word_tokenizer

TEMPLATE = (
    "{% for m in messages %}{{ 'w60 ' if m.role == 'user' else 'w61 ' if m.role == "
    "'assistant' else 'w62 ' }}"
    "{{ m.content }}{{ ' w63 ' }}{% endfor %}{% if add_generation_prompt %}{{ 'w61' }}{% endif %}"
)
LAST_ONLY = TEMPLATE.replace(
    "{{ m.content }}", "{{ m.content if loop.last or m.role != 'assistant' else m.content[:8] }}"
)
"""Shortens earlier answers, as templates do that leave out earlier reasoning."""

QUESTIONS = ["w1 w2 w3", "w4 w5", "w1 w2 w9 w8", "w7", "w3 w3 w3"]


def make(method: str = "noisy", template: str = TEMPLATE, **config) -> SpeculativeDecoder:
    """End token 63, which also closes a message, as in most chat templates."""
    words = word_tokenizer()
    words.chat_template = template
    target = llama(torch.float64, eos_token_id=63, max_position_embeddings=512)
    if method in ("ngram", "none"):
        return SpeculativeDecoder(
            None, target, words, speculative_config={"method": method} | config
        )
    draft = llama(torch.float64, seed=0 if method == "same" else 1, max_position_embeddings=512)
    return SpeculativeDecoder(
        draft, target, words, speculative_config={"num_speculative_tokens": 4} | config
    )


def unread(result) -> int:
    return len(result.prompt_token_ids) - result.num_cached_tokens


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", ["none", "ngram", "noisy", "same"])
def test_five_turns_read_only_what_is_new(method, temperature):
    """Beyond a question's words: the answer's last token, the end mark, and the marks of two
    turns."""
    decoder = make(method)
    # w0 is no text
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=12, suppress_tokens=[0])
    chat = decoder.chat(system="w20 w21")
    for number, question in enumerate(QUESTIONS):
        history = [*chat.messages, {"role": "user", "content": question}]
        result = chat.send(question, params)
        cold = decoder.generate(history, params)
        assert result.token_ids == cold.token_ids
        assert [r.draft_tokens for r in result.rounds] == [r.draft_tokens for r in cold.rounds]
        assert result.text == cold.text == chat.messages[-1]["content"]
        assert cold.num_cached_tokens == 0
        assert number == 0 or unread(result) <= len(question.split()) + 5
        assert chat.num_tokens <= len(result.prompt_token_ids) + len(result.token_ids)
    assert len(chat.messages) == 11


def test_an_answer_that_ended_inside_a_block_leaves_nothing_behind_it():
    decoder = make("same", num_speculative_tokens=8)
    first = decoder.generate(
        [{"role": "user", "content": "w1 w2"}], SamplingParams(temperature=0, max_tokens=30)
    )
    end = first.token_ids[5]
    chat = decoder.chat()
    params = SamplingParams(
        temperature=0, max_tokens=30, stop_token_ids=[end], include_stop_str_in_output=True
    )
    turn = chat.send("w1 w2", params)
    assert turn.finish_reason == "stop"
    assert chat.num_tokens <= len(turn.prompt_token_ids) + len(turn.token_ids)
    assert unread(chat.send("w3 w4 w5", params)) <= 3 + 5


@pytest.mark.parametrize("method", ["ngram", "noisy"])
def test_edited_history_goes_back_to_the_common_prefix(method):
    decoder = make(method)
    params = SamplingParams(temperature=0, max_tokens=10)
    chat = decoder.chat()
    for question in QUESTIONS[:3]:
        chat.send(question, params)
    chat.messages[2]["content"] = "w4 w40"
    history = [*chat.messages, {"role": "user", "content": "w2"}]
    edited = chat.send("w2", params)
    assert edited.token_ids == decoder.generate(history, params).token_ids
    kept = common_prefix(
        decoder.generate(history, params).prompt_token_ids,
        edited.prompt_token_ids[: edited.num_cached_tokens],
    )
    assert 0 < edited.num_cached_tokens == kept < len(edited.prompt_token_ids) // 2 + 10
    chat.undo()
    chat.undo()
    assert chat.messages[-1] == {"role": "assistant", "content": chat.messages[-1]["content"]}
    assert len(chat.messages) == 4
    again = chat.send("w2", params)
    assert (
        again.token_ids
        == decoder.generate(
            [*chat.messages[:4], {"role": "user", "content": "w2"}], params
        ).token_ids
    )
    chat.reset()
    assert chat.messages == []
    assert (
        chat.send("w1", params).token_ids
        == decoder.generate([{"role": "user", "content": "w1"}], params).token_ids
    )


@pytest.mark.parametrize("method", ["ngram", "noisy"])
def test_a_template_that_renders_earlier_text_anew(method):
    decoder = make(method, LAST_ONLY)
    params = SamplingParams(seed=5, max_tokens=12)
    chat = decoder.chat()
    for question in QUESTIONS:
        history = [*chat.messages, {"role": "user", "content": question}]
        assert chat.send(question, params).token_ids == decoder.generate(history, params).token_ids


def test_the_draft_model_reads_only_what_is_new_too():
    decoder = make("noisy")
    read = []
    extend_many = decoder.drafter.model.extend_many
    decoder.drafter.model.extend_many = lambda steps: (
        read.extend(len(step.tokens) for step in steps),
        extend_many(steps),
    )[1]
    chat = decoder.chat()
    params = SamplingParams(temperature=0, max_tokens=8)
    chat.send(" ".join(["w5 w6"] * 30), params)
    assert max(read) > 60
    read.clear()
    chat.send("w1", params)
    assert max(read) < 12


def test_parameters_may_change_from_turn_to_turn():
    """A kept drafter serves each turn under its own parameters: penalties, temperature, no drafts
    at all."""
    decoder = make("noisy")
    turns = [
        SamplingParams(temperature=0, max_tokens=8),
        SamplingParams(temperature=1.2, seed=4, max_tokens=8, repetition_penalty=1.5),
        SamplingParams(temperature=0, max_tokens=8, num_speculative_tokens=0),
        SamplingParams(temperature=0.7, seed=9, max_tokens=8, logit_bias={3: 2.0}, logprobs=1),
        SamplingParams(temperature=0, max_tokens=8, prompt_logprobs=1),
    ]
    chat = decoder.chat()
    for question, params in zip(QUESTIONS, turns, strict=True):
        history = [*chat.messages, {"role": "user", "content": question}]
        warm, cold = chat.send(question, params), decoder.generate(history, params)
        assert warm.token_ids == cold.token_ids
        assert warm.stats.num_draft_tokens == cold.stats.num_draft_tokens


def test_streams_and_turns_that_do_not_end():
    decoder = make("ngram")
    params = SamplingParams(temperature=0, max_tokens=20)
    chat = decoder.chat()
    stream = chat.stream("w1 w2", params)
    next(stream)
    with pytest.raises(UsageError, match="busy"):
        chat.send("w3", params)
    stream.close()
    assert chat.messages == []
    enough = threading.Event()
    enough.set()
    cut = chat.send("w1 w2", params, cancel=enough)
    assert (cut.finish_reason, cut.token_ids) == ("abort", ())
    chat.undo()
    assert (
        chat.send("w1 w2", params).token_ids
        == decoder.generate([{"role": "user", "content": "w1 w2"}], params).token_ids
    )
    with pytest.raises(UsageError, match="no turn to take back"):
        decoder.chat(system="w2").undo()


def test_a_turn_that_fails_leaves_a_chat_that_works():
    decoder = make("noisy")
    params = SamplingParams(temperature=0, max_tokens=12)
    chat = decoder.chat()
    chat.send("w1", params)
    extend_many, calls = decoder.target.extend_many, []

    def failing(steps):
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError
        return extend_many(steps)

    decoder.target.extend_many = failing
    with pytest.raises(MemoryError):
        chat.send("w2", params)
    history = [*chat.messages, {"role": "user", "content": "w2"}]
    assert len(chat.messages) == 2
    assert chat.send("w2", params).token_ids == decoder.generate(history, params).token_ids


def test_a_session_takes_any_prompt():
    decoder = make("ngram")
    params = SamplingParams(temperature=0, max_tokens=6)
    with decoder.session() as session:
        for ids in ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2], [9], [1, 2, 3]):
            assert (
                session.generate(ids, params).token_ids == decoder.generate(ids, params).token_ids
            )
        assert session.generate([1, 2, 3], params).num_cached_tokens == 2
        with pytest.raises(UsageError, match="one prompt at a time"):
            session.generate([[1], [2]], params)
        with pytest.raises(UsageError, match="n is 2"):
            session.generate([1], SamplingParams(n=2))
        session.close()
        assert session.num_tokens == 0
        assert session.generate([1, 2, 3], params).num_cached_tokens == 0
    plain = decoder.plain.session()
    assert plain.generate([4, 5], params).token_ids == decoder.generate([4, 5], params).token_ids


def test_what_a_chat_needs():
    with pytest.raises(UsageError, match="chat template"):
        SpeculativeDecoder(None, llama(), word_tokenizer()).chat()
    with pytest.raises(UsageError, match="leave one of them out"):
        make().chat(system="w1", messages=[{"role": "user", "content": "w1"}])


def test_an_index_follows_a_context_that_shrank_and_changed():
    """What stood behind the kept tokens must not be proposed any more."""
    laws = [[1.0 if j == (i + 1) % 8 else 0.0 for j in range(8)] for i in range(8)]
    decoder = SpeculativeDecoder(
        NGram(), TableModel(laws), speculative_config={"num_speculative_tokens": 3}
    )
    params = SamplingParams(temperature=0, max_tokens=4)
    session = decoder.session()
    session.generate([0, 1, 5, 0, 1, 5, 0, 1], params)
    for prompt in ([0, 1, 2, 0, 1], [0, 1, 5, 6, 0, 1], [3, 3], [0, 1, 5, 0, 1, 5, 0, 1]):
        warm, cold = session.generate(prompt, params), decoder.generate(prompt, params)
        assert [r.draft_tokens for r in warm.rounds] == [r.draft_tokens for r in cold.rounds]


def test_a_refused_question_loses_nothing():
    chat = make().chat()
    params = SamplingParams(temperature=0, max_tokens=6)
    chat.send("w1 w2", params)
    read = chat.num_tokens
    for wrong in (
        SamplingParams(logit_bias={900: 1.0}),
        SamplingParams(max_tokens=4, stop_token_ids=[900]),
    ):
        with pytest.raises(UsageError, match="token id 900"):
            chat.send("w3", wrong)
    assert chat.num_tokens == read > 0
    assert chat.send("w3", params).num_cached_tokens >= read - 1


def test_an_interrupt_within_a_round_leaves_a_session_that_can_go_on():
    """Between the pass over a tree and what is kept of it, the session can neither go on nor be
    rolled back into the tree."""
    decoder = make("same", tree="2,1", num_speculative_tokens=2)
    params = SamplingParams(temperature=0, max_tokens=8)
    chat = decoder.chat()
    chat.send("w1 w2", params)
    asked = [*chat.messages, {"role": "user", "content": "w3"}]
    expected = decoder.generate(asked, params).token_ids
    extend_many = decoder.target.extend_many

    def interrupted(steps):
        extend_many(steps)
        raise KeyboardInterrupt

    decoder.target.extend_many = interrupted
    with pytest.raises(KeyboardInterrupt):
        chat.send("w3", params)
    decoder.target.extend_many = extend_many
    assert chat.send("w3", params).token_ids == expected
