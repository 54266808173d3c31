"""`generate --file prompts.jsonl --out results.jsonl`: many prompts in batches, results written as
they finish.

A result is on disk, whole, before the next begins to be written. Run again, the command reads what
is there and does the rest: each result carries a digest of its request, so results of other prompts
or settings are never taken for its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from draftproof.cli.lines import Line, read_lines
from draftproof.cli.prompt import as_prompt, check_file
from draftproof.cli.single import as_dict
from draftproof.decode.prompts import is_chat
from draftproof.errors import UsageError
from draftproof.report.tables import json_line

if TYPE_CHECKING:
    from draftproof.core.params import SamplingParams
    from draftproof.decode.decoder import SpeculativeDecoder
    from draftproof.decode.request import GenerationRequest
    from draftproof.decode.result import Result

Load = Callable[[Mapping[str, Any], Mapping[str, Any]], "SpeculativeDecoder"]
Complete = Callable[["SpeculativeDecoder", Any, Mapping[str, Any]], "SamplingParams"]


def check_flags(flags: Mapping[str, Any]) -> None:
    """UsageError for a flag of one prompt beside a file of many, and for a file that could not be
    written."""
    if flags["prompt"] is not None:
        raise UsageError(
            "the prompt is given twice, as an argument and with --file: leave one of them out"
        )
    check_file(flags["file"])
    if flags["out"] is None:
        raise UsageError(
            "--file names many prompts, a .jsonl: say with --out FILE where their results go"
        )
    for flag in ("show", "compare", "record", "prefill"):
        if flags[flag]:
            raise UsageError(
                f"--{flag} is for one prompt, and --file names many: leave one of them out"
            )
    if flags["out"].is_dir() or not flags["out"].parent.is_dir():
        raise UsageError(
            f"results cannot be written to {flags['out']}: name a file in a folder that exists"
        )
    if flags["out"].resolve() == flags["file"].resolve():
        raise UsageError("--out is the file of prompts itself: name another one")


def run_file(
    flags: Mapping[str, Any],
    config: Mapping[str, Any],
    overrides: Mapping[str, Any],
    chat: Mapping[str, Any],
    load: Load,
    complete: Complete,
) -> dict[str, Any]:
    """Generate for every line that has no result yet; the totals as a dictionary ready for JSON.
    overrides, chat: what the flags say of sampling and of the template, under what a line says
    itself. load: gives the decoder. complete: the parameters of a prompt from what was set for
    it."""
    from draftproof.decode.seeds import with_seeds_of_their_own

    lines = read_lines(flags["file"], overrides)
    decoder = load(flags, config)
    asked = [_request(decoder, line, flags, overrides, chat, complete) for line in lines]
    # over the whole file, so that a second run of what is due finds them the same
    requests = with_seeds_of_their_own(asked)
    digests = [
        _digest(decoder, request, "seed" in {**overrides, **line.sampling})
        for line, request in zip(lines, requests, strict=True)
    ]
    kept = _resume(flags["out"], lines, digests)
    due = [place for place in range(len(lines)) if place not in kept]
    totals = {
        "num_prompts": len(lines),
        "num_resumed": len(kept),
        "num_failed": 0,
        "num_tokens": 0,
        "seconds": 0.0,
    }
    if due:
        totals |= _run(decoder, flags, lines, requests, digests, due)
    print(_summary(totals), file=sys.stderr)
    return totals


def _run(
    decoder: SpeculativeDecoder,
    flags: Mapping[str, Any],
    lines: Sequence[Line],
    requests: Sequence[GenerationRequest],
    digests: Sequence[str],
    due: Sequence[int],
) -> dict[str, Any]:
    from draftproof.cli.progress import telling
    from draftproof.decode.memory import fitting_batch_size, in_words

    wanted = [requests[place] for place in due]
    size, needed = fitting_batch_size(
        decoder.target, decoder.speculation, wanted, flags["batch_size"]
    )
    memory = "" if needed is None else f"; at most {in_words(needed)} beside the weights"
    print(f"{len(due)} prompts, {size} at a time{memory}", file=sys.stderr)
    begin, tokens, failed = perf_counter(), 0, 0
    with flags["out"].open("a", encoding="utf-8", newline="\n") as out, telling() as tell:
        tell("prompts", 0, len(due))
        for done, (index, result) in enumerate(decoder.engine(size).run(wanted), 1):
            place = due[index]
            out.write(
                json_line(_document(lines[place], digests[place], result), ascii_only=False) + "\n"
            )
            out.flush()
            tokens += sum(len(output.token_ids) for output in result.outputs)
            failed += any(output.error for output in result.outputs)
            tell("prompts", done, len(due))
    seconds = perf_counter() - begin
    return {
        "num_failed": failed,
        "num_tokens": tokens,
        "seconds": seconds,
        "batch_size": size,
        "bytes": needed,
    }


def _request(
    decoder: SpeculativeDecoder,
    line: Line,
    flags: Mapping[str, Any],
    overrides: Mapping[str, Any],
    chat: Mapping[str, Any],
    complete: Complete,
) -> GenerationRequest:
    try:
        prompt = line.prompt
        if isinstance(prompt, str):
            prompt = as_prompt(prompt, decoder.tokenizer, system=flags["system"], raw=flags["raw"])
        ids = decoder.prompt_ids(prompt, **{**(chat if is_chat(prompt) else {}), **line.chat})
        return decoder.request(ids, complete(decoder, ids, {**overrides, **line.sampling}))
    except UsageError as error:
        raise UsageError(f"{flags['file']} line {line.number}: {error}") from error


def _digest(decoder: SpeculativeDecoder, request: GenerationRequest, is_seeded: bool) -> str:
    """What tells a request from every other. A seed that was drawn for it is no part of it, and
    neither are costs, which are measured anew by every run."""
    from draftproof.decode.record import params_as_dict

    params = request.params if is_seeded else replace(request.params, seed=None)
    config = {key: value for key, value in decoder.config.as_dict().items() if key != "costs"}
    asked = [decoder.target.name, config, request.prompt_token_ids, params_as_dict(params)]
    return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def _document(line: Line, digest: str, result: Result) -> dict[str, Any]:
    """One line of results."""
    first, *more = [as_dict(output) | {"error": output.error} for output in result.outputs]
    mark = {} if line.id is None else {"id": line.id}
    shared = {
        "line": line.number,
        **mark,
        "request": digest,
        "seed": result.seed,
        "num_prompt_tokens": len(result.prompt_token_ids),
    }
    return (
        shared
        | first
        | ({"stats": result.stats.as_dict(), "outputs": [first, *more]} if more else {})
    )


def _resume(path: Path, lines: Sequence[Line], digests: Sequence[str]) -> set[int]:
    """The places in `lines` whose results are in the file already. A line cut off by an
    interruption and the results of failed prompts leave the file. UsageError when it holds anything
    else."""
    if not path.exists():
        return set()
    places = {line.number: place for place, line in enumerate(lines)}
    kept: dict[int, str] = {}
    found = list(_complete(path))
    for raw, document in found:
        place = places.get(document.get("line", 0))
        if place is None or document.get("request") != digests[place]:
            raise UsageError(
                f"{path} holds results of other prompts or settings; name another file "
                "with --out, or remove it"
            )
        if not any(output.get("error") for output in document.get("outputs", [document])):
            kept[place] = raw
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(
        "".join(raw + "\n" for raw in kept.values()), encoding="utf-8", newline="\n"
    )
    os.replace(temporary, path)
    if kept:
        print(f"{len(kept)} of {len(lines)} results are in {path} already", file=sys.stderr)
    return set(kept)


def _complete(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The whole lines of a file of results, as text and as read; the last one may have been cut
    off."""
    try:
        *whole, _cut_off = path.read_bytes().split(b"\n")
        for raw in whole:
            text = raw.decode("utf-8")
            document = json.loads(text)
            if not isinstance(document, dict):
                raise ValueError("not an object")
            yield text, document
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} is no file of results ({error}); name another file with --out"
        ) from error


def _summary(totals: Mapping[str, Any]) -> str:
    parts = [
        f"{totals['num_prompts']} prompts",
        f"{totals['num_tokens']} tokens in {totals['seconds']:.1f} s",
    ]
    if totals["seconds"]:
        parts.append(f"{totals['num_tokens'] / totals['seconds']:.1f} tok/s")
    if totals["num_failed"]:
        parts.append(f"{totals['num_failed']} failed: the same command tries them again")
    return "; ".join(parts)
