"""Which rows of a text are trained, and on which label: exactly those that draft when the text is
generated.

A text is `prompt` tokens and an answer. Row t of a head has seen the target's state after token t
and, for EAGLE, token t + 1. What it guesses `ahead` positions on (1, 2, ...) is token t + 1 +
ahead, and the law it should have is the target's after token t + ahead. At run time the target
itself draws the answer's first token while it reads the prompt, so the first draft comes from row
prompt - 1, the last one of the prompt, and guesses the answer's second token. A loss mask that is
not moved along with the labels leaves that row out (a published fault): the very first draft after
every prompt is then never trained."""

from __future__ import annotations


def trained_rows(length: int, prompt: int, ahead: int) -> range:
    """The rows of a text of `length` tokens whose guess `ahead` positions on is drafted when the
    answer is generated."""
    return range(max(prompt - 1, 0), max(length - 1 - ahead, max(prompt - 1, 0)))


def label_position(row: int, ahead: int) -> int:
    """The position of the token that a row guesses `ahead` positions on."""
    return row + 1 + ahead


def law_position(row: int, ahead: int) -> int:
    """The position after which the target's law is the one that guess should follow."""
    return row + ahead
