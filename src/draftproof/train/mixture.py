"""The prompts of one run: a file of the user's, the built-in kinds, or both, without duplicates, in
an order of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from draftproof.errors import UsageError
from draftproof.train.builtin import KINDS
from draftproof.train.prompts import TrainPrompt, read_prompts


def gather(
    path: str | Path | None = None, *, kinds: Sequence[str] = (), limit: int | None = None
) -> list[TrainPrompt]:
    """The prompts of a file (None: none), with the built-in `kinds` ("chat", "code", "summary")
    beside them, without duplicates, at most `limit`. Their order is a hash of their content: any
    prefix is the mixture.
    Without a file and without kinds: the whole built-in mixture."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise UsageError(
            f"there is no built-in kind of prompt {unknown[0]!r}; allowed: {', '.join(KINDS)}"
        )
    found = [] if path is None else read_prompts(path)
    for kind in kinds or (KINDS if path is None else ()):
        found += KINDS[kind]()
    unique = {prompt.key: prompt for prompt in found}
    return [unique[key] for key in sorted(unique)][:limit]
