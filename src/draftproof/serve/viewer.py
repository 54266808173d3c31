"""`/viewer`: the page that asks this server and shows what drafting does while the answer comes. It
reads the stream of `/v1/chat/completions` with `return_rounds`, as any client may."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from draftproof.view.page import live_page


async def viewer(request: Request) -> Response:
    """The page; nothing of any request is in it."""
    headers = {"Cache-Control": "no-store", "X-Frame-Options": "DENY"}
    return Response(live_page(), media_type="text/html", headers=headers)
