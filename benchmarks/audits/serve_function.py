"""A function of prompt ids and a seed behind `/v1/completions`, for `draftproof audit --black-box
--url`.

    PYTHONPATH=benchmarks/audits python benchmarks/audits/serve_function.py my_texts:sample 8123

It takes prompts of token ids, and answers with ids. Needs nothing but Python. The function samples
as it likes: of the fields of a request only `seed` is read, and a text is cut at `max_tokens`.
"""

from __future__ import annotations

import importlib
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

PLACE, PORT = sys.argv[1], int(sys.argv[2])
MODULE, NAME = PLACE.split(":")
FUNCTION = getattr(importlib.import_module(MODULE), NAME)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": PLACE, "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids = list(FUNCTION(asked["prompt"], asked["seed"]))[: asked["max_tokens"]]
        choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": "length"}
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": len(ids)}
        self.answer(
            {"object": "text_completion", "model": PLACE, "choices": [choice], "usage": usage}
        )

    def answer(self, found: dict[str, Any]) -> None:
        data = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing a request."""


HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
