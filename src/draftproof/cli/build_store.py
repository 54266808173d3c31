"""`draftproof build-store`: from a corpus to the file that `ngram_cache` and `retrieval` look
in."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from draftproof.cli.options import Json, RemoteCode, Target
from draftproof.cli.progress import waiting
from draftproof.errors import UsageError

Corpus = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="What to count: text files, .jsonl files with a text a line, or folders of such.",
        show_default=False,
    ),
]
Kind = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="NAME",
        help="The method that will look things up in it: ngram_cache or retrieval.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="FILE", help="File to write the store to; replaced if it is there."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("build-store")(build)


def build(
    corpus: Corpus,
    method: Kind,
    out: Out,
    target: Target = None,
    trust_remote_code: RemoteCode = False,
    as_json: Json = False,
) -> None:
    """Count a corpus into a store: a safetensors file with a checksum, bound to the target's
    tokenizer."""
    from draftproof.drafters.stores.corpus import (
        BUILDERS,
        build_store,
        corpus_files,
        read_documents,
    )
    from draftproof.drafters.stores.files import write_store
    from draftproof.report.page import check_writable

    if method not in BUILDERS:
        raise UsageError(f"--method {method} reads no store; allowed: {', '.join(BUILDERS)}")
    check_writable(out)
    files = corpus_files(corpus)
    from draftproof.models.place import check_place
    from draftproof.models.pull import DEFAULT_MODEL

    check_place(target or DEFAULT_MODEL)
    from draftproof.models.load import load_tokenizer

    begin = perf_counter()
    with waiting(f"counting {len(files)} file" + ("" if len(files) == 1 else "s")):
        tokenizer = load_tokenizer(target or DEFAULT_MODEL, trust_remote_code=trust_remote_code)
        documents = [
            tokenizer.encode(text, add_special_tokens=False)
            for file in files
            for text in read_documents(file)
        ]
        header, arrays = build_store(method, documents, tokenizer)
        write_store(out, header, arrays)
    told = {
        "store": str(out),
        "method": method,
        "documents": header.num_documents,
        "tokens": header.num_tokens,
        "bytes": out.stat().st_size,
        "seconds": perf_counter() - begin,
    }
    if as_json:
        from draftproof.report.tables import json_line

        typer.echo(json_line(told))
        return
    typer.echo(
        f"{out}: {header.num_tokens} tokens of {header.num_documents} documents, "
        f"{told['bytes']} bytes"
    )
    typer.echo(
        f"use it with --speculative-config '{json.dumps({'method': method, 'store': str(out)})}'"
    )
