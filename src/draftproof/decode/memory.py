"""What a batch needs beside the weights, told before it runs, and what there is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from draftproof.decode.request import GenerationRequest
from draftproof.decode.speculation import Speculation
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.models.steps import device_kind

DEFAULT_BATCH_SIZE = 8


def row_bytes(
    target: LanguageModel, speculation: Speculation | None, request: GenerationRequest
) -> int | None:
    """Bytes one text takes at most, in the target's session and its drafters', and for the logits
    of a pass. None when the target cannot tell. An upper bound: texts that end early need less."""
    longest = 0 if speculation is None else speculation.longest_draft
    text = (
        len(request.prompt_token_ids)
        + (request.params.max_tokens or target.max_length or 0)
        + longest
    )
    drafter = None if speculation is None else speculation.drafter
    drafters = [] if drafter is None else list(drafter.members.values())
    total = sum(drafter.session_bytes(text) for drafter in drafters)
    for model in (target, *(drafter.model for drafter in drafters if drafter.model is not None)):
        size = model.session_bytes(
            text if model.max_length is None else min(text, model.max_length)
        )
        if size is None:
            return None
        total += size
        # one pass's rows, and the copy that is handed out
        total += 2 * (longest + 1) * model.vocab_size * 4
    return total


def batch_bytes(
    target: LanguageModel,
    speculation: Speculation | None,
    requests: Sequence[GenerationRequest],
    batch_size: int,
) -> int | None:
    """Bytes that `batch_size` of these texts need at most at the same time; None when the target
    cannot tell."""
    rows = [
        row_bytes(target, speculation, request)
        for request in requests
        for _ in range(request.params.n)
    ]
    known = sorted((row for row in rows if row is not None), reverse=True)
    # a prompt kept for the samples that wait for it
    shared = 1 if any(request.params.n > 1 for request in requests) else 0
    return sum(known[: batch_size + shared]) if len(known) == len(rows) else None


def fitting_batch_size(
    target: LanguageModel,
    speculation: Speculation | None,
    requests: Sequence[GenerationRequest],
    asked: int | None,
) -> tuple[int, int | None]:
    """The batch size to use and the bytes it needs: `asked`, or by default DEFAULT_BATCH_SIZE or
    what fits, at least 1.

    UsageError when what was asked does not fit into the free memory, with what does."""
    if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool) or asked < 1):
        raise UsageError(f"batch_size is {asked!r}; allowed: a whole number from 1")
    rows = sum(request.params.n for request in requests)
    size = min(asked or DEFAULT_BATCH_SIZE, max(rows, 1))
    needed_by, free = partial(batch_bytes, target, speculation, requests), free_bytes(target.device)
    needed = needed_by(size)
    if needed is None or free is None or needed <= free:
        return size, needed
    fits = next((n for n in range(size - 1, 0, -1) if (needed_by(n) or 0) <= free), 1)
    if asked is not None and fits < size:
        raise UsageError(
            f"a batch of {size} needs up to {in_words(needed)} beside the weights, and "
            f"{in_words(free)} are free: "
            f"{fits} at a time would fit"
        )
    return fits, needed_by(fits)


def free_bytes(device: Any) -> int | None:
    """Memory that is free on `device` (a torch device, or None for the host); None when nothing
    tells."""
    if device_kind(device) == "cuda":
        import torch

        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    return _host_bytes() if device_kind(device) == "cpu" else None


def _host_bytes(root: Path = Path("/")) -> int | None:
    """The least of what the kernel calls available and what the control group leaves, files that
    can be dropped included."""
    found = []
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        group = root / "sys/fs/cgroup"
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        stats = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        found.append(limit - used + int(stats.get("inactive_file", 0)))
    except (OSError, ValueError):  # another system, or no limit
        pass
    return max(0, min(found)) if found else None


def in_words(count: int) -> str:
    """Bytes for people: 1.5 GB, 34 MB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(1, round(count / 1e6))} MB"
