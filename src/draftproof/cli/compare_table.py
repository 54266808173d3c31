"""What `generate --compare` prints: the figures as a table of at most 80 columns, and a sentence on
what agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftproof.bench.compare import Comparison, milliseconds_per_round, rates
from draftproof.decode.ties import dtype_of

if TYPE_CHECKING:
    from rich.table import Table

    from draftproof.core.params import SamplingParams
    from draftproof.decode.decoder import SpeculativeDecoder

WIDTH = 80


def figures(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Rows of (name, plain, speculative)."""
    plain, speculative = comparison.plain, comparison.speculative
    plain_rates, speculative_rates = rates(plain), rates(speculative)
    plain_ms, speculative_ms = milliseconds_per_round(plain), milliseconds_per_round(speculative)
    stats = speculative[0].stats
    low, high = min(comparison.ratios), max(comparison.ratios)
    rows = [
        ("new tokens", str(len(plain[0].token_ids)), str(len(speculative[0].token_ids))),
        (
            "tokens/s, prompt included",
            *_pair(plain_rates, speculative_rates, "tokens_per_second", "{:.1f}"),
        ),
        (
            "tokens/s, after the first round",
            *_pair(plain_rates, speculative_rates, "decode_tokens_per_second", "{:.1f}"),
        ),
        (
            "tokens per round",
            _number(plain[0].stats.tokens_per_round, "{:.2f}"),
            _number(stats.tokens_per_round, "{:.2f}"),
        ),
        ("rounds with a draft", "", _number(stats.share_of_rounds_with_draft, "{:.0%}")),
        (
            "drafts accepted",
            "",
            (
                f"{_number(stats.draft_acceptance_rate, '{:.0%}')} "
                f"({stats.num_accepted_tokens} of {stats.num_draft_tokens})"
            ),
        ),
    ]
    rows += [
        (f"ms a round: {part}", *_pair(plain_ms, speculative_ms, part, "{:.1f}"))
        for part in plain_ms
    ]
    rows.append(
        ("speedup, prompt included", "1.00", f"{comparison.speedup:.2f} ({low:.2f}-{high:.2f})")
    )
    rows.append(
        ("speedup, after the first round", "1.00", _number(comparison.decode_speedup, "{:.2f}"))
    )
    return rows


def table(comparison: Comparison) -> Table:
    """The figures as a rich table."""
    from rich.table import Table

    drawn = Table()
    drawn.add_column("")
    drawn.add_column("plain", justify="right")
    drawn.add_column("speculative", justify="right")
    for number, row in enumerate(figures(comparison)):
        drawn.add_row(
            *row,
            style="bold" if row[0].startswith("speedup, prompt") else None,
            end_section=number in (0, 5, 8),
        )
    return drawn


def title(decoder: SpeculativeDecoder, params: SamplingParams, repeat: int) -> str:
    """What was compared."""
    how = (
        "greedy"
        if params.temperature == 0
        else f"temperature {params.temperature:g}, seed {params.seed}"
    )
    model = decoder.target
    stats = f"{decoder.config.method}, {decoder.config.num_speculative_tokens} drafts at most"
    return (
        f"{model.name} ({dtype_of(decoder.target)}), {how}; {stats}, rule "
        f"{decoder.rule_for(params).name}; medians of {repeat}"
    )


def agreement(comparison: Comparison, decoder: SpeculativeDecoder, params: SamplingParams) -> str:
    """A few sentences: whether the two texts are the same, else where they part, by how little, and
    why that may be."""
    difference = comparison.first_difference
    if difference is None:
        return (
            f"Both texts are the same, token for token ({len(comparison.plain[0].token_ids)} "
            "tokens)."
        )
    shown = [
        _shown(token, decoder.tokenizer)
        for token in (difference.plain_token, difference.speculative_token)
    ]
    rule = decoder.rule_for(params).name
    if rule not in ("match", "gumbel"):
        why = (
            f"Both are samples of one law: rule {rule} draws random numbers of its own, so "
            "the texts may differ."
        )
    else:
        why = difference.why
    return (
        f"The texts part at new token {difference.position}: plain has {shown[0]}, "
        f"speculative {shown[1]}. {why}"
    )


def _pair(
    plain: dict[str, float | None], speculative: dict[str, float | None], name: str, form: str
) -> tuple[str, str]:
    return _number(plain[name], form), _number(speculative[name], form)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _shown(token: int | None, tokenizer: Any) -> str:
    if token is None:
        return "ended"
    return str(token) if tokenizer is None else repr(tokenizer.decode([token]))
