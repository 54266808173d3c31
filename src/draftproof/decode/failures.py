"""Which errors end one sequence of several and leave the others alone, and the sentence that tells
the caller."""

from __future__ import annotations

from draftproof.errors import DraftproofError

_SIGNS = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")
"""What torch's allocators say in a RuntimeError; only CUDA's has a class of its own."""


def is_memory_error(error: BaseException) -> bool:
    """Whether memory ran out, on whatever device."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)


def belongs_to_one_row(error: BaseException) -> bool:
    """Whether `error` is about the sequence it was raised in: its memory, its logits, its length.
    Anything else is a fault of the program, or of a callable of the caller's, and stops
    everything."""
    return isinstance(error, DraftproofError) or is_memory_error(error)


def explain(error: BaseException) -> str:
    """One sentence."""
    if is_memory_error(error):
        return (
            "memory ran out while this prompt was read or continued; a smaller batch size or "
            "a shorter prompt needs less"
        )
    return str(error).strip().split("\n")[0]
