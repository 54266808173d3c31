"""Counts and rates of a run, defined once. Names and definitions follow vLLM's speculative-decoding metrics.

num_rounds: target passes that emitted tokens (the pass that reads the prompt emits too, and counts). num_drafts: rounds that
had a draft. num_accepted_tokens: drafts kept; neither the bonus nor a replacement, nor drafts cut off by a stop or the limit.
num_emitted_tokens: what the caller received. Rates without a denominator are None, never 0 or 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from draftproof.core.records import Round


@dataclass(frozen=True)
class Statistics:
    """Totals over rounds. Seconds: `prompt_seconds` is the target pass of the first round (it reads the prompt);
    `draft_seconds`, `verify_seconds`, `rest_seconds` split everything else. `draft_forward_seconds` is the part of
    `draft_seconds` inside forwards. rounds_per_draft_length: rounds with 0, 1, 2, ... drafts. length_reasons: where the
    length adapts, rounds by why their draft was as long as it was. rounds_per_drafter: where several take turns."""

    method: str = "none"
    rule: str | None = None
    lossless: bool = True
    num_rounds: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0
    num_bonus_tokens: int = 0
    num_invalid_draft_laws: int = 0
    accepted_per_position: tuple[int, ...] = ()
    reached_per_position: tuple[int, ...] = ()
    overlap_sum: float = 0.0
    num_overlaps: int = 0
    prompt_seconds: float = 0.0
    draft_seconds: float = 0.0
    draft_forward_seconds: float = 0.0
    verify_seconds: float = 0.0
    rest_seconds: float = 0.0
    length_reasons: Mapping[str, int] = field(default_factory=dict)
    rounds_per_draft_length: tuple[int, ...] = ()
    rounds_per_drafter: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / drafted."""
        return _ratio(self.num_accepted_tokens, self.num_draft_tokens)

    @property
    def mean_acceptance_length(self) -> float | None:
        """1 + accepted / num_drafts: the bonus or replacement included, as vLLM counts."""
        per_draft = _ratio(self.num_accepted_tokens, self.num_drafts)
        return None if per_draft is None else 1 + per_draft

    @property
    def tokens_per_round(self) -> float | None:
        """Emitted / num_rounds, rounds without a draft included."""
        return _ratio(self.num_emitted_tokens, self.num_rounds)

    @property
    def acceptance_per_position(self) -> dict[str, tuple[float | None, ...]]:
        """`marginal`: accepted at position i / num_drafts. `conditional`: accepted at i / reached at i."""
        return {
            "marginal": tuple(_ratio(a, self.num_drafts) for a in self.accepted_per_position),
            "conditional": tuple(
                _ratio(a, r) for a, r in zip(self.accepted_per_position, self.reached_per_position, strict=True)
            ),
        }

    @property
    def alpha(self) -> float | None:
        """Mean of 1 - TV(target_law, draft_law) over reached positions: the most any single-draft rule could accept."""
        return _ratio(self.overlap_sum, self.num_overlaps)

    @property
    def share_of_rounds_with_draft(self) -> float | None:
        """num_drafts / num_rounds: low when a drafter often has nothing to propose, whatever its acceptance rate."""
        return _ratio(self.num_drafts, self.num_rounds)

    def as_dict(self) -> dict[str, Any]:
        """Counts and rates by name, ready for JSON."""
        rates = (
            "draft_acceptance_rate",
            "mean_acceptance_length",
            "tokens_per_round",
            "acceptance_per_position",
            "alpha",
            "share_of_rounds_with_draft",
        )
        return asdict(self) | {name: getattr(self, name) for name in rates}


def statistics(
    rounds: Iterable[Round],
    *,
    method: str = "none",
    rule: str | None = None,
    lossless: bool = True,
    notes: Sequence[str] = (),
) -> Statistics:
    """The totals over `rounds` (of one sequence or several, in order); `notes` of the run come before those of the rounds."""
    rounds = list(rounds)
    accepted: Counter[int] = Counter()
    reached: Counter[int] = Counter()
    for record in rounds:
        accepted.update(range(record.num_accepted_tokens))
        reached.update(range(record.reached))
    depth = max([0, *(position + 1 for position in (*accepted, *reached))])
    unique_notes = dict.fromkeys([*notes, *(record.note for record in rounds if record.note)])
    return Statistics(
        method=method,
        rule=rule,
        lossless=lossless,
        num_rounds=len(rounds),
        num_drafts=sum(1 for r in rounds if r.draft_tokens),
        num_draft_tokens=sum(len(r.draft_tokens) for r in rounds),
        num_accepted_tokens=sum(r.num_accepted_tokens for r in rounds),
        num_emitted_tokens=sum(len(r.tokens) for r in rounds),
        num_bonus_tokens=sum(r.origins.count("bonus") for r in rounds),
        num_invalid_draft_laws=sum(r.num_invalid_draft_laws for r in rounds),
        accepted_per_position=tuple(accepted[i] for i in range(depth)),
        reached_per_position=tuple(reached[i] for i in range(depth)),
        overlap_sum=sum(sum(r.overlaps) for r in rounds),
        num_overlaps=sum(len(r.overlaps) for r in rounds),
        prompt_seconds=sum(r.seconds.verify for r in rounds if r.reads_prompt),
        draft_seconds=sum(r.seconds.draft for r in rounds),
        draft_forward_seconds=sum(r.seconds.draft_forward for r in rounds),
        verify_seconds=sum(r.seconds.verify for r in rounds if not r.reads_prompt),
        rest_seconds=sum(r.seconds.rest for r in rounds),
        length_reasons=dict(Counter(r.length_reason for r in rounds if r.length_reason)),
        rounds_per_draft_length=_histogram([len(r.draft_tokens) for r in rounds]),
        rounds_per_drafter=dict(Counter(r.drafter for r in rounds if r.drafter and r.draft_tokens)),
        notes=tuple(unique_notes),
    )


def _histogram(values: Sequence[int]) -> tuple[int, ...]:
    """How often 0, 1, 2, ... occur."""
    counts = Counter(values)
    return tuple(counts[value] for value in range(max(values, default=-1) + 1))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
