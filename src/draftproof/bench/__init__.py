"""Measure: arms of several engines on the same prompts, interleaved, with everything a figure
depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.bench.compare import compare_with_plain as compare_with_plain
    from draftproof.bench.run import measure as measure
    from draftproof.bench.specs import build_arms as build_arms
    from draftproof.bench.specs import parse_spec as parse_spec
    from draftproof.bench.summary import document as document
    from draftproof.bench.whole import benchmark as benchmark
    from draftproof.bench.whole import specs_of as specs_of
    from draftproof.workloads.conversations import with_later_turns as with_later_turns
    from draftproof.workloads.prompt_files import builtin_items as builtin_items
    from draftproof.workloads.prompt_files import encode as encode
    from draftproof.workloads.prompt_files import read_items as read_items

__all__ = [
    "benchmark",
    "build_arms",
    "builtin_items",
    "compare_with_plain",
    "document",
    "encode",
    "measure",
    "parse_spec",
    "read_items",
    "specs_of",
    "with_later_turns",
]

_HOMES = {
    "benchmark": "draftproof.bench.whole",
    "build_arms": "draftproof.bench.specs",
    "builtin_items": "draftproof.workloads.prompt_files",
    "compare_with_plain": "draftproof.bench.compare",
    "document": "draftproof.bench.summary",
    "encode": "draftproof.workloads.prompt_files",
    "measure": "draftproof.bench.run",
    "parse_spec": "draftproof.bench.specs",
    "read_items": "draftproof.workloads.prompt_files",
    "specs_of": "draftproof.bench.whole",
    "with_later_turns": "draftproof.workloads.conversations",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
