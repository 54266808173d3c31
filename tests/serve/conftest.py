"""A tiny random model behind the server, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.testclient import TestClient

from draftproof.serve import Settings, create_app
from serving import make_decoder


@pytest.fixture
def serve() -> Iterator[Callable[..., TestClient]]:
    """A client of a server over `make_decoder`; arguments: its decoder and its settings."""
    with ExitStack() as stack:

        def start(decoder: Any = None, **settings: Any) -> TestClient:
            app = create_app(decoder or make_decoder(), Settings(model="tiny", **settings))
            return stack.enter_context(TestClient(app))

        yield start
