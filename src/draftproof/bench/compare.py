"""`generate --compare`: plain and speculative decoding of one prompt, interleaved in one process,
and what came out.

Every repetition runs both arms with the order alternated, after a short warm-up of each. Rates are
medians over repetitions; the speedup is the median of the ratios within one repetition, so a slow
stretch of the machine hits both of its sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from draftproof.core.history import common_prefix
from draftproof.core.params import SamplingParams
from draftproof.core.records import Round
from draftproof.decode.decoder import Decoder, SpeculativeDecoder
from draftproof.decode.logprobs import row_logprobs
from draftproof.decode.prompts import Prompt
from draftproof.decode.result import Completion, Result
from draftproof.decode.ties import Verdict, judge
from draftproof.models.protocol import Step, extend

WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class FirstDifference:
    """position: index among the new tokens. plain_token, speculative_token: what stands there, None
    where one text has ended. top2_gap: the target's log-probability of its best token less that of
    its second best, from one pass over what is common. verdict, gap, noise, why: see
    `decode/ties.py`."""

    position: int
    plain_token: int | None
    speculative_token: int | None
    top2_gap: float
    verdict: Verdict
    gap: float | None
    noise: float
    why: str


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
    short = min(WARM_UP_TOKENS, params.max_tokens or WARM_UP_TOKENS)
    for name, arm in arms.items():
        begin(f"warm-up, {name}")
        arm.generate(
            prompt, replace(params, max_tokens=short, min_tokens=min(params.min_tokens, short))
        )
    results: dict[str, list[Result]] = {name: [] for name in arms}
    for number in range(repeat):
        for name in sorted(arms, reverse=number % 2 == 1):
            begin(name)
            results[name].append(arms[name].generate(prompt, params))
    plain, speculative = results["plain"][0], results["speculative"][0]
    difference = first_difference(decoder, plain, speculative, params)
    return Comparison(tuple(results["plain"]), tuple(results["speculative"]), difference)


def first_difference(
    decoder: SpeculativeDecoder, plain: Result, speculative: Result, params: SamplingParams
) -> FirstDifference | None:
    """Where the token ids of two results for one prompt part; None when they are the same."""
    return first_difference_of(
        decoder, plain.prompt_token_ids, plain.token_ids, speculative.token_ids, params
    )


def first_difference_of(
    decoder: Decoder,
    prompt: Sequence[int],
    theirs: Sequence[int],
    ours: Sequence[int],
    params: SamplingParams,
) -> FirstDifference | None:
    """Where `ours` parts from plain decoding's tokens `theirs` after one prompt; None when they are
    the same."""
    if tuple(ours) == tuple(theirs):
        return None
    position = common_prefix(ours, theirs)
    plain, speculative = (
        text[position] if position < len(text) else None for text in (theirs, ours)
    )
    found = judge(decoder.target, prompt, ours[:position], plain, speculative, params)
    gap = top2_gap(decoder, (*prompt, *ours[:position]))
    return FirstDifference(
        position, plain, speculative, gap, found.verdict, found.gap, found.noise, found.why
    )


def top2_gap(decoder: Decoder, token_ids: Sequence[int]) -> float:
    """Difference in log-probability between the target's two best tokens after `token_ids`, before
    any processing."""
    session = decoder.target.open()
    try:
        output = extend(Step(session, tuple(token_ids), rows=(len(token_ids) - 1,)))
        (_, best), (_, second) = row_logprobs(output.logits[0], 0, 2).top
    finally:
        session.close()
    return best - second


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
