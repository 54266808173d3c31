"""The run itself: every arm on every prompt, interleaved prompt by prompt in alternating order,
warm-up apart, repeated."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from draftproof.bench.arms import Arm
from draftproof.bench.hygiene import calibration_pass
from draftproof.bench.runs import Run
from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError
from draftproof.workloads.prompt_files import Encoded

WARM_UP_TOKENS = 12
Progress = Callable[[str, int, int], None]
"""(what begins, how many pieces of work are done, of how many)."""


@dataclass(frozen=True)
class Measured:
    """One run with its place: arm's name, prompt's index, repetition, and how many runs came before
    it."""

    arm: str
    prompt: int
    repeat: int
    order: int
    run: Run


@dataclass(frozen=True)
class Measurement:
    """Everything raw. calibrations: seconds of a fixed piece of work before every prompt; loads:
    the system's load then. ended_by: what ended it early, and then `runs` are those of the prompts
    that every arm had finished."""

    arms: tuple[Arm, ...]
    prompts: tuple[Encoded, ...]
    params: SamplingParams
    repeats: int
    runs: tuple[Measured, ...]
    calibrations: tuple[float, ...]
    loads: tuple[float, ...] = field(default=())
    ended_by: BaseException | None = None

    @property
    def interrupted(self) -> bool:
        """Whether it was ended early."""
        return self.ended_by is not None

    def of(self, arm: str) -> list[Measured]:
        """The runs of one arm, in order."""
        return [measured for measured in self.runs if measured.arm == arm]


def measure(
    arms: Sequence[Arm],
    prompts: Sequence[Encoded],
    params: SamplingParams,
    repeats: int = 1,
    *,
    progress: Progress | None = None,
    calibrate: Callable[[], float] = calibration_pass,
) -> Measurement:
    """Run all arms. A prompt has one seed, `params.seed` plus its number, for every arm and
    repetition. An interruption from the keyboard, or an arm that fails, ends it with what every arm
    has finished; it is raised when that is nothing.

    UsageError: fewer than one prompt, arms of the same name, no seed."""
    check(arms, prompts, params)
    tell = progress or (lambda *_: None)
    total = len(arms) * (1 + len(prompts) * repeats)
    for number, arm in enumerate(arms):
        tell(f"warm-up, {arm.name}", number, total)
        arm.run(prompts[0].ids, warm_up(params))
    runs: list[Measured] = []
    calibrations: list[float] = []
    loads: list[float] = []
    ended_by: BaseException | None = None
    try:
        for turn in range(len(prompts) * repeats):
            repeat, index = divmod(turn, len(prompts))
            seeded = replace(params, seed=(params.seed or 0) + index)
            calibrations.append(calibrate())
            loads.append(_load())
            for arm in order_of(arms, index + repeat):
                tell(
                    f"{arm.name}, prompt {index + 1} of {len(prompts)}",
                    len(arms) + len(runs),
                    total,
                )
                runs.append(
                    Measured(
                        arm.name, index, repeat, len(runs), arm.run(prompts[index].ids, seeded)
                    )
                )
    except (KeyboardInterrupt, Exception) as ended:
        ended_by = ended
        del runs[len(runs) // len(arms) * len(arms) :]
        if not runs:
            raise
    tell("done", total, total)
    return Measurement(
        tuple(arms),
        tuple(prompts),
        params,
        repeats,
        tuple(runs),
        tuple(calibrations),
        tuple(loads),
        ended_by,
    )


def warm_up(params: SamplingParams) -> SamplingParams:
    """The parameters of a short run, before any that counts."""
    short = min(WARM_UP_TOKENS, params.max_tokens or WARM_UP_TOKENS)
    return replace(params, max_tokens=short, min_tokens=min(params.min_tokens, short))


def order_of(arms: Sequence[Any], turn: int) -> list[Any]:
    """The arms in an order that alternates: forwards and backwards, beginning with another one each
    time."""
    shift = (turn // 2) % len(arms)
    order = [*arms[shift:], *arms[:shift]]
    return order[::-1] if turn % 2 else order


def check(arms: Sequence[Arm], prompts: Sequence[Encoded], params: SamplingParams) -> None:
    """UsageError for what could not be measured fairly."""
    if not prompts:
        raise UsageError("there is no prompt to measure on")
    check_arm_names([arm.name for arm in arms])
    if params.n > 1:
        raise UsageError("a measurement takes one text of each prompt: leave out n")
    if params.seed is None:
        raise UsageError("a measurement needs a seed, so that it can be repeated")


def check_arm_names(names: Sequence[str]) -> None:
    """UsageError for a name that stands there twice."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two arms are called {twice!r}; an arm is measured once")


def _load() -> float:
    """The one-minute load average; nan where the system has none."""
    getload: Any = getattr(os, "getloadavg", None)
    try:
        return float(getload()[0]) if getload else float("nan")
    except OSError:
        return float("nan")
