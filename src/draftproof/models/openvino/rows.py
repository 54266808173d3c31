"""A few short passes that show whether a row's logits depend, to the last bit, on what is read
beside it."""

from __future__ import annotations

from typing import Any

import torch

from draftproof.models.openvino.passes import FEWEST
from draftproof.models.protocol import Step, extend

IDENTICAL = "identical"
_CONTEXT, _READ = 37, 8
_FEWER = (3, 4, 5, 6)


def settle_rows(model: Any) -> str:
    """What `check_rows` finds, with the least tokens a pass with which rows are identical; where
    none makes them so, with the fewest."""
    first = ""
    for count in FEWEST:
        model.least_tokens = count
        found = check_rows(model)
        if found == IDENTICAL:
            return found
        first = first or found
    model.least_tokens = FEWEST[0]
    return first


def check_rows(model: Any) -> str:
    """`IDENTICAL`, or what differs and by how much at most, of the logits after the same tokens:
    read one by one against together; with other tokens after them; as a way down a tree; beside
    another sequence; and as part of a longer pass."""
    room = model.max_length if model.max_length is not None else _CONTEXT + 2 * _READ
    context, read = max(1, min(_CONTEXT, room // 3)), max(1, min(_READ, room // 3))
    ids = [(7919 * i + 11) % model.num_input_ids for i in range(context + read)]
    first, then = ids[:context], ids[context:]
    sessions = [model.open() for _ in range(2)]
    try:
        found = _differences(model, sessions, first, then)
    finally:
        for session in sessions:
            session.close()
    largest = max(found, key=lambda what: found[what])
    return (
        IDENTICAL
        if found[largest] == 0
        else f"{largest}: logits differ by up to {found[largest]:.2g}"
    )


def _differences(
    model: Any, sessions: list[Any], first: list[int], then: list[int]
) -> dict[str, float]:
    session, other = sessions
    start, count = len(first), len(then)
    extend(Step(session, first, rows=[]))
    together = extend(Step(session, then)).logits
    expected = together.clone()
    session.rollback(start)
    alone = torch.cat([extend(Step(session, [token])).logits for token in then])
    session.rollback(start)
    fewer = torch.cat(
        [_read(session, then[:width]) for width in _FEWER if width <= count] or [alone]
    )
    half = max(1, count // 2)
    other_ids = [(token + 1) % model.num_input_ids for token in then[half:]]
    with_others = extend(Step(session, [*then[:half], *other_ids])).logits[:half]
    session.rollback(start)
    branch = [(then[0] + 1) % model.num_input_ids, *then[1:]]
    parents = [-1, -1, *range(count * 2 - 2)]
    tree = extend(
        Step(session, [t for pair in zip(then, branch, strict=True) for t in pair], parents)
    ).logits[::2]
    session.rollback(start)
    extend(Step(other, branch, rows=[]))
    beside = model.extend_many([Step(other, [1]), Step(session, then)])[1].logits
    other.rollback(0)
    longer = extend(Step(other, [*first, *then])).logits[start:]
    few = torch.cat([expected[:width] for width in _FEWER if width <= count] or [expected])
    rows = {
        "rows of a shorter pass": (fewer, few),
        "rows read one by one": (alone, expected),
        "rows with other tokens after them": (with_others, expected[:half]),
        "rows of a tree": (tree, expected),
        "rows beside another sequence": (beside, expected),
        "rows of a longer pass": (longer, expected),
    }
    return {what: float((one - two).abs().max()) for what, (one, two) in rows.items()}


def _read(session: Any, tokens: list[int]) -> torch.Tensor:
    """The logits after all of `tokens`, which are forgotten again."""
    start = session.length
    found = extend(Step(session, tokens)).logits
    session.rollback(start)
    return torch.as_tensor(found)
