"""A request's bytes as a JSON object: read within limits of size and time, and refused where JSON
leaves room for doubt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from draftproof.serve.errors import ApiError


async def read_bytes(request: Request, limit: int, seconds: float) -> bytes:
    """The body. ApiError: another type than JSON (which keeps pages of other origins from posting),
    too long, too slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            f"the content type is {kind or 'missing'}; send application/json", status=415
        )
    too_long = ApiError(f"the body is longer than the {limit} bytes that are taken", status=413)
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length[:20]) > limit:
        raise too_long
    try:
        return await asyncio.wait_for(_gather(request, limit, too_long), seconds)
    except asyncio.TimeoutError:
        raise ApiError(f"the body did not arrive within {seconds:g} seconds", status=408) from None
    except ClientDisconnect:
        raise ApiError("the client went away before its request was whole", status=400) from None


async def _gather(request: Request, limit: int, too_long: ApiError) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_long
        parts.append(part)
    return b"".join(parts)


def parse(data: bytes) -> dict[str, Any]:
    """The object. ApiError: no UTF-8, no JSON, no object, a key twice, NaN or infinity, half of a
    character."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise ApiError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError:
        raise ApiError("the body is nested too deeply") from None
    except ValueError as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ApiError(f"the body is a JSON {type(value).__name__}; it must be an object")
    if "\\ud" in text.lower():
        _check_characters(value)
    return value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ApiError(f"the field {name[:80]!r} is given twice", name[:80])
        found[name] = value
    return found


def _no_number(constant: str) -> NoReturn:
    raise ApiError(f"{constant} is no number of JSON")


def _check_characters(value: Any) -> None:
    """Halves of surrogate pairs are characters to JSON, and to nothing else."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ApiError(
            "the body holds one half of a surrogate pair, which is no character"
        ) from None
