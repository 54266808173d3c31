"""What drafters keep: counted texts, tables and files. None of these proposes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.drafters.stores.corpus import build_store as build_store
    from draftproof.drafters.stores.files import read_store as read_store
    from draftproof.drafters.stores.files import write_store as write_store

__all__ = [
    "build_store",
    "read_store",
    "write_store",
]

_HOMES = {
    "build_store": "draftproof.drafters.stores.corpus",
    "read_store": "draftproof.drafters.stores.files",
    "write_store": "draftproof.drafters.stores.files",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
