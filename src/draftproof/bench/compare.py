"""`generate --compare`: plain and speculative decoding of one prompt, interleaved in one process,
and what came out.

Every repetition runs both arms with the order alternated, after a short warm-up of each. Rates are
medians over repetitions; the speedup is the median of the ratios within one repetition, so a slow
stretch of the machine hits both of its sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from draftproof.bench.run import order_of, warm_up
from draftproof.core.params import SamplingParams
from draftproof.core.records import Round
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.decode.first_difference import FirstDifference, first_difference
from draftproof.decode.prompts import Prompt
from draftproof.decode.result import Completion, Result


@dataclass(frozen=True)
class Comparison:
    """The repetitions of both arms, in order, and where their token ids part (None: nowhere)."""

    plain: tuple[Result, ...]
    speculative: tuple[Result, ...]
    first_difference: FirstDifference | None

    @property
    def speedup(self) -> float:
        """Plain time per token / speculative time per token, the prompt included: median over
        repetitions."""
        return median(self.ratios)

    @property
    def ratios(self) -> list[float]:
        """The speedup of each repetition."""
        return [
            s.tokens_per_second / p.tokens_per_second
            for p, s in zip(self.plain, self.speculative, strict=True)
        ]

    @property
    def decode_speedup(self) -> float | None:
        """The same without the prompt; None when a text ended with the round that read it."""
        pairs = [
            (p.outputs[0].decode_tokens_per_second, s.outputs[0].decode_tokens_per_second)
            for p, s in zip(self.plain, self.speculative, strict=True)
        ]
        return (
            median(s / p for p, s in pairs if p and s) if all(p and s for p, s in pairs) else None
        )


def compare_with_plain(
    decoder: SpeculativeDecoder,
    prompt: Prompt,
    params: SamplingParams,
    repeat: int,
    begin: Callable[[str], None],
) -> Comparison:
    """Run both arms `repeat` times on `prompt`; `begin` is called with the arm's name before each
    run, warm-ups included."""
    arms = {"plain": decoder.plain, "speculative": decoder}
    for name, arm in arms.items():
        begin(f"warm-up, {name}")
        arm.generate(prompt, warm_up(params))
    results: dict[str, list[Result]] = {name: [] for name in arms}
    for turn in range(repeat):
        for name in order_of(list(arms), turn):
            begin(name)
            results[name].append(arms[name].generate(prompt, params))
    return comparison_of(decoder, results["plain"], results["speculative"], params)


def comparison_of(
    decoder: SpeculativeDecoder,
    plain: Sequence[Result],
    speculative: Sequence[Result],
    params: SamplingParams,
) -> Comparison:
    """Of the results of both arms on one prompt, with where the first two of them part."""
    one, other = plain[0], speculative[0]
    difference = first_difference(
        decoder, one.prompt_token_ids, one.token_ids, other.token_ids, params
    )
    return Comparison(tuple(plain), tuple(speculative), difference)


def rates(results: Sequence[Result]) -> dict[str, float | None]:
    """Median rates of one arm."""
    decode = [result.outputs[0].decode_tokens_per_second for result in results]
    return {
        "tokens_per_second": median(result.tokens_per_second for result in results),
        "decode_tokens_per_second": median(rate for rate in decode if rate)
        if all(decode)
        else None,
    }


def milliseconds_per_round(results: Sequence[Result]) -> dict[str, float | None]:
    """Mean time of a round in three parts, over all repetitions; rounds that read the prompt are
    left out."""
    rounds: list[Round] = [r for result in results for r in result.rounds if not r.reads_prompt]
    parts = ("draft", "verify", "rest")
    return {
        part: 1000 * sum(getattr(r.seconds, part) for r in rounds) / len(rounds) if rounds else None
        for part in parts
    }


def arm_as_dict(results: Sequence[Result]) -> dict[str, Any]:
    """One arm for JSON: the first repetition's text and counts, rates over all."""
    first: Completion = results[0].outputs[0]
    return rates(results) | {
        "runs_tokens_per_second": [result.tokens_per_second for result in results],
        "milliseconds_per_round": milliseconds_per_round(results),
        "text": first.text,
        "token_ids": list(first.token_ids),
        "finish_reason": first.finish_reason,
        "stop_reason": first.stop_reason,
        "stats": first.stats.as_dict(),
    }


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """The comparison for JSON."""
    difference = comparison.first_difference
    return {
        "plain": arm_as_dict(comparison.plain),
        "speculative": arm_as_dict(comparison.speculative),
        "speedup": comparison.speedup,
        "speedup_range": [min(comparison.ratios), max(comparison.ratios)],
        "decode_speedup": comparison.decode_speedup,
        "same_tokens": difference is None,
        "first_difference": None if difference is None else asdict(difference),
        "text": comparison.speculative[0].text,
        "prompt_token_ids": comparison.plain[0].prompt_token_ids,
        "repeat": len(comparison.plain),
    }
