"""The networks of draft heads: small modules over a target's hidden states, and the folders they
are kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.heads.for_vllm import export_for_vllm as export_for_vllm

__all__ = [
    "export_for_vllm",
]

_HOMES = {
    "export_for_vllm": "draftproof.heads.for_vllm",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
