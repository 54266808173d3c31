"""The log: one JSON object a line. What clients wrote and what they were answered is not in it."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any, TextIO

REQUEST = logging.getLogger("draftproof.serve.request")


class JsonLines(logging.Formatter):
    """time, level, logger, message, what `extra={"fields": …}` brings, and the traceback of an
    error."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= vars(record).get("fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to(stream: TextIO = sys.stderr, level: int = logging.INFO) -> None:
    """Send everything that is logged to `stream`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=level, force=True)


def log_request(message: str, **fields: Any) -> None:
    """One request, at its end; fields that are None are left out."""
    REQUEST.info(
        message,
        extra={"fields": {name: value for name, value in fields.items() if value is not None}},
    )
