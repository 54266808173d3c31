"""Extend, roll back, keep: whatever the order, the logits are those of a fresh forward over the
tokens that stayed."""

from __future__ import annotations

import gc
import random

import pytest
import torch

from draftproof.errors import UsageError
from draftproof.models.caches.full import FullLayers
from draftproof.models.hf import HFModel
from draftproof.models.layout import Layout
from draftproof.models.pieces import CHUNK
from draftproof.models.protocol import LanguageModel, Session, Step, extend
from tiny import FAMILIES, VOCAB, fresh_logits, llama, qwen2, table_model


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def tolerance(model) -> float:
    """In float64; `eager` attention of transformers takes its softmax in float32 whatever the
    dtype."""
    return 1e-9 if model.module.config._attn_implementation == "sdpa" else 2e-5


@pytest.fixture(
    params=[(name, attention) for name in FAMILIES for attention in ("sdpa", "eager")], ids="-".join
)
def model(request):
    name, attention = request.param
    return HFModel(FAMILIES[name](torch.float64, attn_implementation=attention))


def random_parents(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(-1, node) for node in range(count)]


def path_to(parents: list[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def test_it_is_a_language_model(model):
    assert isinstance(model, LanguageModel)
    assert isinstance(model.open(), Session)


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_steps_equals_a_fresh_forward(model, seed):
    rng = random.Random(seed)
    session = model.open()
    for _ in range(25):
        room = model.max_length - session.length
        kind = rng.choice(["extend", "extend", "tree", "rollback"])
        if kind == "rollback" or room == 0:
            session.rollback(rng.randrange(session.length + 1))
            continue
        before = list(session.tokens)
        tokens = [rng.randrange(VOCAB) for _ in range(rng.randint(1, min(7, room)))]
        parents = random_parents(rng, len(tokens)) if kind == "tree" else None
        logits = extend(Step(session, tokens, parents)).logits
        for node in range(len(tokens)):
            path = path_to(parents, node) if parents else list(range(node + 1))
            expected = fresh_logits(model.module, before + [tokens[n] for n in path])[-1]
            torch.testing.assert_close(logits[node], expected, rtol=0, atol=tolerance(model))
        if parents:
            kept = path_to(parents, rng.randrange(-1, len(tokens)))
            session.keep(kept)
            assert list(session.tokens) == before + [tokens[n] for n in kept]
    assert session.length == len(session.tokens) == session.cache.length


def test_the_model_takes_part_in_none_of_it(model):
    before = model.module.config.to_dict()
    implementation = model.module.config._attn_implementation
    session = model.open()
    extend(Step(session, [1, 2, 3]))
    extend(Step(session, [4, 5, 6], [-1, 0, 0], hidden=(1,)))
    assert model.module.config.to_dict() == before
    assert model.module.config._attn_implementation == implementation
    assert not model.module.training


def test_rows_limit_the_logits_and_keep_their_order(model):
    whole = extend(Step(model.open(), [3, 1, 4, 1, 5])).logits
    some = extend(Step(model.open(), [3, 1, 4, 1, 5], rows=[4, 1])).logits
    torch.testing.assert_close(some, whole[[4, 1]], rtol=0, atol=tolerance(model))
    assert extend(Step(model.open(), [3, 1, 4], rows=[])).logits.shape == (0, VOCAB)


def test_hidden_states_are_those_of_transformers(model):
    tokens = [5, 9, 2, 6, 5]
    with torch.no_grad():
        expected = model.module(
            torch.tensor([tokens]), output_hidden_states=True, use_cache=False
        ).hidden_states
    session = model.open()
    extend(Step(session, tokens[:2]))
    found = extend(Step(session, tokens[2:], rows=[2], hidden=(0, 1, 2))).hidden
    assert set(found) == {0, 1, 2}
    for layer, states in found.items():
        torch.testing.assert_close(states, expected[layer][0, 2:], rtol=0, atol=tolerance(model))


def test_outputs_may_be_written_to_and_trained_on():
    session = HFModel(llama()).open()
    output = extend(Step(session, [1, 2], hidden=(1,)))
    output.logits[:, 3] = -torch.inf
    weight = torch.zeros(32, requires_grad=True)
    (output.hidden[1] @ weight).sum().backward()
    assert weight.grad is not None and not session.cache.layers[0].keys.requires_grad


def test_a_long_prompt_is_read_in_pieces_and_equals_one_pass():
    module = llama(torch.float64, max_position_embeddings=2 * CHUNK)
    model = HFModel(module)
    tokens = [(7 * i * i + 3) % VOCAB for i in range(CHUNK + 200)]
    rows = [CHUNK + 199, 0, CHUNK - 1, CHUNK, 7]
    session = model.open()
    output = extend(Step(session, tokens, rows=rows, hidden=(1, 2)))
    with torch.no_grad():
        whole = module(torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
    torch.testing.assert_close(output.logits, whole.logits[0, rows], rtol=0, atol=1e-9)
    for layer in (1, 2):
        torch.testing.assert_close(
            output.hidden[layer], whole.hidden_states[layer][0], rtol=0, atol=1e-9
        )
    torch.testing.assert_close(
        extend(Step(session, [5])).logits[0],
        fresh_logits(module, [*tokens, 5])[-1],
        rtol=0,
        atol=1e-9,
    )
    everything = extend(Step(model.open(), tokens))
    torch.testing.assert_close(everything.logits, whole.logits[0], rtol=0, atol=1e-9)


def test_a_failed_pass_leaves_the_session_as_it_was():
    model = HFModel(llama(torch.float64, max_position_embeddings=2 * CHUNK))
    session = model.open()
    extend(Step(session, [1, 2, 3]))
    calls = []

    def fail_on_the_second_pass(*_):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of memory")

    handle = model.module.model.layers[1].register_forward_pre_hook(fail_on_the_second_pass)
    with pytest.raises(RuntimeError, match="out of memory"):
        extend(Step(session, [4] * (CHUNK + 1)))
    handle.remove()
    assert session.length == session.cache.length == 3
    expected = fresh_logits(model.module, [1, 2, 3, 9])[-1]
    torch.testing.assert_close(extend(Step(session, [9])).logits[0], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FAMILIES)
def test_half_precision_runs_and_stays_near(name, dtype):
    module = FAMILIES[name](dtype)
    model, exact = HFModel(module), FAMILIES[name](torch.float64)
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]
    session = model.open()
    logits = extend(Step(session, tokens[:5])).logits
    assert logits.dtype == dtype
    tree = extend(Step(session, [9, 7, 2, 6], [-1, -1, 0, 2])).logits
    expected = fresh_logits(exact, tokens)[[5, 6, 7]]
    error = (tree[[0, 2, 3]].double() - expected).square().mean().sqrt() / expected.std()
    assert error < 0.1


def test_keep_and_rollback_after_a_chain():
    model = HFModel(llama(torch.float64))
    session = model.open()
    extend(Step(session, [1, 2, 3]))
    extend(Step(session, [4, 5, 6], parents=[-1, 0, 1]))  # parents, but a chain
    session.keep([0, 1])
    assert list(session.tokens) == [1, 2, 3, 4, 5]
    extend(Step(session, [7, 8]))
    session.rollback(session.length)
    session.rollback(4)
    session.rollback(4)
    assert list(session.tokens) == [1, 2, 3, 4]
    extend(Step(session, [9, 9], parents=[-1, -1]))
    session.keep([])
    assert session.length == 4
    extend(Step(session, [9, 9], parents=[-1, -1]))
    session.rollback(2)
    torch.testing.assert_close(
        extend(Step(session, [3])).logits,
        fresh_logits(model.module, [1, 2, 3])[-1:],
        rtol=0,
        atol=1e-9,
    )


def test_misuse_is_refused_and_changes_nothing():
    model, other = HFModel(llama()), HFModel(llama())
    session = model.open()
    with pytest.raises(UsageError, match="nothing was read"):
        session.keep([0])
    extend(Step(session, [1, 2, 3]))
    for length in (4, -1):
        with pytest.raises(UsageError, match="the session holds 3"):
            session.rollback(length)
    with pytest.raises(ValueError, match="not a way down"):
        session.keep([0, 2])
    extend(Step(session, [4, 5, 6], parents=[-1, -1, 1]))
    with pytest.raises(UsageError, match="tree was read"):
        extend(Step(session, [7]))
    with pytest.raises(UsageError, match="use keep"):
        session.rollback(5)
    with pytest.raises(UsageError, match="not a way down"):
        session.keep([0, 2])
    session.keep([1, 2])
    assert list(session.tokens) == [1, 2, 3, 5, 6]
    bad_steps = [
        (Step(session, []), "at least one token"),
        (Step(session, [VOCAB]), "do not fit"),
        (Step(session, [1, 2], parents=[-1]), "one for each token"),
        (Step(session, [1, 2], parents=[0, -1]), "earlier token"),
        (Step(session, [1, 2], rows=[2]), "must lie in 0..1"),
        (Step(session, [1], hidden=(3,)), "must lie in 0..2"),
        (Step(other.open(), [1]), "not opened by this model"),
    ]
    for step, message in bad_steps:
        with pytest.raises(UsageError, match=message):
            model.extend_many([step])
    with pytest.raises(UsageError, match="only once"):
        model.extend_many([Step(session, [1]), Step(session, [2])])
    session.close()
    session.close()
    with pytest.raises(UsageError, match="closed"):
        extend(Step(session, [1]))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_context_limit_is_reached_and_not_passed(name):
    module = FAMILIES[name](
        torch.float64, **({} if name == "gpt2" else {"max_position_embeddings": 32})
    )
    model = HFModel(module)
    assert model.max_length == 32
    session = model.open()
    tokens = list(range(31))
    extend(Step(session, tokens))
    with pytest.raises(UsageError, match="holds 32 tokens"):
        extend(Step(session, [1, 2]))
    last = extend(Step(session, [40])).logits[0]
    torch.testing.assert_close(last, fresh_logits(module, [*tokens, 40])[-1], rtol=0, atol=1e-9)
    with pytest.raises(UsageError, match="holds 32 tokens"):
        extend(Step(session, [1]))
    assert HFModel(module, max_length=16).max_length == 16
    with pytest.raises(UsageError, match="allows 1 to 32"):
        HFModel(module, max_length=33)


@pytest.mark.parametrize("name", FAMILIES)
def test_sequences_that_share_a_pass_equal_their_solo_runs(name):
    model = HFModel(FAMILIES[name](torch.float64))
    forwards = []
    handle = model.module.register_forward_pre_hook(lambda *_: forwards.append(1))
    sessions = [model.open() for _ in range(4)]
    contexts: list[list[int]] = [[5], [1, 2, 3], list(range(9)), [7, 7]]
    outputs = model.extend_many([Step(s, c) for s, c in zip(sessions, contexts, strict=True)])
    assert len(forwards) == 1
    for context, output in zip(contexts, outputs, strict=True):
        torch.testing.assert_close(
            output.logits, fresh_logits(model.module, context), rtol=0, atol=1e-9
        )
    forwards.clear()
    steps = [
        Step(sessions[0], [4]),
        Step(sessions[1], [4, 6, 8, 9], parents=[-1, 0, 0, 2], rows=[3, 0], hidden=(1,)),
        Step(sessions[2], [11, 12], rows=[1]),
        Step(sessions[3], [13, 14, 15], rows=[], hidden=(1, 2)),
    ]
    outputs = model.extend_many(steps)
    assert len(forwards) == 1
    sessions[1].keep([0, 2, 3])
    expected = [
        fresh_logits(model.module, c + t)
        for c, t in zip(contexts, ([4], [4, 8, 9], [11, 12], [13, 14, 15]), strict=True)
    ]
    torch.testing.assert_close(outputs[0].logits, expected[0][-1:], rtol=0, atol=1e-9)
    torch.testing.assert_close(outputs[1].logits, expected[1][[5, 3]], rtol=0, atol=1e-9)
    torch.testing.assert_close(outputs[2].logits, expected[2][-1:], rtol=0, atol=1e-9)
    assert outputs[3].logits.shape == (0, VOCAB)
    with torch.no_grad():
        whole = model.module(
            torch.tensor([[7, 7, 13, 14, 15]]), output_hidden_states=True, use_cache=False
        ).hidden_states
    assert set(outputs[1].hidden) == {1} and outputs[1].hidden[1].shape[0] == 4
    torch.testing.assert_close(outputs[3].hidden[2], whole[2][0, 2:], rtol=0, atol=1e-9)
    handle.remove()
    for session, logits in zip(
        sessions, model.extend_many([Step(s, [20]) for s in sessions]), strict=True
    ):
        torch.testing.assert_close(
            logits.logits[0], fresh_logits(model.module, session.tokens)[-1], rtol=0, atol=1e-9
        )


def test_eager_attention_reads_sequences_one_after_another():
    model = HFModel(qwen2(torch.float64, attn_implementation="eager"))
    sessions = [model.open(), model.open()]
    outputs = model.extend_many([Step(sessions[0], [1, 2]), Step(sessions[1], [3])])
    torch.testing.assert_close(
        outputs[0].logits, fresh_logits(model.module, [1, 2]), rtol=0, atol=tolerance(model)
    )
    torch.testing.assert_close(
        outputs[1].logits, fresh_logits(model.module, [3]), rtol=0, atol=tolerance(model)
    )


def test_room_follows_use_and_growth_keeps_the_content():
    model = HFModel(llama(torch.float64, max_position_embeddings=4096))
    session = model.open()
    tokens: list[int] = []
    rooms = set()
    for step in range(60):
        new = [(step * 13 + i) % VOCAB for i in range(11)]
        tokens += new
        logits = extend(Step(session, new, rows=[10])).logits[0]
        room = session.cache.parts[0].num_entries()
        rooms.add(room)
        assert session.cache.layers[0].keys.shape[-2] == room
    torch.testing.assert_close(logits, fresh_logits(model.module, tokens)[-1], rtol=0, atol=1e-9)
    assert len(tokens) == 660 and len(rooms) <= 4 and max(rooms) <= 1024


def test_layers_of_different_shapes_are_kept_apart():
    cache = FullLayers(range(3), limit=None)
    shapes = [(2, 4), (1, 6), (2, 4)]

    def write(count: int) -> list[torch.Tensor]:
        cache.prepare(Layout(cache.length, count))
        new = [torch.randn(1, heads, count, width) for heads, width in shapes]
        for layer, states in zip(cache.layers.values(), new, strict=True):
            layer.update(states, -states)
        cache.finish(cache.length + count)
        return new

    first, second = write(5), write(300)
    cache.keep(5, [0, 3, 299])
    third = write(2)
    assert cache.length == 10
    for layer, *parts in zip(
        cache.layers.values(), first, [s[:, :, [0, 3, 299]] for s in second], third, strict=True
    ):
        expected = torch.cat(parts, dim=2)
        assert torch.equal(layer.keys[:, :, :10], expected) and torch.equal(
            layer.values[:, :, :10], -expected
        )


def test_closed_sessions_leave_no_tensors_behind():
    model = HFModel(llama())

    def cycle() -> None:
        session = model.open()
        extend(Step(session, [1, 2, 3, 4]))
        extend(Step(session, [5, 6, 7], parents=[-1, -1, 1]))
        session.keep([1, 2])
        session.close()

    def live_tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    cycle()
    before = live_tensors()
    gc.disable()
    try:
        for _ in range(200):
            cycle()
        without_collector = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
    finally:
        gc.enable()
    assert live_tensors() == before
    assert without_collector - before < 20, (
        "close() must free without waiting for the garbage collector"
    )


def test_logits_follow_the_table_of_a_table_model():
    table = torch.randn(16, 16, generator=torch.Generator().manual_seed(1)).double()
    model = HFModel(table_model(table, torch.float64))
    logits = extend(Step(model.open(), [3, 0, 15])).logits
    torch.testing.assert_close(logits, table[[3, 0, 15]], rtol=0, atol=1e-9)
