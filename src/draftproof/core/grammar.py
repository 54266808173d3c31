"""What a grammar is to the laws of a request: which tokens may come next, from any place of its
text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]


class Matcher(Protocol):
    """A place in the text of one request."""

    def fork(self) -> Matcher:
        """A copy that goes on by itself."""

    def consume(self, token: int) -> bool:
        """Go past `token`; False, and nothing more is allowed, where the grammar has it not."""

    def mask(self) -> Mask:
        """The tokens [vocab] that may come next, end tokens where the text may end."""

    def forced(self) -> tuple[int, ...]:
        """Tokens that the grammar expects next because the characters are certain; others may spell
        the same."""


@runtime_checkable
class Grammar(Protocol):
    """A compiled grammar over one vocabulary, shared by requests."""

    @property
    def vocab_size(self) -> int:
        """Token ids it is over."""

    def as_dict(self) -> dict[str, Any]:
        """What was asked for, as JSON has it."""

    def begin(self) -> Matcher:
        """Before the first generated token."""
