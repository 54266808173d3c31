"""The contract of models, over OpenVINO's passes: whatever the order of steps, logits are those of
a fresh forward."""

from __future__ import annotations

import random

import pytest
import torch

from draftproof.errors import UsageError
from draftproof.models.openvino.paged import PAGE
from draftproof.models.openvino.pages import FIRST_PAGES
from draftproof.models.pieces import CHUNK
from draftproof.models.protocol import LanguageModel, Session, Step, extend
from openvino_models import MAKERS, converted, openvino, run_by_openvino
from tiny import VOCAB, fresh_logits, llama

TOLERANCE = 5e-4


@pytest.fixture(params=MAKERS, scope="module")
def model(request):
    return openvino(request.param)


def near(found, expected) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)


def path_to(parents: list[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def test_it_is_a_language_model(model):
    assert isinstance(model, LanguageModel)
    assert isinstance(model.open(), Session)


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_steps_equals_a_fresh_forward(model, seed):
    """Lengths pass several pages; trees part on a page, at its end and beyond."""
    rng = random.Random(seed)
    session = model.open()
    for _ in range(25):
        room = model.max_length - session.length
        kind = rng.choice(["extend", "extend", "tree", "rollback"])
        if kind == "rollback" or room == 0:
            session.rollback(rng.randrange(session.length + 1))
            continue
        before = list(session.tokens)
        tokens = [
            rng.randrange(VOCAB) for _ in range(rng.randint(1, min(rng.choice([3, 45]), room)))
        ]
        parents = (
            [rng.randrange(max(-1, node - 9), node) for node in range(len(tokens))]
            if kind == "tree"
            else None
        )
        logits = extend(Step(session, tokens, parents)).logits
        for node in {0, len(tokens) // 2, len(tokens) - 1}:
            path = path_to(parents, node) if parents else list(range(node + 1))
            near(logits[node], fresh_logits(model.module, before + [tokens[n] for n in path])[-1])
        if parents:
            kept = path_to(parents, rng.randrange(-1, len(tokens)))
            session.keep(kept)
            assert list(session.tokens) == before + [tokens[n] for n in kept]
    assert session.length == len(session.tokens) == session.cache.length


def test_rows_and_hidden_states_are_those_of_transformers(model):
    tokens = [5, 9, 2, 6, 5]
    with torch.no_grad():
        expected = model.module(torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
    session = model.open()
    extend(Step(session, tokens[:2]))
    found = extend(Step(session, tokens[2:], rows=[2, 0], hidden=(0, 2)))
    near(found.logits, expected.logits[0, [4, 2]])
    assert set(found.hidden) == {0, 2}
    for layer, states in found.hidden.items():
        near(states, expected.hidden_states[layer][0, 2:])
    assert extend(Step(session, [1, 2], rows=[])).logits.shape == (0, VOCAB)


def test_outputs_do_not_change_with_later_passes():
    session = openvino("llama").open()
    output = extend(Step(session, [1, 2], hidden=(1,)))
    logits, states = output.logits.clone(), output.hidden[1].clone()
    extend(Step(session, [3, 4], hidden=(1,)))
    assert torch.equal(output.logits, logits) and torch.equal(output.hidden[1], states)


def test_sequences_share_a_pass_and_equal_their_solo_runs_to_the_bit(model):
    contexts = [[5], [1, 2, 3], list(range(9)), [7, 7]]
    sessions, alone = [model.open() for _ in contexts], [model.open() for _ in contexts]
    steps = [([4], None), ([4, 6, 8, 9], [-1, 0, 0, 2]), ([11, 12], None), ([13, 14, 15], None)]
    model.extend_many(
        [Step(session, context) for session, context in zip(sessions, contexts, strict=True)]
    )
    together = model.extend_many(
        [Step(s, t, p, hidden=(1,)) for s, (t, p) in zip(sessions, steps, strict=True)]
    )
    for session, context, (tokens, parents), output in zip(
        alone, contexts, steps, together, strict=True
    ):
        extend(Step(session, context))
        own = extend(Step(session, tokens, parents, hidden=(1,)))
        assert torch.equal(own.logits, output.logits) and torch.equal(
            own.hidden[1], output.hidden[1]
        )
    sessions[1].keep([0, 2, 3])
    near(
        extend(Step(sessions[1], [20])).logits[0],
        fresh_logits(model.module, [1, 2, 3, 4, 8, 9, 20])[-1],
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"], indirect=True)
@pytest.mark.parametrize("start", [5, PAGE - 2, 2 * PAGE])
def test_a_tree_gives_the_bits_of_its_chains(dtype, start):
    model = openvino("llama", dtype)
    ids = [(7 * i * i + 3) % VOCAB for i in range(start)]
    tokens, parents = [1, 2, 3, 4, 5, 6], [-1, 0, 0, 1, 2, 4]
    session, chain = model.open(), model.open()
    extend(Step(session, ids, rows=[]))
    tree = extend(Step(session, tokens, parents)).logits
    extend(Step(chain, ids, rows=[]))
    for way in ([0, 1, 3], [0, 2, 4, 5]):
        chain.rollback(start)
        for node in way:
            assert torch.equal(extend(Step(chain, [tokens[node]])).logits[0], tree[node])


def test_a_long_prompt_with_a_tree_is_read_in_pieces():
    module = llama(max_position_embeddings=2 * CHUNK)
    model = run_by_openvino(converted(module))
    tokens = [(7 * i * i + 3) % VOCAB for i in range(CHUNK + 90)]
    rows = [CHUNK + 89, 0, CHUNK - 1, CHUNK, 7]
    session = model.open()
    output = extend(Step(session, tokens, rows=rows, hidden=(1,)))
    near(output.logits, fresh_logits(module, tokens)[rows])
    assert output.hidden[1].shape[0] == len(tokens) and session.length == len(tokens)
    other = model.open()
    parents = [*range(-1, len(tokens) - 1), len(tokens) - 1, len(tokens) - 1, len(tokens)]
    tree = extend(
        Step(other, [*tokens, 3, 4, 5], parents, rows=[len(tokens) - 1, len(tokens) + 2])
    ).logits
    near(tree, fresh_logits(module, [*tokens, 3, 5])[-3::2])


def test_forks_share_pages_until_one_writes():
    model = openvino("qwen2")
    session = model.open()
    ids = [(5 * i + 1) % VOCAB for i in range(40)]
    extend(Step(session, ids))
    copy = session.fork(37)
    extend(Step(session, [1, 2]))
    near(extend(Step(copy, [9])).logits[0], fresh_logits(model.module, [*ids[:37], 9])[-1])
    near(extend(Step(session, [3])).logits[0], fresh_logits(model.module, [*ids, 1, 2, 3])[-1])


def test_a_fork_of_a_tree_that_was_read_still_has_the_choice():
    model = openvino("qwen2")
    free = model._pages.num_free
    session = model.open()
    extend(Step(session, list(range(30))))
    extend(Step(session, [3, 1, 2, 4], (-1, 0, 0, 1)))
    fork = session.fork()
    session.keep([0, 2])
    fork.keep([0, 1, 3])
    for one, before in ((session, [*range(30), 3, 2]), (fork, [*range(30), 3, 1, 4])):
        assert list(one.tokens) == before
        near(extend(Step(one, [7])).logits[0], fresh_logits(model.module, [*before, 7])[-1])
        one.close()
    assert model._pages.num_free == free, "every page is given back"


def test_a_failed_pass_leaves_the_session_as_it_was(monkeypatch):
    model = openvino("llama")
    session = model.open()
    extend(Step(session, [1, 2, 3]))
    with monkeypatch.context() as patched:
        patched.setattr(model._passes, "read", _fail)
        for parents in (None, [-1, -1]):
            with pytest.raises(RuntimeError, match="out of memory"):
                extend(Step(session, [4, 5], parents))
    assert session.length == session.cache.length == 3
    near(extend(Step(session, [9])).logits[0], fresh_logits(model.module, [1, 2, 3, 9])[-1])


def _fail(*_):
    raise RuntimeError("out of memory")


def test_misuse_is_refused_before_anything_is_read():
    model = openvino("gpt2")
    session = model.open()
    extend(Step(session, list(range(31))))
    with pytest.raises(UsageError, match="holds 32 tokens"):
        extend(Step(session, [1, 2]))
    near(extend(Step(session, [40])).logits[0], fresh_logits(model.module, [*range(31), 40])[-1])
    with pytest.raises(UsageError, match="do not fit"):
        extend(Step(model.open(), [VOCAB]))
    with pytest.raises(UsageError, match="only once"):
        model.extend_many([Step(other := model.open(), [1]), Step(other, [2])])


def test_pages_grow_and_all_come_back():
    model = openvino("llama")
    pages = model._pages
    sessions = [model.open() for _ in range(FIRST_PAGES)]
    for number, session in enumerate(sessions):
        extend(Step(session, [number, *range(40)], rows=[]))
    assert pages.num_pages > FIRST_PAGES
    near(
        extend(Step(sessions[3], [8])).logits[0], fresh_logits(model.module, [3, *range(40), 8])[-1]
    )
    extend(Step(sessions[5], [1, 2, 3], [-1, -1, 0]))
    for session in sessions[1:]:
        session.close()
    del session
    sessions.clear()  # one was not closed
    assert pages.num_free == pages.num_pages


def test_five_hundred_texts_take_no_more_pages():
    model = openvino("llama")
    for number in range(500):
        session = model.open()
        extend(Step(session, [number % VOCAB] * 5, rows=[4]))
        extend(Step(session, [1, 2, 3], [-1, -1, 1]))
        session.keep([1, 2])
        session.close()
    assert model._pages.num_free == model._pages.num_pages == FIRST_PAGES
