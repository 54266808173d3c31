"""`generate --compare` on the screen: a progress bar, both texts where they differ, the table, and
what agrees."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from draftproof.bench.compare import Comparison, as_dict, compare_with_plain
from draftproof.cli.compare_table import WIDTH, agreement, table, title
from draftproof.cli.show import Writer, stretches
from draftproof.cli.single import record_header
from draftproof.core.params import SamplingParams
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.decode.record import write_rounds

DEFAULT_REPEAT = 3


def run_comparison(
    decoder: SpeculativeDecoder,
    prompt: Sequence[int],
    params: SamplingParams,
    flags: Mapping[str, Any],
) -> dict[str, Any]:
    """Both arms with a progress bar, their texts and figures; the whole as a dictionary ready for
    JSON.

    The record, if one is asked for, is the speculative arm's first run."""
    repeat = flags["repeat"] or DEFAULT_REPEAT
    with _progress(2 * repeat + 2) as begin:
        comparison = compare_with_plain(decoder, prompt, params, repeat, begin)
    if flags["record"] is not None:
        header = record_header(decoder, prompt, params)
        write_rounds(flags["record"], header, comparison.speculative[0].rounds, decoder.tokenizer)
    if flags["show"] or not flags["as_json"]:
        _print(comparison, decoder, params, origins=flags["show"])
    return as_dict(comparison)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error, moved by calling what this yields; it is drawn between runs only, so
    it costs none of them."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as progress:
        task, begun = progress.add_task("", total=total), count()
        yield lambda arm: progress.update(
            task, completed=next(begun), description=arm, refresh=True
        )


def _print(
    comparison: Comparison, decoder: SpeculativeDecoder, params: SamplingParams, *, origins: bool
) -> None:
    """Texts (both where they differ), table, and what agrees, on standard output."""
    from rich.console import Console

    plain, speculative = comparison.plain[0], comparison.speculative[0].outputs[0]
    if comparison.first_difference is not None:
        print(f"[plain]\n{plain.text}\n\n[speculative]")
    writer = Writer(origins=origins)
    for text, origin in stretches(speculative, decoder.tokenizer, params.skip_special_tokens):
        writer.piece(text, origin)
    writer.line_end()
    sys.stdout.write("\n")
    console = Console(width=min(WIDTH, Console().width), highlight=False, markup=False)
    console.print(title(decoder, params, len(comparison.plain)))
    console.print(table(comparison))
    console.print(agreement(comparison, decoder, params))
