"""What gives logits: the protocol, `TableModel`, the Hugging Face adapter, engines, loading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.models.drafts import DraftModels as DraftModels
    from draftproof.models.engine import load_engine as load_engine
    from draftproof.models.load import load_model as load_model

__all__ = [
    "DraftModels",
    "load_engine",
    "load_model",
]

_HOMES = {
    "DraftModels": "draftproof.models.drafts",
    "load_engine": "draftproof.models.engine",
    "load_model": "draftproof.models.load",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
