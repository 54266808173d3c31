"""What `generate --record` writes, `view` shows: the texts of the record are the text that was
generated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from draftproof.cli import main as cli
from draftproof.view.data import run_data


def test_a_recorded_run_is_shown_with_its_text(
    document: Callable[..., dict[str, Any]], target: Path, tmp_path: Path
) -> None:
    record, html = tmp_path / "rounds.jsonl", tmp_path / "view.html"
    flags = (
        "--raw",
        "--max-tokens",
        12,
        "--seed",
        1,
        "--method",
        "ngram",
        "--target",
        target,
        "--record",
        record,
    )
    got = document("generate", "the cat sat on the mat and the cat", *flags)
    rounds = run_data(record)["rounds"]
    assert [token for r in rounds for token in r["tokens"]] == got["token_ids"]
    shown = "".join(text for r in rounds for text in r["texts"])
    assert shown and got["text"].startswith(shown.split("<|")[0].rstrip("\ufffd"))
    assert cli.run(["view", str(record), "--html", str(html)]) == 0 and html.stat().st_size > 0
