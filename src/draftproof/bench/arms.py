"""Arms: the ways of generating that a run compares. An arm takes token ids and parameters and hands
back a `Run`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from draftproof.bench.runs import Run, chunks_of_rounds, round_parts
from draftproof.core.params import SamplingParams
from draftproof.decode.decoder import Decoder, SpeculativeDecoder
from draftproof.models.protocol import LanguageModel
from draftproof.models.steps import device_kind

PLAIN = "plain"


class Arm(Protocol):
    """name: unique in a run, on every row. remembers: it may keep something from one request to the
    next, so that a repeated prompt may rightly be faster. exact: its text must equal plain
    decoding's whenever `comparable` says so. method, rule, lossless: for the statistics."""

    name: str
    remembers: bool
    method: str
    rule: str | None
    lossless: bool

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        """Generate once."""

    def must_equal_plain(self, params: SamplingParams) -> bool:
        """Whether its tokens should be plain decoding's, up to rounding."""


class OurArm:
    """draftproof's own decoding, plain (`decoder.plain`) or with a drafter, whose configuration is
    kept in `config`. It remembers where the drafter, or one of several, has a store that requests
    share."""

    def __init__(self, name: str, decoder: Decoder) -> None:
        self.name, self.decoder = name, decoder
        drafter = decoder.drafter
        self.remembers = drafter is not None and bool(drafter.memories)
        self.method = drafter.name if drafter else "none"
        self.rule: str | None = (
            decoder.rule.name if isinstance(decoder, SpeculativeDecoder) and drafter else None
        )
        self.lossless = decoder.rule.lossless if isinstance(decoder, SpeculativeDecoder) else True
        self.config = (
            decoder.config.as_dict()
            if isinstance(decoder, SpeculativeDecoder) and drafter
            else None
        )

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        with peak_memory(self.decoder.target) as peak:
            output = self.decoder.generate(ids, params).outputs[0]
        return Run(
            token_ids=output.token_ids,
            text=output.text,
            seconds=output.seconds,
            chunks=chunks_of_rounds(output.rounds),
            rounds=output.rounds,
            num_rounds=len(output.rounds),
            parts=round_parts(output.rounds),
            peak_memory_bytes=peak(),
        )

    def must_equal_plain(self, params: SamplingParams) -> bool:
        if not isinstance(self.decoder, SpeculativeDecoder):
            return True
        rule = self.decoder.rule_for(params)
        return rule.lossless and rule.name == "match"


@contextmanager
def peak_memory(target: LanguageModel) -> Iterator[Any]:
    """Yields a function that gives the most memory held since: of the GPU the target is on, else of
    this process (Linux).

    The process holds every arm's models at once, so figures of arms differ by caches and working
    space only."""
    if device_kind(target.device) == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(target.device)
        yield lambda: int(torch.cuda.max_memory_allocated(target.device))
        return
    yield _process_peak if _reset_process_peak() else lambda: None


def _reset_process_peak() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _process_peak() -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None
