"""Counts and rates of a run, defined once. What has a name of vLLM's speculative-decoding metrics
is vLLM's count.

num_rounds: target passes that emitted tokens (the pass that reads the prompt emits too, and
counts). num_drafts: rounds that had a draft. num_accepted_tokens: drafts the rule accepted, neither
the bonus nor a replacement; as in vLLM, with those behind the token that ended the text.
num_kept_tokens: those of them that are in the text. num_emitted_tokens: what the caller received.
Rates without a denominator are None, never 0 or 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from draftproof.core.records import Round


@dataclass(frozen=True)
class Statistics:
    """Totals over rounds. Seconds: `prompt_seconds` is the target pass of the first round (it reads
    the prompt); `draft_seconds`, `verify_seconds`, `rest_seconds` split everything else.
    `draft_forward_seconds` is the part of `draft_seconds` inside forwards. rounds_per_draft_length:
    rounds with 0, 1, 2, ... drafts. length_reasons: where the length adapts, rounds by why their
    draft was as long as it was. rounds_per_drafter: where several take turns. ..._per_pos: by the
    draft's position, as vLLM names it; reached: verified before the text ended. notes: each once,
    with how many rounds it is about where it is more than one. rows: "identical" where the target's
    engine gives a row the same bits whatever is read beside it, else what differs; None where it
    was not looked at. monitor: what it saw so far, see `decode/monitor.py`; None where none was
    asked for."""

    method: str = "none"
    rule: str | None = None
    lossless: bool = True
    rows: str | None = None
    num_rounds: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_kept_tokens: int = 0
    num_emitted_tokens: int = 0
    num_bonus_tokens: int = 0
    num_invalid_draft_laws: int = 0
    num_accepted_tokens_per_pos: tuple[int, ...] = ()
    num_kept_tokens_per_pos: tuple[int, ...] = ()
    num_reached_tokens_per_pos: tuple[int, ...] = ()
    num_emitted_with_draft: int = 0
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
    monitor: Mapping[str, Any] | None = None

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / drafted."""
        return _ratio(self.num_accepted_tokens, self.num_draft_tokens)

    @property
    def mean_acceptance_length(self) -> float | None:
        """1 + accepted / num_drafts, vLLM's figure: the bonus or replacement included, and drafts
        accepted behind the end."""
        per_draft = _ratio(self.num_accepted_tokens, self.num_drafts)
        return None if per_draft is None else 1 + per_draft

    @property
    def mean_kept_length(self) -> float | None:
        """Emitted tokens of the rounds that had a draft / num_drafts: what is left of the same
        where texts end."""
        return _ratio(self.num_emitted_with_draft, self.num_drafts)

    @property
    def tokens_per_round(self) -> float | None:
        """Emitted / num_rounds, rounds without a draft included."""
        return _ratio(self.num_emitted_tokens, self.num_rounds)

    @property
    def acceptance_per_position(self) -> dict[str, tuple[float | None, ...]]:
        """`marginal`: accepted at position i / num_drafts, vLLM's per-position acceptance rate.
        `conditional`: kept at i / reached at i."""
        pairs = zip(self.num_kept_tokens_per_pos, self.num_reached_tokens_per_pos, strict=True)
        return {
            "marginal": tuple(
                _ratio(accepted, self.num_drafts) for accepted in self.num_accepted_tokens_per_pos
            ),
            "conditional": tuple(_ratio(kept, reached) for kept, reached in pairs),
        }

    @property
    def alpha(self) -> float | None:
        """Mean of 1 - TV(target_law, draft_law) over reached positions: the most any single-draft
        rule could accept."""
        return _ratio(self.overlap_sum, self.num_overlaps)

    @property
    def share_of_rounds_with_draft(self) -> float | None:
        """num_drafts / num_rounds: low when a drafter often has nothing to propose, whatever its
        acceptance rate."""
        return _ratio(self.num_drafts, self.num_rounds)

    def as_dict(self) -> dict[str, Any]:
        """Counts and rates by name, ready for JSON."""
        rates = (
            "draft_acceptance_rate",
            "mean_acceptance_length",
            "mean_kept_length",
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
    rows: str | None = None,
    notes: Sequence[str] = (),
) -> Statistics:
    """The totals over `rounds` (of one sequence or several, in order); `notes` of the run come
    before those of the rounds."""
    rounds = list(rounds)
    accepted = [r.num_accepted_tokens + r.num_accepted_after_end for r in rounds]
    kept, reached = [r.num_accepted_tokens for r in rounds], [r.reached for r in rounds]
    depth = max([0, *accepted, *reached])
    return Statistics(
        method=method,
        rule=rule,
        lossless=lossless,
        rows=rows,
        num_rounds=len(rounds),
        num_drafts=sum(1 for r in rounds if r.draft_tokens),
        num_draft_tokens=sum(len(r.draft_tokens) for r in rounds),
        num_accepted_tokens=sum(accepted),
        num_kept_tokens=sum(kept),
        num_emitted_tokens=sum(len(r.tokens) for r in rounds),
        num_bonus_tokens=sum(r.origins.count("bonus") for r in rounds),
        num_invalid_draft_laws=sum(r.num_invalid_draft_laws for r in rounds),
        num_accepted_tokens_per_pos=_per_position(accepted, depth),
        num_kept_tokens_per_pos=_per_position(kept, depth),
        num_reached_tokens_per_pos=_per_position(reached, depth),
        num_emitted_with_draft=sum(len(r.tokens) for r in rounds if r.draft_tokens),
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
        notes=(*dict.fromkeys(notes), *_counted(r.note for r in rounds if r.note)),
    )


def _per_position(depths: Sequence[int], depth: int) -> tuple[int, ...]:
    """How many of `depths` are more than 0, 1, ..., depth - 1."""
    return tuple(sum(each > position for each in depths) for position in range(depth))


def _counted(notes: Iterable[str]) -> Iterator[str]:
    """Each note once, with the number of its rounds."""
    for note, count in Counter(notes).items():
        yield note if count == 1 else f"{note} ({count} rounds)"


def _histogram(values: Sequence[int]) -> tuple[int, ...]:
    """How often 0, 1, 2, ... occur."""
    counts = Counter(values)
    return tuple(counts[value] for value in range(max(values, default=-1) + 1))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
