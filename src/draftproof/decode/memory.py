"""What a batch needs beside the weights, told before it runs, and what there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.errors import UsageError
from draftproof.models.steps import device_kind

if TYPE_CHECKING:
    from draftproof.core.params import SamplingParams
    from draftproof.decode.base import Decoder

DEFAULT_BATCH_SIZE = 8


def row_bytes(decoder: Decoder, num_prompt_tokens: int, params: SamplingParams) -> int | None:
    """Bytes one sequence takes at most, in the target's session and its drafters', and for the logits of a pass. None when
    the target cannot tell. An upper bound: texts that end early need less."""
    longest = decoder.longest_draft
    text = num_prompt_tokens + (params.max_tokens or decoder.target.max_length or 0) + longest
    drafters = [] if decoder.drafter is None else list(decoder.drafter.members.values())
    total = sum(drafter.session_bytes(text) for drafter in drafters)
    for model in (decoder.target, *(drafter.model for drafter in drafters if drafter.model is not None)):
        size = model.session_bytes(text if model.max_length is None else min(text, model.max_length))
        if size is None:
            return None
        total += size
        total += 2 * (longest + 1) * model.vocab_size * 4  # one pass's rows, and the copy that is handed out
    return total


def batch_bytes(decoder: Decoder, requests: Sequence[tuple[Sequence[int], SamplingParams]], batch_size: int) -> int | None:
    """Bytes that `batch_size` of these sequences need at most at the same time; None when the target cannot tell."""
    rows = [row_bytes(decoder, len(ids), params) for ids, params in requests for _ in range(params.n)]
    known = sorted((row for row in rows if row is not None), reverse=True)
    shared = 1 if any(params.n > 1 for _, params in requests) else 0  # a prompt kept for the samples that wait for it
    return sum(known[: batch_size + shared]) if len(known) == len(rows) else None


def fitting_batch_size(
    decoder: Decoder, requests: Sequence[tuple[Sequence[int], SamplingParams]], asked: int | None
) -> tuple[int, int | None]:
    """The batch size to use and the bytes it needs: `asked`, or by default DEFAULT_BATCH_SIZE or what fits, at least 1.

    UsageError when what was asked does not fit into the free memory, with what does."""
    if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool) or asked < 1):
        raise UsageError(f"batch_size is {asked!r}; allowed: a whole number from 1")
    rows = sum(params.n for _, params in requests)
    size = min(asked or DEFAULT_BATCH_SIZE, max(rows, 1))
    needed, free = batch_bytes(decoder, requests, size), free_bytes(decoder.target.device)
    if needed is None or free is None or needed <= free:
        return size, needed
    fits = next((n for n in range(size - 1, 0, -1) if (batch_bytes(decoder, requests, n) or 0) <= free), 1)
    if asked is not None and fits < size:
        raise UsageError(
            f"a batch of {size} needs up to {in_words(needed)} beside the weights, and {in_words(free)} are free: "
            f"{fits} at a time would fit"
        )
    return fits, batch_bytes(decoder, requests, fits)


def free_bytes(device: Any) -> int | None:
    """Memory that is free on `device` (a torch device, or None for the host); None when nothing tells."""
    if device_kind(device) == "cuda":
        import torch

        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    return _host_bytes() if device_kind(device) == "cpu" else None


def _host_bytes(root: Path = Path("/")) -> int | None:
    """The least of what the kernel calls available and what the control group leaves, files that can be dropped included."""
    found = []
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        group = root / "sys/fs/cgroup"
        limit, used = int((group / "memory.max").read_text()), int((group / "memory.current").read_text())
        stats = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        found.append(limit - used + int(stats.get("inactive_file", 0)))
    except (OSError, ValueError):  # another system, or no limit
        pass
    return max(0, min(found)) if found else None


def in_words(count: int) -> str:
    """Bytes for people: 1.5 GB, 34 MB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(1, round(count / 1e6))} MB"
