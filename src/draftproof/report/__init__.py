"""How results are shown: tables for people, one JSON document for machines, figures for both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.report.documents import names_of as names_of
    from draftproof.report.documents import read_document as read_document
    from draftproof.report.documents import sections_of as sections_of
    from draftproof.report.page import comparison_page as comparison_page
    from draftproof.report.page import write_json as write_json
    from draftproof.report.page import write_page as write_page
    from draftproof.report.tables import json_line as json_line
    from draftproof.report.tables import print_result as print_result

__all__ = [
    "comparison_page",
    "json_line",
    "names_of",
    "print_result",
    "read_document",
    "sections_of",
    "write_json",
    "write_page",
]

_HOMES = {
    "comparison_page": "draftproof.report.page",
    "json_line": "draftproof.report.tables",
    "names_of": "draftproof.report.documents",
    "print_result": "draftproof.report.tables",
    "read_document": "draftproof.report.documents",
    "sections_of": "draftproof.report.documents",
    "write_json": "draftproof.report.page",
    "write_page": "draftproof.report.page",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
