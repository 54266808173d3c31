"""From raw runs to the figures of each arm: rates, ratios paired by prompt, statistics, flags; and
the JSON document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from draftproof.bench.arms import PLAIN, Arm, OurArm
from draftproof.bench.hygiene import Flag, length_flags, load_flags, memory_flag
from draftproof.bench.run import Measured, Measurement
from draftproof.core.records import Round
from draftproof.decode.first_difference import first_difference
from draftproof.decode.record import params_as_dict
from draftproof.decode.statistics import statistics
from draftproof.report.bootstrap import LEVEL, Interval, bootstrap

Times = dict[int, list[float]]
"""Prompt -> seconds per token of its repetitions, in order."""


def total_times(runs: Sequence[Measured]) -> Times:
    """Whole request over its tokens; runs that brought none are left out."""
    times: Times = defaultdict(list)
    for measured in runs:
        if measured.run.num_tokens:
            times[measured.prompt].append(measured.run.seconds / measured.run.num_tokens)
    return dict(times)


def decode_times(runs: Sequence[Measured]) -> Times:
    """Time per token after the first chunk; prompts whose text ended with it are left out."""
    times: Times = defaultdict(list)
    for measured in runs:
        if measured.run.seconds_per_token is not None:
            times[measured.prompt].append(measured.run.seconds_per_token)
    return dict(times)


def paired_ratio(plain: Times, arm: Times) -> Interval | None:
    """plain time / arm's time: the median over prompts of the ratio of the prompt's medians, with
    its bootstrap interval."""
    common = [prompt for prompt in plain if prompt in arm]
    return bootstrap([median(plain[p]) / median(arm[p]) for p in common]) if common else None


def ratio_of_totals(plain: Sequence[Measured], arm: Sequence[Measured]) -> float | None:
    """Plain seconds per token over the arm's, after the first chunk, all prompts together: long
    ones weigh more."""
    sums = [_decode_sum(runs) for runs in (plain, arm)]
    if not all(tokens for _, tokens in sums):
        return None
    (plain_seconds, plain_tokens), (arm_seconds, arm_tokens) = sums
    return (plain_seconds / plain_tokens) / (arm_seconds / arm_tokens)


def _decode_sum(runs: Sequence[Measured]) -> tuple[float, int]:
    seconds, tokens = 0.0, 0
    for measured in runs:
        timed = [chunk for chunk in measured.run.chunks if chunk.num_tokens]
        if len(timed) > 1:
            seconds += timed[-1].seconds - timed[0].seconds
            tokens += sum(chunk.num_tokens for chunk in timed[1:])
    return seconds, tokens


def stats_of(arm: Arm, runs: Sequence[Measured]) -> dict[str, Any]:
    """Counts and rates under the names of `decode/statistics.py`; an engine that tells less has
    fewer of them."""
    rounds = [record for measured in runs for record in measured.run.rounds]
    if rounds:
        return statistics(rounds, method=arm.method, rule=arm.rule, lossless=arm.lossless).as_dict()
    counted = [measured.run for measured in runs if measured.run.num_rounds]
    tokens = sum(measured.run.num_tokens for measured in runs)
    stats: dict[str, Any] = {
        "method": arm.method,
        "rule": arm.rule,
        "lossless": arm.lossless,
        "num_emitted_tokens": tokens,
    }
    if counted:
        num_rounds = sum(run.num_rounds or 0 for run in counted)
        stats |= {
            "num_rounds": num_rounds,
            "tokens_per_round": sum(run.num_tokens for run in counted) / num_rounds,
        }
    return stats


def milliseconds_per_round(runs: Sequence[Measured]) -> dict[str, float] | None:
    """Mean milliseconds a round as draft, verify, rest and outside forwards; the pass that read the
    prompt is left out."""
    known = [measured.run for measured in runs if measured.run.parts and measured.run.num_rounds]
    later = sum(_later_rounds(run.rounds, run.num_rounds or 0) for run in known)
    if not later:
        return None
    names = known[0].parts
    return {name: 1000 * sum(run.parts[name] for run in known) / later for name in names}


def _later_rounds(rounds: Sequence[Round], num_rounds: int) -> int:
    return sum(not record.reads_prompt for record in rounds) if rounds else num_rounds - 1


def arm_summary(measurement: Measurement, arm: Arm) -> dict[str, Any]:
    """Everything about one arm, ready for JSON."""
    runs, plain = measurement.of(arm.name), measurement.of(PLAIN)
    ratio = paired_ratio(total_times(plain), total_times(runs)) if plain else None
    decode = paired_ratio(decode_times(plain), decode_times(runs)) if plain else None
    rates = [m.run.tokens_per_second for m in runs]
    firsts = [m.run.first_token_seconds for m in runs if m.run.first_token_seconds is not None]
    peaks = [m.run.peak_memory_bytes for m in runs if m.run.peak_memory_bytes is not None]
    per_token = [seconds for times in decode_times(runs).values() for seconds in times]
    chunk_peaks = [
        m.run.peak_tokens_per_second for m in runs if m.run.peak_tokens_per_second is not None
    ]
    return {
        "name": arm.name,
        "config": arm.config if isinstance(arm, OurArm) else None,
        "tokens_per_second": median(rates),
        "tokens_per_second_range": [min(rates), max(rates)],
        "peak_tokens_per_second": max(chunk_peaks, default=None),
        "first_token_seconds": median(firsts) if firsts else None,
        "seconds_per_token": median(per_token) if per_token else None,
        "num_tokens": sum(m.run.num_tokens for m in runs),
        "ratio_to_plain": _ratio_dict(ratio),
        "decode_ratio_to_plain": _ratio_dict(decode),
        "decode_ratio_of_totals": ratio_of_totals(plain, runs) if plain else None,
        "milliseconds_per_round": milliseconds_per_round(runs),
        "largest_term": largest_term(milliseconds_per_round(runs)) if arm.name != PLAIN else None,
        "peak_memory_bytes": max(peaks, default=None),
        "stats": stats_of(arm, runs),
        "tasks": task_table(measurement, arm),
        "runs": [
            {"prompt": m.prompt, "repeat": m.repeat, "order": m.order} | m.run.as_dict()
            for m in runs
        ],
    }


def largest_term(parts: Mapping[str, float] | None) -> str | None:
    """Of draft, verify and rest, the one that takes most of a round."""
    return None if parts is None else max(("draft", "verify", "rest"), key=lambda name: parts[name])


def _ratio_dict(ratio: Interval | None) -> dict[str, float] | None:
    return None if ratio is None else {"median": ratio.point, "low": ratio.low, "high": ratio.high}


def task_table(measurement: Measurement, arm: Arm) -> dict[str, dict[str, Any]]:
    """Workload, as the file of prompts names it -> tokens per second and ratio to plain."""
    task = [prompt.item.workload for prompt in measurement.prompts]
    table = {}
    for name in dict.fromkeys(task[m.prompt] for m in measurement.runs):
        runs = [m for m in measurement.of(arm.name) if task[m.prompt] == name]
        plain = [m for m in measurement.of(PLAIN) if task[m.prompt] == name]
        ratio = paired_ratio(total_times(plain), total_times(runs)) if plain else None
        table[name] = {
            "prompts": len({m.prompt for m in runs}),
            "tokens_per_second": median(m.run.tokens_per_second for m in runs),
            "tokens_per_round": stats_of(arm, runs).get("tokens_per_round"),
            "ratio_to_plain": _ratio_dict(ratio),
        }
    return table


def differences(measurement: Measurement, decoder: Any) -> list[dict[str, Any]]:
    """Where an arm's tokens part from plain decoding's though they should not, with the target's
    top-2 gap there."""
    plain = {m.prompt: m.run.token_ids for m in measurement.of(PLAIN) if m.repeat == 0}
    found = []
    for arm in measurement.arms:
        if arm.name == PLAIN or not arm.must_equal_plain(measurement.params):
            continue
        for measured in measurement.of(arm.name):
            if measured.repeat or measured.prompt not in plain:
                continue
            prompt = measurement.prompts[measured.prompt].ids
            difference = first_difference(
                decoder, prompt, plain[measured.prompt], measured.run.token_ids, measurement.params
            )
            if difference is not None:
                found.append({"arm": arm.name, "prompt": measured.prompt} | asdict(difference))
    return found


def flags_of(measurement: Measurement, different: Sequence[Mapping[str, Any]]) -> list[Flag]:
    """Everything doubtful about a measurement."""
    flags = load_flags(measurement.calibrations)
    lengths = {
        arm.name: {m.prompt: m.run.num_tokens for m in measurement.of(arm.name) if m.repeat == 0}
        for arm in measurement.arms
    }
    flags += length_flags(lengths)
    plain = total_times(measurement.of(PLAIN))
    for arm in measurement.arms:
        flag = (
            None
            if arm.remembers
            else memory_flag(arm.name, total_times(measurement.of(arm.name)), plain)
        )
        flags += [flag] if flag and arm.name != PLAIN else []
    for name in dict.fromkeys(str(d["arm"]) for d in different):
        own = [d for d in different if d["arm"] == name]
        worst = max(own, key=lambda d: (d["verdict"] != "tie", d["gap"] is None, d["gap"] or 0.0))
        kind = "near-tie" if worst["verdict"] == "tie" else "text differs"
        which = "the widest of them" if len(own) > 1 else "there"
        message = (
            f"{name}: text differs from plain decoding on {len(own)} prompts; {which}: "
            f"{worst['why']}"
        )
        flags.append(Flag(kind, message, name))
    if measurement.interrupted:
        done, meant = len(measurement.of(PLAIN)), len(measurement.prompts) * measurement.repeats
        ended = measurement.ended_by
        why = (
            "interrupted"
            if isinstance(ended, KeyboardInterrupt)
            else f"ended early, because an arm failed ({ended})"
        )
        ran = f"every arm ran {done} of {meant} prompts and repetitions; the rest is missing"
        flags.append(Flag("interrupted", f"{why}: {ran}"))
    return flags


def document(
    measurement: Measurement, decoder: Any, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """The result file: summaries, raw runs, flags and surroundings."""
    different = differences(measurement, decoder)
    return {
        "format": "draftproof.bench",
        "version": 1,
        "level": LEVEL,
        "arms": [arm_summary(measurement, arm) for arm in measurement.arms],
        "flags": [asdict(flag) for flag in flags_of(measurement, different)],
        "differences": different,
        "prompts": [
            {"workload": p.item.workload, "where": p.item.where, "num_tokens": len(p.ids)}
            for p in measurement.prompts
        ],
        "params": params_as_dict(measurement.params),
        "repeats": measurement.repeats,
        "calibrations": list(measurement.calibrations),
        "loads": list(measurement.loads),
        "provenance": dict(provenance),
    }
