"""One run of `generate`: text as it comes, rounds recorded as they happen, a line of figures on
standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from draftproof.cli.show import Writer
from draftproof.core.params import SamplingParams
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.decode.record import RecordHeader, RoundWriter, header_for
from draftproof.decode.result import Completion, Result


def run_once(
    decoder: SpeculativeDecoder,
    prompt: Sequence[int],
    params: SamplingParams,
    flags: Mapping[str, Any],
) -> dict[str, Any]:
    """Generate, show, record; the run as a dictionary ready for JSON."""
    with ExitStack() as open_things:
        on_round = None
        if flags["record"] is not None:
            recorder = open_things.enter_context(RoundWriter(flags["record"], decoder.tokenizer))
            recorder.header(record_header(decoder, prompt, params))
            on_round = recorder.round
        stream = decoder.stream(prompt, params, on_round=on_round)
        open_things.callback(stream.close)
        result = _drain(
            stream, Writer(origins=flags["show"]) if flags["show"] or not flags["as_json"] else None
        )
    for output in result.outputs:
        print(summary(output, result.seed), file=sys.stderr)
    outputs = [as_dict(output) for output in result.outputs]
    totals = {"stats": result.stats.as_dict(), "prompt_token_ids": result.prompt_token_ids}
    return {**outputs[0], **totals, "outputs": outputs}


def _drain(stream: Any, writer: Writer | None) -> Result:
    """Write every piece; the stream's result."""
    try:
        while True:
            piece = next(stream)
            if writer is not None:
                writer.piece(piece.text, piece.origin, piece.index)
    except StopIteration as done:
        result: Result = done.value
        return result
    finally:
        if writer is not None:
            writer.line_end()


def record_header(
    decoder: SpeculativeDecoder, prompt: Sequence[int], params: SamplingParams
) -> RecordHeader:
    """The header of this run's `rounds.jsonl`."""
    return header_for(decoder, prompt, params)


def as_dict(output: Completion) -> dict[str, Any]:
    """One sample for JSON."""
    return {
        "text": output.text,
        "token_ids": output.token_ids,
        "origins": output.origins,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "logprobs": None
        if output.logprobs is None
        else [asdict(entry) for entry in output.logprobs],
        "tokens_per_second": output.tokens_per_second,
        "decode_tokens_per_second": output.decode_tokens_per_second,
        "seconds": output.seconds,
        "first_token_seconds": output.first_token_seconds,
        "stats": output.stats.as_dict(),
    }


def summary(output: Completion, seed: int) -> str:
    """The figures of one sample in one line."""
    stats = output.stats
    count, rate = len(output.token_ids), output.tokens_per_second
    parts = [f"{count} tokens ({output.finish_reason}) in {output.seconds:.1f} s, {rate:.1f} tok/s"]
    if output.decode_tokens_per_second:
        parts.append(f"{output.decode_tokens_per_second:.1f} after the prompt")
    if stats.tokens_per_round is not None and stats.method != "none":
        parts.append(f"{stats.tokens_per_round:.2f} tokens a round")
        accepted = f"{stats.num_accepted_tokens} of {stats.num_draft_tokens} drafts accepted"
        share = stats.draft_acceptance_rate
        parts.append(accepted if share is None else f"{accepted} ({share:.0%})")
    parts += [f"method {stats.method}", f"seed {seed}", *stats.notes]
    if stats.monitor is not None:
        parts.append(monitor_line(stats.monitor))
    return "; ".join(parts)


def monitor_line(seen: Mapping[str, Any]) -> str:
    """What the monitor saw, in words."""
    if seen["exact"] is None:
        return f"monitor: {seen['note']}"
    z = (
        ""
        if seen["acceptance_z"] is None
        else f", accepted drafts {seen['acceptance_z']:+.1f} standard deviations off"
    )
    said = (
        "nothing against exactness"
        if seen["exact"]
        else f"NOT EXACT, likely {seen['likely_cause']}"
    )
    took = f"{1e3 * seen['seconds'] / seen['num_tokens']:.2g} ms a token"
    return f"monitor: {said} in {seen['num_tokens']} tokens (p {seen['p_value']:.2g}{z}; {took})"
