"""The ASGI application: which path does what, who may come in, and what is logged and counted of
each request."""

from __future__ import annotations

import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from draftproof import __version__
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.serve import chat, completions, texts
from draftproof.serve.answers import Answer, Writer
from draftproof.serve.body import parse, read_bytes
from draftproof.serve.errors import ApiError
from draftproof.serve.logs import log_request
from draftproof.serve.metrics import CONTENT_TYPE
from draftproof.serve.running import Running
from draftproof.serve.schemas import (
    Body,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    Sampled,
    TokenizeBody,
    read,
)
from draftproof.serve.service import Prompt, Service
from draftproof.serve.settings import Settings
from draftproof.serve.streaming import ClientGone, EventStream, unless_gone
from draftproof.serve.viewer import viewer

LOG = logging.getLogger("draftproof.serve")
OPEN_PATHS = ("/health", "/version", "/metrics", "/viewer")
"""What may be read without the key."""

Returned = TypeVar("Returned")
Checked = TypeVar("Checked")


def create_app(decoder: SpeculativeDecoder, settings: Settings) -> Starlette:
    """The application over `decoder`; `app.state.service` is what runs it, from its start-up to its
    shutdown."""
    service = Service(decoder, settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.worker.start()
        try:
            yield
        finally:
            service.stop()

    endpoints = Endpoints(service)
    app = Starlette(routes=endpoints.routes(), lifespan=lifespan, exception_handlers=HANDLERS)
    app.state.service = service
    return app


class Endpoints:
    """One method a path."""

    def __init__(self, service: Service) -> None:
        self._service, self._settings = service, service.settings

    def routes(self) -> list[Route]:
        """All paths."""
        gets: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/health": self.health,
            "/version": self.version,
            "/metrics": self.metrics,
            "/viewer": viewer,
            "/v1/models": self.models,
            "/v1/models/{model:path}": self.model,
        }
        posts: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/v1/completions": self.completions,
            "/v1/chat/completions": self.chat,
            "/tokenize": self.tokenize,
            "/detokenize": self.detokenize,
        }
        return [
            *(
                Route(path, self._guarded(path, handler), methods=["GET"])
                for path, handler in gets.items()
            ),
            *(
                Route(path, self._guarded(path, handler), methods=["POST"])
                for path, handler in posts.items()
            ),
        ]

    async def health(self, request: Request) -> Response:
        """200 while requests are taken."""
        if self._service.is_stopping or not self._service.worker.is_alive:
            raise ApiError("the server takes no requests", status=503)
        return Response()

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": __version__})

    async def metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["model"])
        return JSONResponse(self._model())

    async def tokenize(self, request: Request) -> Response:
        body = await self._read(request, TokenizeBody)
        return JSONResponse(await self._service.check(texts.tokenize, body, self._service))

    async def detokenize(self, request: Request) -> Response:
        body = await self._read(request, DetokenizeBody)
        return JSONResponse(await self._service.check(texts.detokenize, body, self._service))

    async def completions(self, request: Request) -> Response:
        body = await self._read(request, CompletionBody)
        asked = await self._service.check(completions.check, body, self._service)
        return await self._answer(
            request, body, asked.prompts, completions.CompletionWriter(asked, self._service)
        )

    async def chat(self, request: Request) -> Response:
        body = await self._read(request, ChatBody)
        asked = await self._service.check(chat.check, body, self._service)
        return await self._answer(
            request, body, (asked.prompt,), chat.ChatWriter(asked, self._service)
        )

    async def _answer(
        self, request: Request, body: Sampled, prompts: tuple[Prompt, ...], writer: Writer
    ) -> Response:
        if body.stream_options is not None and not body.stream:
            raise ApiError("stream_options are read where stream is true", "stream_options")
        answer = Answer(body, writer, self._settings.model)
        running = Running(self._service, prompts)
        began = perf_counter()

        def finish(how: str) -> None:
            running.close()
            person = {"user": body.user, "request_id": answer.id}
            log_request(
                how,
                path=request.url.path,
                seconds=round(perf_counter() - began, 6),
                **person,
                **running.log_fields(),
            )

        if body.stream:
            return EventStream(answer.parts(running), finish, self._settings.io_timeout)
        how = "failed"
        try:
            whole = await unless_gone(request.receive, answer.whole(running))
            how = "done"
            return JSONResponse(whole)
        except ClientGone:
            how = "client gone"
            raise
        finally:
            finish(how)

    async def _read(self, request: Request, kind: type[Body]) -> Body:
        data = await read_bytes(request, self._settings.max_body_bytes, self._settings.io_timeout)
        body = await self._service.check(lambda: read(kind, parse(data)))
        self._check_model(body.model)
        return body

    def _check_model(self, name: str | None) -> None:
        if name not in (None, self._settings.model):
            message = (
                f"there is no model {str(name)[:80]!r}; this server has {self._settings.model!r}"
            )
            raise ApiError(message, "model", status=404, code="model_not_found")

    def _model(self) -> dict[str, Any]:
        return {
            "id": self._settings.model,
            "object": "model",
            "created": self._service.created,
            "owned_by": "draftproof",
            "root": self._service.target.name,
            "parent": None,
            "max_model_len": self._service.target.max_length,
        }

    def _guarded(
        self, path: str, handler: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """`handler`, for those who may come in; every error as an answer, every answer counted."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_key(path, request)
                if self._service.is_stopping and path not in OPEN_PATHS:
                    raise ApiError("the server is going down", status=503)
                response = await handler(request)
            except ApiError as error:
                response = error.response()
            except ClientGone:
                response = Response(status_code=499)  # nobody reads it
            except Exception:
                LOG.exception("a request failed")
                response = ApiError("the server failed; its log says why", status=500).response()
            self._service.metrics.answered(path, response.status_code)
            return response

        return guarded

    def _check_key(self, path: str, request: Request) -> None:
        key = self._settings.api_key
        if key is None or path in OPEN_PATHS:
            return
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            shown.strip().encode(), key.encode()
        ):
            raise ApiError("the API key is missing or wrong", status=401, code="invalid_api_key")


async def _http_error(request: Request, error: Exception) -> Response:
    """Paths and methods that do not exist, in the same shape."""
    assert isinstance(error, HTTPException)
    response = ApiError(
        f"{request.method} {request.url.path[:200]}: {error.detail}", status=error.status_code
    ).response()
    response.headers.update(error.headers or {})
    return response


HANDLERS: Any = {HTTPException: _http_error}
