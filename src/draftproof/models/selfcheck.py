"""One short check, when a model is wrapped, that a chain, a tree and a rollback through our cache
equal its own forward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from draftproof.errors import UnsupportedModelError
from draftproof.models.pieces import Continuing
from draftproof.models.protocol import Step, extend

TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-2}
"""Allowed root-mean-square difference of logits in units of their spread; rounding (that of layers
which compute in float32 whatever they are given included) stays far below, a wrong mask far
above."""
HALF_TOLERANCE = 0.2
SAME_PASS = 0.05
"""Share of the tolerance allowed between two passes of one shape, of which only a later token's
position differs."""
FARTHEST = 2**16
"""The position that is tried of a model without a limit."""
MIXED_TOLERANCE = 0.5
"""For weights quantised so that rows of a pass influence each other: such a model may draft, and
only has to be recognised."""


def check_forward(model: Any) -> None:
    """Raise UnsupportedModelError when `model` (an HFModel) computes something else through its
    cache than without one.

    Reads two short sequences that share their start, once whole and without a cache, once as a
    chain that is partly rolled back, a tree of both ways on (one way after the other where trees
    cannot be read), and a token after the path kept. About three short passes."""
    if model.max_length is not None and model.max_length < 6:
        return
    ids = [(7919 * i + 11) % model.num_input_ids for i in range(8)]
    common, first, second = ids[:3], ids[3:6], [ids[6], ids[7], ids[7]]
    kind = type(model.module).__name__
    with _one_sentence(kind):
        with torch.inference_mode():
            both = torch.tensor([common + first, common + second], device=model.device)
            whole = model.module(input_ids=both, use_cache=False).logits[..., : model.vocab_size]
        ours = _through_the_cache(model, common, first, second)
    expected = torch.stack(
        [whole[0, 3], whole[1, 3], whole[0, 4], whole[1, 4], whole[0, 5]]
    ).float()
    spread = expected.std(dim=-1)
    difference = (ours.float() - expected).square().mean(dim=-1).sqrt()
    allowed = MIXED_TOLERANCE if model.rows_mix else TOLERANCE.get(model.dtype, HALF_TOLERANCE)
    if bool((difference > allowed * spread).any()):
        share = float((difference / spread).max())
        raise UnsupportedModelError(
            f"{kind} gives other logits through our cache than by itself (a difference "
            f"of {share:.2g} of their spread),"
            " so drafts could not be verified exactly"
        )


def rows_seen_to_mix(model: Any) -> str | None:
    """How rows of a pass influence each other, found by reading tokens after four that stay the
    same; None when they do not.

    Three short passes of one shape, the first and the last alike: a model that answers them
    differently is no matter of rows. A text of fewer than six tokens is too short for it."""
    if model.max_length is not None and model.max_length < 6:
        return None
    with _one_sentence(type(model.module).__name__), torch.inference_mode():
        ids = torch.tensor(
            [[(7919 * i + 11) % model.num_input_ids for i in range(6)]], device=model.device
        )
        one, other, again = (
            model.module(input_ids=torch.cat([ids[:, :4], last], dim=1), use_cache=False)
            .logits[0, :4]
            .float()
            for last in (ids[:, 4:], ids[:, 4:].flip(1), ids[:, 4:])
        )
    difference = float(_difference(one, other).max())
    if difference <= SAME_PASS * TOLERANCE.get(model.dtype, HALF_TOLERANCE) or not torch.equal(
        one, again
    ):
        return None
    return (
        f"logits of a token changed with the tokens read after it (by {difference:.2g} of "
        "their spread)"
    )


def _difference(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Root mean square over the vocabulary, in units of the spread of all rows: one row alone may
    be flat."""
    return (one - other).square().mean(dim=-1).sqrt() / one.std().clamp(
        min=torch.finfo(torch.float32).tiny
    )


def check_lengths(model: Any) -> None:
    """Raise UnsupportedModelError when a token's logits change with how far the text goes after it,
    but not where the model was said to switch (`HFModel.switch`): frequencies that follow the
    highest position of a pass.

    Reads the same five tokens with the last one at several positions, so that a switch at any
    length costs four short passes. A model that is not told positions is left out."""
    if not model.has_positions or (model.max_length is not None and model.max_length < 6):
        return
    kind, switch = type(model.module).__name__, model.switch
    last = (model.max_length or FARTHEST) - 1
    with _one_sentence(kind), torch.inference_mode():
        near = _with_last_at(model, 4)
        _require_same(
            model, near, _with_last_at(model, last if switch is None else switch.length - 1), last
        )
        if switch is None:
            return
        with switch.turned(True):
            far = _with_last_at(model, 4)
        for position in (switch.length, last):
            _require_same(model, far, _with_last_at(model, position), position)
        with switch.turned(False):
            _require_same(model, near, _with_last_at(model, last), last)


def _with_last_at(model: Any, position: int) -> torch.Tensor:
    """Logits [4, vocab] of four tokens in a pass whose fifth stands at `position`, by the model's
    own forward."""
    ids = torch.tensor(
        [[(7919 * i + 11) % model.num_input_ids for i in range(5)]], device=model.device
    )
    places = torch.tensor([[0, 1, 2, 3, position]], device=model.device)
    mask = torch.ones_like(ids)
    out = model.module(input_ids=ids, position_ids=places, attention_mask=mask, use_cache=False)
    logits: torch.Tensor = out.logits[0, :4, : model.vocab_size].float()
    return logits


def _require_same(model: Any, one: torch.Tensor, other: torch.Tensor, position: int) -> None:
    allowed = (
        MIXED_TOLERANCE
        if model.rows_mix
        else SAME_PASS * TOLERANCE.get(model.dtype, HALF_TOLERANCE)
    )
    difference = _difference(one, other)
    if bool((difference > allowed).any()):
        raise UnsupportedModelError(
            f"{type(model.module).__name__} gives a token other logits when a later one "
            f"stands at position {position} (a"
            f" difference of {float(difference.max()):.2g} of their spread): its "
            "position encoding changes with the length of"
            " the text, so a draft would change the logits it is verified by"
        )


@contextmanager
def _one_sentence(kind: str) -> Iterator[None]:
    """Turn what a module raises into the reason why it cannot be used; running out of memory is no
    such reason."""
    try:
        yield
    except (UnsupportedModelError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise UnsupportedModelError(
            f"{kind} does not run with a cache of ours: {type(error).__name__}: {error}"
        ) from error


def _through_the_cache(
    model: Any, common: list[int], first: list[int], second: list[int]
) -> torch.Tensor:
    """Logits [5, vocab] after first[0], second[0], first[1], second[1] and first[2]; another
    sequence is read meanwhile."""
    session, other = model.open(), model.open()
    try:
        extend(Step(session, [*common, second[2]], rows=[0]))
        extend(Step(other, second, rows=[0]))
        session.rollback(len(common))
        return (_as_a_tree if model.supports_trees else _as_chains)(session, first, second)
    finally:
        session.close()
        other.close()


def _as_a_tree(session: Any, first: list[int], second: list[int]) -> torch.Tensor:
    tree = extend(
        Step(session, [first[0], second[0], first[1], second[1]], parents=[-1, -1, 0, 1])
    ).logits
    session.keep([0, 2])
    return torch.cat([tree, extend(Step(session, [first[2]])).logits])


def _as_chains(session: Any, first: list[int], second: list[int]) -> torch.Tensor:
    start = session.length
    ways = []
    for way in (second, first):
        session.rollback(start)
        ways.append(extend(Step(session, way[:2])).logits)
    on_second, on_first = ways
    last = extend(Step(session, [first[2]])).logits
    return torch.cat([on_first[:1], on_second[:1], on_first[1:], on_second[1:], last])


def find_continuing(model: Any) -> Continuing:
    """How a model with recurrent layers reads several tokens at once: from its states, or blind to
    them.

    Some layers of transformers use their state when one token is read and ignore it when several
    are (Mamba 1 and Jamba in 5.24). Found by putting two states under the same two tokens: equal
    logits mean that the state was not looked at."""
    model.continuing = Continuing.WITH_STATES
    with _one_sentence(type(model.module).__name__):
        _require_states(model)
        for name in ("conv_states", "recurrent_states"):
            ones, twos = (_with_states(model, name, value) for value in (0.0, 1.0))
            if ones is not None and torch.equal(ones, twos):
                return Continuing.TOKEN_BY_TOKEN
    return Continuing.WITH_STATES


def _require_states(model: Any) -> None:
    """Raise UnsupportedModelError when a recurrent layer leaves nothing in the cache: its state
    cannot be restored."""
    session = model.open()
    try:
        extend(Step(session, [1, 2, 3], rows=[]))
        for index, kind in enumerate(model.layer_kinds):
            if kind.num_states and not _states(session.cache.layers[index]):
                raise UnsupportedModelError(
                    f"layer {index} of {type(model.module).__name__} is "
                    f"{kind.layer_type} and keeps its state in itself, where"
                    " a rejected draft would stay"
                )
    finally:
        session.close()


def _with_states(model: Any, name: str, value: float) -> Any:
    """Logits [2, vocab] of two tokens read together after every state called `name` was set to
    `value`; None without any."""
    session = model.open()
    try:
        extend(Step(session, [1, 2, 3], rows=[]))
        states = [state for layer in session.cache.layers for state in _states(layer, name)]
        with torch.inference_mode():
            for state in states:
                state.fill_(value)
        return extend(Step(session, [4, 5])).logits if states else None
    finally:
        session.close()


def _states(layer: Any, *names: str) -> list[torch.Tensor]:
    """What a layer of the cache holds under these names, both kinds by default."""
    found = [
        getattr(layer, name, {}).values() for name in names or ("conv_states", "recurrent_states")
    ]
    return [state for states in found for state in states if state is not None]
