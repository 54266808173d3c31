"""Drives generators that yield forward passes: here one sequence at a time; the passes of many can
be joined in one place."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from draftproof.models.protocol import Output, Step, extend

Returned = TypeVar("Returned")


def drive(steps: Generator[Step, Output, Returned]) -> Returned:
    """Run every pass that `steps` asks for, and give back what it returns."""
    try:
        step = next(steps)
        while True:
            step = steps.send(extend(step))
    except StopIteration as done:
        value: Returned = done.value
        return value
