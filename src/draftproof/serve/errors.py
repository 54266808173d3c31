"""What a client is told when a request is refused or fails: OpenAI's error object, naming the
field."""

from __future__ import annotations

from typing import Any, NoReturn

from starlette.responses import JSONResponse

from draftproof.errors import UsageError

KINDS = {401: "authentication_error", 429: "rate_limit_error"}
"""The error's type by status; other statuses below 500 are the request's fault, and the rest the
server's."""

SECONDS_TO_WAIT = "1"
"""What a client that comes too early is told to wait."""


class ApiError(Exception):
    """status: of the answer. param: the field at fault, as `messages.0.content`. code: a word for
    programs."""

    def __init__(
        self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.param, self.status, self.code = message, param, status, code

    def body(self) -> dict[str, Any]:
        """OpenAI's shape."""
        kind = KINDS.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        return {
            "error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        }

    def response(self) -> JSONResponse:
        headers = {"Retry-After": SECONDS_TO_WAIT} if self.status in (429, 503) else {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body(), self.status, headers)


def refuse(param: str, message: str) -> NoReturn:
    """A field that holds what cannot be done."""
    raise ApiError(message, param)


def of_usage(error: UsageError, param: str | None) -> ApiError:
    """What the library says of a value, told to the client."""
    return ApiError(" ".join(str(error).split()), param)
