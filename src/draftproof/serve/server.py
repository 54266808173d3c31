"""The process: the application under uvicorn. SIGTERM or Ctrl-C: what runs is finished, what comes
is refused, exit 0."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from draftproof.errors import UsageError
from draftproof.serve.logs import log_to

MOST_HEADER_BYTES = 64 * 1024
MOST_CONNECTIONS_WAITING = 2048
IDLE_SECONDS = 15


class Server(uvicorn.Server):
    """uvicorn's, with an orderly end of its own: nothing is raised again once everything is
    done."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._app = app

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal does not wait for what runs."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._app.state.service.is_stopping = True


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens nowhere yet; port 0 takes a free one. UsageError when the address is
    taken or none of ours."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"--host {host} --port {port}: {getattr(error, 'strerror', None) or error}"
        ) from error
    return bound


def run(app: Starlette, bound: socket.socket) -> None:
    """Serve until a signal comes."""
    log_to()
    config = uvicorn.Config(
        app,
        http="h11",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        backlog=MOST_CONNECTIONS_WAITING,
        timeout_keep_alive=IDLE_SECONDS,
    )
    Server(config, app).run(sockets=[bound])
