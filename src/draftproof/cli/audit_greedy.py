"""`draftproof audit --greedy`: greedy text of an engine with drafts, against its plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftproof.audit.greedy import Comparison, GreedyAudit


def run(flags: Mapping[str, Any]) -> int:
    """Compare; 1 where a difference is a fault."""
    from draftproof.audit.greedy import audit_greedy
    from draftproof.cli.audit_load import load, writers
    from draftproof.cli.progress import telling
    from draftproof.report.tables import json_line

    loaded = load(flags, temperature=0.0)
    name, plain, drafted = writers(loaded)
    with telling() as tell:
        found = audit_greedy(
            name, plain, drafted, loaded.decoder, loaded.prompts, loaded.params, tell
        )
    _print(found, loaded.decoder.tokenizer)
    if flags["as_json"]:
        print(json_line(found.document()))
    return int(found.outcome == "not exact")


def _print(found: GreedyAudit, tokenizer: Any) -> None:
    for title, texts in (
        ("plain against plain", found.control),
        (f"plain against {found.engine}", found.texts),
    ):
        same = sum(text.difference is None for text in texts)
        print(f"{title}: {same} of {len(texts)} texts are the same")
        for text in texts:
            if text.difference is not None:
                _print_difference(text, tokenizer)
    ties = f", {len(found.ties)} part at a tie that rounding decides" if found.ties else ""
    print(f"{found.outcome}: {len(found.faults)} of {len(found.texts)} texts are at fault{ties}")


def _print_difference(text: Comparison, tokenizer: Any) -> None:
    found = text.difference
    assert found is not None
    print(
        f"  prompt {text.prompt}, token {found.position}: the target's best two are "
        f"{found.top2_gap:.3g} nats apart there."
    )
    print(f"    {found.why}")
    for title, tokens in (("plain", text.one), ("other", text.other)):
        print(f"    {title}: {_shown(tokens, tokenizer)}")


def _shown(tokens: Sequence[int], tokenizer: Any) -> str:
    return repr(tokenizer.decode(list(tokens))) if tokens else "(the text ended)"
