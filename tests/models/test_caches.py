"""Every kind of layer cache keeps one contract: whatever the order of steps, logits are those of a
fresh forward."""

from __future__ import annotations

import gc
from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache_families import FAMILIES, WINDOW, gemma3, llama, mistral
from draftproof.errors import UsageError
from draftproof.models.caches.recurrent import KEPT
from draftproof.models.caches.window import Slack
from draftproof.models.hf import HFModel
from draftproof.models.pieces import Continuing
from draftproof.models.protocol import Step, extend
from tiny import VOCAB, fresh_logits

LONGEST = 30
"""Most tokens of a sequence here: more than three windows, fewer than GPT-2's learned positions."""


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@cache
def model_of(name: str) -> HFModel:
    """The family's model in float64; sessions share nothing but its slack."""
    return HFModel(FAMILIES[name].make(torch.float64))


@st.composite
def actions(draw: st.DrawFn, trees: bool) -> list[tuple]:
    """extend (tokens), tree (tokens, parents, kept node), keep (how much of a chain) or rollback (a
    share of the length)."""
    kinds = ["extend", "extend", "keep", "rollback"] + ["tree"] * 2 * trees
    found: list[tuple] = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=9)):
        count = draw(st.sampled_from([1, 2, 3, 5, 11, 19]))
        tokens = draw(st.lists(st.integers(0, VOCAB - 1), min_size=count, max_size=count))
        if kind == "tree":
            parents = [draw(st.integers(-1, node - 1)) for node in range(count)]
            found.append((kind, tokens, parents, draw(st.integers(-1, count - 1))))
        elif kind == "rollback":
            found.append((kind, draw(st.floats(0, 1))))
        else:
            found.append((kind, tokens, draw(st.integers(0, count))))
    return found


def path_to(parents: list[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def expect_fresh(
    model: HFModel,
    logits: torch.Tensor,
    before: list[int],
    tokens: list[int],
    parents: list[int] | None,
    atol: float,
):
    if parents is None:
        expected = fresh_logits(model.module, before + tokens)[len(before) :]
        torch.testing.assert_close(logits.double(), expected.double(), rtol=0, atol=atol)
        return
    for node in range(len(tokens)):
        path = [tokens[n] for n in path_to(parents, node)]
        expected = fresh_logits(model.module, before + path)[-1]
        torch.testing.assert_close(logits[node].double(), expected.double(), rtol=0, atol=atol)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_any_order_of_steps_equals_a_fresh_forward(name, data):
    model, family = model_of(name), FAMILIES[name]
    session = model.open()
    for action in data.draw(actions(family.trees)):
        before = list(session.tokens)
        if action[0] == "rollback":
            session.rollback(round(action[1] * session.length))
            continue
        tokens = action[1][: LONGEST - session.length]
        if not tokens:
            session.rollback(0)
            continue
        parents = action[2][: len(tokens)] if action[0] == "tree" else None
        logits = extend(Step(session, tokens, parents)).logits
        expect_fresh(model, logits, before, tokens, parents, family.tolerance)
        if action[0] == "keep":
            session.keep(list(range(min(action[2], len(tokens)))))
        if action[0] == "tree":
            kept = path_to(parents, min(action[3], len(tokens) - 1))
            session.keep(kept)
            assert list(session.tokens) == before + [tokens[node] for node in kept]
    session.close()


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_family_is_said_to_do(name):
    model, family = model_of(name), FAMILIES[name]
    assert model.supports_trees == family.trees
    sessions = [model.open(), model.open()]
    forwards = []
    handle = model.module.register_forward_pre_hook(lambda *_: forwards.append(1))
    outputs = model.extend_many(
        [Step(sessions[0], [1, 2, 3], rows=[2]), Step(sessions[1], [4, 5], rows=[1])]
    )
    handle.remove()
    assert (len(forwards) == 1) == family.shares
    for tokens, output in zip(([1, 2, 3], [4, 5]), outputs, strict=True):
        expected = fresh_logits(model.module, tokens)[-1]
        torch.testing.assert_close(
            output.logits[0].double(), expected.double(), rtol=0, atol=family.tolerance
        )
    if not family.trees:
        with pytest.raises(UsageError, match="chains only: parents must follow each other"):
            extend(Step(sessions[0], [1, 2], parents=[-1, -1]))
        assert list(sessions[0].tokens) == [1, 2, 3]


@pytest.mark.parametrize("name", FAMILIES)
def test_sessions_that_take_turns_do_not_disturb_each_other(name):
    """Shared or one after another, past the window, with drafts rejected in between and a row that
    joins late."""
    model, family = model_of(name), FAMILIES[name]
    sessions = [model.open() for _ in range(3)]
    texts = [[1], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [12, 13]]
    model.extend_many([Step(s, t) for s, t in zip(sessions[:2], texts[:2], strict=True)])
    extend(Step(sessions[2], texts[2]))
    for turn in range(5):
        drafts = [[(turn * 7 + i * 3 + place) % VOCAB for place in range(3)] for i in range(3)]
        outputs = model.extend_many([Step(s, d) for s, d in zip(sessions, drafts, strict=True)])
        for i, (session, output) in enumerate(zip(sessions, outputs, strict=True)):
            expect_fresh(model, output.logits, texts[i], drafts[i], None, family.tolerance)
            kept = (turn + i) % 4
            session.keep(list(range(kept)))
            texts[i] = texts[i] + drafts[i][:kept]
            assert list(session.tokens) == texts[i]


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.window])
def test_memory_of_a_window_is_bounded_by_window_and_nodes(name):
    """Prompts longer than the window, rounds of 5 tokens of which some are rejected: window + nodes
    + 1 entries at most."""
    model = HFModel(FAMILIES[name].make(torch.float64))
    session = model.open()
    extend(Step(session, list(range(40)), rows=[39]))
    for turn in range(12):
        extend(Step(session, [(turn + i) % VOCAB for i in range(5)]))
        session.keep(list(range(1 + turn % 5)))
        part = next(part for part in session.cache.parts if part.name != "full attention")
        assert part.num_entries() <= WINDOW + 5 + 1
        for layer in part.layers.values():
            assert layer.keys.shape[-2] == part.num_entries()
    wide = [-1] * 20
    extend(Step(session, list(range(20)), parents=wide))
    assert part.num_entries() <= WINDOW + 20 + 1


def test_states_that_are_kept_are_few_and_near():
    model = model_of("qwen3_next")
    session = model.open()
    part = session.cache.parts[-1]
    for token in range(30):
        extend(Step(session, [token]))
        assert part.num_entries() <= KEPT + 1
    for back in (1, 2, 4, 8, 16):
        distance = session.length - part.restorable(session.length - back)
        assert back <= distance <= 4 * back


def test_a_rollback_beyond_the_slack_is_read_again_and_learned():
    model = HFModel(mistral(torch.float64))
    session = model.open()
    for token in range(40):
        extend(Step(session, [token]))
    session.rollback(24)  # 16 back, more than the least slack
    assert session.length == 24 and session.cache.length == 0
    forwards = []
    handle = model.module.register_forward_pre_hook(lambda *_: forwards.append(1))
    found = extend(Step(session, [5])).logits
    assert len(forwards) == 2
    expect_fresh(model, found, list(range(24)), [5], None, 1e-9)
    for token in range(20):
        extend(Step(session, [token]))
    forwards.clear()
    session.rollback(session.length - 16)
    extend(Step(session, [6]))
    handle.remove()
    assert len(forwards) == 1, "the slack has learned how far rollbacks go"
    assert model.slack.tokens == 16


def test_a_long_rollback_is_not_provided_for():
    slack = Slack()
    slack.learn(Slack.MOST + 1)
    assert slack.tokens == Slack.LEAST
    slack.learn(Slack.MOST)
    assert slack.tokens == Slack.MOST


@pytest.mark.parametrize("name", ["mistral", "gemma3", "llama4", "qwen3_next", "mamba", "lfm2"])
def test_a_failed_pass_leaves_the_session_as_it_was(name):
    model, family = model_of(name), FAMILIES[name]
    session = model.open()
    extend(Step(session, list(range(20))))
    last = getattr(model.module, "model", getattr(model.module, "backbone", None)).layers[-1]

    def fail(*_):
        raise RuntimeError("out of memory")

    handle = last.register_forward_pre_hook(fail)
    for step in (Step(session, [1, 2, 3]), Step(session, list(range(40, 60)))):
        with pytest.raises(RuntimeError, match="out of memory"):
            extend(step)
        assert list(session.tokens) == list(range(20))
    handle.remove()
    expect_fresh(
        model, extend(Step(session, [9, 8])).logits, list(range(20)), [9, 8], None, family.tolerance
    )


def test_a_rejected_draft_that_overflowed_leaves_no_trace_in_a_window():
    """What it left in the ring is hidden by the mask, but a hidden NaN would still spread."""
    model = model_of("mistral")
    session = model.open()
    extend(Step(session, list(range(20))))
    extend(Step(session, [1, 2, 3]))
    part = session.cache.parts[0]
    with torch.inference_mode():
        for layer in part.layers.values():
            layer.keys[:, :, part.places(21, 23)] = layer.values[:, :, part.places(21, 23)] = (
                torch.nan
            )
    session.rollback(21)
    expect_fresh(model, extend(Step(session, [7])).logits, [*range(20), 1], [7], None, 1e-9)


def test_how_models_go_on():
    """Layers that ignore their state in passes over several tokens are found, and then read one
    token a pass."""
    assert model_of("mamba").continuing is model_of("jamba").continuing is Continuing.TOKEN_BY_TOKEN
    for name in ("mamba2", "qwen3_next", "lfm2", "falcon_h1", "bamba"):
        assert model_of(name).continuing is Continuing.WITH_STATES
    assert model_of("gemma3").continuing is Continuing.FREELY


def test_a_window_wider_than_the_context_is_full_attention():
    assert [str(kind) for kind in HFModel(mistral(sliding_window=128)).layer_kinds] == [
        "full attention"
    ] * 2
    assert [str(kind) for kind in HFModel(mistral(), max_length=WINDOW).layer_kinds] == [
        "full attention"
    ] * 2
    kinds = [str(kind) for kind in HFModel(gemma3(torch.float32)).layer_kinds]
    assert kinds == [f"sliding window of {WINDOW}", "full attention"]


def test_a_tree_under_a_long_prompt_is_read_in_two_passes():
    """A ring must not grow to the prompt's length because the first round's draft is a tree."""
    for make in (llama, mistral):
        model = HFModel(make(torch.float64))
        session = model.open()
        prompt, tree = [(7 * i) % VOCAB for i in range(90)], [1, 2, 3]
        parents = [*range(-1, 89), 89, 89, 90]
        logits = extend(Step(session, prompt + tree, parents, rows=[89, 90, 91, 92])).logits
        expected = [fresh_logits(model.module, prompt + way)[-1] for way in ([], [1], [2], [1, 3])]
        torch.testing.assert_close(logits, torch.stack(expected), rtol=0, atol=1e-9)
        session.keep([*range(90), 90, 92])
        assert list(session.tokens) == [*prompt, 1, 3]
        expect_fresh(model, extend(Step(session, [4])).logits, [*prompt, 1, 3], [4], None, 1e-9)
        assert make is llama or session.cache.parts[0].num_entries() <= WINDOW + Slack.LEAST


@pytest.mark.parametrize("name", FAMILIES)
def test_a_fork_goes_its_own_way(name):
    model, family = model_of(name), FAMILIES[name]
    session = model.open()
    extend(Step(session, list(range(20))))
    fork = session.fork(15)
    assert list(fork.tokens) == list(range(15)) and session.length == 20
    for one, before in ((session, list(range(20))), (fork, list(range(15)))):
        new = [30 + one.length, 7, 7]
        expect_fresh(model, extend(Step(one, new)).logits, before, new, None, family.tolerance)
    session.close()
    expect_fresh(
        model, extend(Step(fork, [5])).logits, [*range(15), 45, 7, 7], [5], None, family.tolerance
    )
    with pytest.raises(UsageError, match="cannot fork at 40 tokens: the session holds 19"):
        fork.fork(40)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.trees])
def test_a_fork_of_a_tree_that_was_read_still_has_the_choice(name):
    """As between a draft and its verdict: each goes down a way of its own."""
    model, family = model_of(name), FAMILIES[name]
    session = model.open()
    extend(Step(session, list(range(12))))
    extend(Step(session, [3, 1, 2, 4], (-1, 0, 0, 1)))
    fork = session.fork()
    session.keep([0, 2])
    fork.keep([0, 1, 3])
    for one, before in ((session, [*range(12), 3, 2]), (fork, [*range(12), 3, 1, 4])):
        assert list(one.tokens) == before
        expect_fresh(model, extend(Step(one, [7])).logits, before, [7], None, family.tolerance)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_session_takes_was_foretold(name):
    model = model_of(name)
    foretold = model.session_bytes(LONGEST)
    session = model.open()
    extend(Step(session, list(range(20)), rows=[19]))
    for token in range(LONGEST - 20):
        extend(Step(session, [token]))
    held = 0
    for part in session.cache.parts:
        for layer in part.layers.values():
            kinds = [layer.keys, layer.values] if part.name != "recurrent state" else []
            states = (
                [*layer.conv_states.values(), *layer.recurrent_states.values()]
                if part.name == "recurrent state"
                else []
            )
            copies = part.num_entries() if part.name == "recurrent state" else 1
            held += copies * sum(
                tensor.nbytes for tensor in [*kinds, *states] if tensor is not None
            )
    assert 0 < held <= foretold


@pytest.mark.parametrize("name", ["mistral", "gemma3", "qwen3_next", "mamba", "falcon_h1"])
def test_closed_sessions_leave_no_tensors_behind(name):
    """Without waiting for the garbage collector, as the growth of vllm#15506 needs it."""
    model = model_of(name)

    def cycle() -> None:
        session = model.open()
        extend(Step(session, list(range(20)), rows=[19]))
        for _ in range(3):
            extend(Step(session, [5, 6, 7]))
            session.keep([0])
        session.close()

    def live_tensors() -> int:
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    cycle()
    gc.collect()
    before = live_tensors()
    gc.disable()
    try:
        for _ in range(20):
            cycle()
        without_collector = live_tensors()
    finally:
        gc.enable()
    gc.collect()
    assert live_tensors() <= before
    assert without_collector - before < 20
