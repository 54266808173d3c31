"""How long a model's passes take here: a plain step, and a short verification; and waiting for a
GPU."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

from draftproof.models.protocol import Step, extend

TOKENS = (1, 5)
CONTEXT = 32
REPEATS = 5


def device_kind(device: Any) -> str:
    """The kind of a model's `device`, such as "cpu" or "cuda"; a model without one is on the
    host."""
    return "cpu" if device is None else str(device.type)


def wait_for(device: Any) -> None:
    """Until everything asked of `device` is done, if it is a GPU; other devices return from a pass
    when it is over."""
    if device_kind(device) == "cuda":
        import torch

        torch.cuda.synchronize(device)


def pass_seconds(model: Any) -> dict[str, float]:
    """Median seconds of a pass over 1 and over 5 tokens after a short context, in turns; a glance,
    not a benchmark."""
    context = CONTEXT if model.max_length is None else min(CONTEXT, model.max_length - max(TOKENS))
    if context < 1:
        return {}
    session = model.open()
    times: dict[int, list[float]] = {count: [] for count in TOKENS}
    try:
        extend(Step(session, [1] * context, rows=[context - 1]))
        for turn in range(REPEATS + 1):
            for count in TOKENS:
                session.rollback(context)
                begin = perf_counter()
                float(extend(Step(session, [1] * count)).logits[0, 0])  # waits for the device
                if turn > 0:
                    times[count].append(perf_counter() - begin)
    finally:
        session.close()
    return {str(count): median(found) for count, found in times.items()}
