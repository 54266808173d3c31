"""What `doctor` found, as lines for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

MARKS = {True: "yes", False: "no", None: "?"}
WIDTH = 80
SUMMARY = 20
"""Where the summary of a method begins."""


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The whole page, no line wider than WIDTH where it can be broken."""
    for line in _lines(document):
        first = len(line) - len(line.lstrip())
        hang = (
            SUMMARY
            if line[first:].startswith(tuple(f"{mark:<4}" for mark in MARKS.values()))
            else first + 2
        )
        yield from textwrap.wrap(
            line,
            WIDTH,
            subsequent_indent=" " * hang,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield from _machine(document)
    for role in ("target", "draft"):
        if role in document:
            yield ""
            yield from _model(role, document[role])
    if "vocabularies" in document:
        found = document["vocabularies"]
        yield ""
        yield (
            "vocabularies: every id stands for the same token"
            if found["match"]
            else f"vocabularies: {found['why_not']}"
        )
    if "methods" in document:
        yield ""
        yield "methods"
        for row in document["methods"]:
            shape = ", trees too" if row["trees"] else ""
            yield f"  {MARKS[row['possible']]:<4}{row['method']:<14}{row['summary']}{shape}"
            if row["why"]:
                yield f"      {row['why']}"


def _machine(document: Mapping[str, Any]) -> Iterator[str]:
    machine = document["machine"]
    packages = machine["packages"]
    yield "draftproof " + ", ".join([str(packages["draftproof"]), f"Python {machine['python']}"])
    yield "  " + ", ".join(
        f"{name} {found or 'absent'}" for name, found in packages.items() if name != "draftproof"
    )
    memory = f", {machine['memory_bytes'] / 2**30:.0f} GiB" if machine["memory_bytes"] else ""
    yield (
        f"  {machine['processor']}, {machine['usable_cpus']} of {machine['cpus']} "
        f"CPUs{memory}, threads: {machine['threads']}"
    )
    for device in machine["devices"]:
        said = (
            f"{device['model']}, {device['memory_bytes'] / 2**30:.0f} GiB"
            if "model" in device
            else "the processor"
        )
        yield f"  {device['name']}: {said}; bf16 in hardware: {MARKS[device['native_bfloat16']]}"
    yield (
        f"products on {document['device']}, microseconds for 1 row and for 8 (a plain step, "
        "a verification)"
    )
    for row in document["dtype_speed"]:
        if row["error"]:
            yield f"  {row['dtype']:<10}{row['error']}"
        else:
            one, eight = row["seconds_1"], row["seconds_8"]
            yield (
                f"  {row['dtype']:<10}{one * 1e6:8.0f} {eight * 1e6:8.0f}   8 rows cost "
                f"{eight / one:.1f} times one"
            )


def _model(role: str, found: Mapping[str, Any]) -> Iterator[str]:
    if "error" in found:
        yield f"{role}: {found['name']} cannot be used: {found['error']}"
        return
    size = found["parameters"] / 1e6
    yield (
        f"{role}: {found['name']} ({found['class']}, {size:,.0f}M parameters, "
        f"{found['dtype']} on {found['device']})"
    )
    rows = f"; rows: {found['rows']}" if found["rows"] else ""
    yield f"  passes by {found['engine']}{rows}"
    if found["packed_layers"]:
        yield (
            f"  {found['packed_layers']} large linear layers are packed, for passes over "
            "several tokens"
        )
    yield "  layers: " + ", ".join(f"{count} x {kind}" for kind, count in found["caches"].items())
    trees = "trees and chains" if found["trees"] else "chains only"
    batch = (
        "one pass for several sequences"
        if found["shares_passes"]
        else "several sequences one after another"
    )
    yield f"  reads {trees}; {batch}; goes on {found['goes_on']}"
    yield f"  context {found['max_length'] or 'unlimited'}, vocabulary {found['vocab_size']}"
    yield f"  cache for 1,024 tokens: at most {found['bytes_for_1024_tokens'] / 2**20:.1f} MiB"
    if found["pass_seconds"]:
        one, five = found["pass_seconds"]["1"], found["pass_seconds"]["5"]
        yield (
            f"  a pass over 1 token {one * 1e3:.1f} ms, over 5 {five * 1e3:.1f} ms "
            f"({five / one:.2f} times)"
        )
    if not found["can_be_target"]:
        yield f"  can draft, but cannot be a target: {found['why_not_target']}"
    for note in found["notes"]:
        yield f"  note: {note}"
