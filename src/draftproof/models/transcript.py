"""A target's context in a draft model's tokens, kept up to date: the same bytes, in the draft
tokenizer's own spelling.

Re-encoding a whole text every round would cost more than drafting; so the text up to a word's
beginning some tokens back is settled, and only what follows is encoded again (the look-behind of
2502.05202). Special tokens are carried over by their content, or by their part (the end token);
those the draft model does not know are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from draftproof.models.spelling import Spelling

LOOK_BEHIND = 16
"""Target tokens at the end of the context that are encoded again every round."""


class Vocabularies:
    """Two spellings side by side. target_of: draft token -> the target token of the same bytes or
    the same special content, one to one; draft_of: the reverse."""

    def __init__(
        self,
        target: Spelling,
        draft: Spelling,
        *,
        target_size: int,
        draft_size: int,
        target_ends: Sequence[int] = (),
        draft_ends: Sequence[int] = (),
    ) -> None:
        self.target, self.draft = target, draft
        known = draft.by_bytes()
        pairs = {
            token: known[spelled]
            for spelled, token in target.by_bytes().items()
            if spelled in known
        }
        pairs |= {
            token: draft.specials[content]
            for content, token in target.specials.items()
            if content in draft.specials
        }
        pairs = {
            one: other for one, other in pairs.items() if one < target_size and other < draft_size
        }
        for one, other in zip(target_ends, draft_ends, strict=False):
            if one not in pairs and other not in pairs.values():
                pairs[one] = other
        self.draft_of: Mapping[int, int] = dict(sorted(pairs.items()))
        self.target_of: Mapping[int, int] = {other: one for one, other in self.draft_of.items()}

    def carried(self, token: int) -> list[int]:
        """The draft ids of a target token without bytes; [] for one the draft model does not
        know."""
        return [self.draft_of[token]] if token in self.draft_of else []


@dataclass(frozen=True)
class Transcript:
    """ids: the draft ids of the context. settled: how many target tokens, and how many of `ids`,
    will not be encoded again."""

    ids: tuple[int, ...] = ()
    settled: tuple[int, int] = (0, 0)
    between: Vocabularies = field(compare=False, repr=False, kw_only=True)

    def after(self, context: Sequence[int]) -> Transcript:
        """The transcript of `context`, which begins with the settled tokens of this one."""
        tokens, count = self.settled
        ids = list(self.ids[:count]) or list(self.between.draft.starts)
        marks = [(tokens, count)] if count else []
        for first, last in self._stretches(context, tokens):
            if last == first + 1 and self.between.target.spelled(context[first]) is None:
                carried = self.between.carried(context[first])
                if not (first == 0 and tuple(carried) == self.between.draft.starts):
                    ids += carried
                marks.append((last, len(ids)))
            else:
                marks += self._encode(context, first, last, ids)
        old = [mark for mark in marks if mark[0] <= len(context) - LOOK_BEHIND]
        return Transcript(tuple(ids), max(old, default=self.settled), between=self.between)

    def _stretches(self, context: Sequence[int], first: int) -> list[tuple[int, int]]:
        """The context from `first` on as runs of spelled tokens, and tokens without bytes one by
        one."""
        found: list[tuple[int, int]] = []
        begin = first
        for place in range(first, len(context)):
            if self.between.target.spelled(context[place]) is None:
                found += [(begin, place)] * (begin < place) + [(place, place + 1)]
                begin = place + 1
        return found + [(begin, len(context))] * (begin < len(context))

    def _encode(
        self, context: Sequence[int], first: int, last: int, ids: list[int]
    ) -> list[tuple[int, int]]:
        """Append the draft ids of context[first:last] to `ids`; the places where a word begins on
        both sides."""
        pieces = [self.between.target.spelled(token) or b"" for token in context[first:last]]
        data = b"".join(pieces)
        lead = 0
        if not any(self.between.target.spelled(token) for token in context[:first]):
            data, lead = self._beginning(data)
        before = len(ids)
        ids += self.between.draft.encode(data)
        ends = {0: first}
        at = lead
        for number, piece in enumerate(pieces, start=first + 1):
            at += len(piece)
            ends[at] = number
        marks, read = [], 0
        for place in range(before, len(ids)):
            begins_word = (
                data[read : read + 1] in (b" ", b"\n") and not data[read - 1 : read].isspace()
            )
            if read in ends and read > 0 and begins_word:
                marks.append((ends[read], place))
            read += len(self.between.draft.spelled(ids[place]) or b"")
        return marks if read == len(data) else []

    def _beginning(self, data: bytes) -> tuple[bytes, int]:
        """The bytes at the beginning of a text with the space that the draft tokenizer wants there,
        and what that shifts."""
        wanted = self.between.draft.leads_with_space
        given = self.between.target.leads_with_space and data[:1] == b" "
        if wanted and not given:
            return b" " + data, 1
        return (data[1:], -1) if given and not wanted else (data, 0)


def target_tokens(between: Vocabularies, context: Sequence[int], data: bytes) -> list[int]:
    """Target tokens that may follow `context` and spell `data`, as its tokenizer would go on:
    encoded together with the end of the context where a token ends exactly there, else alone."""
    begin = len(context)
    while begin > 0 and between.target.spelled(context[begin - 1]) is not None:
        starts_word = (
            (between.target.spelled(context[begin]) or b"")[:1] in (b" ", b"\n")
            if begin < len(context)
            else False
        )
        if len(context) - begin >= LOOK_BEHIND and (
            starts_word or len(context) - begin >= 2 * LOOK_BEHIND
        ):
            break
        begin -= 1
    tail = b"".join(between.target.spelled(token) or b"" for token in context[begin:])
    ids = between.target.encode(tail + data)
    read = 0
    for place, token in enumerate(ids):
        if read == len(tail):
            return ids[place:]
        read += len(between.target.spelled(token) or b"")
    return between.target.encode(data)
