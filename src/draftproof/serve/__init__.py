"""An OpenAI-compatible server over one target: every request drafted, verified and batched beside
the others.

`draftproof serve` runs it; `create_app` makes the same as an ASGI application for a server of your
own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.serve.app import create_app as create_app
    from draftproof.serve.settings import Settings as Settings

__all__ = ["Settings", "create_app"]

_HOMES = {"Settings": "draftproof.serve.settings", "create_app": "draftproof.serve.app"}

__getattr__, __dir__ = lazily(__name__, _HOMES)
