"""`suffix`: suffix decoding. What followed the last tokens before, weighed by how often, as far as
the counts carry.

Every suffix of the context that occurred earlier offers the likeliest path (or tree) of what
followed, at most `suffix_decoding_max_spec_factor` tokens for each token matched, cut where its
share of the counts falls below `suffix_decoding_min_token_prob`. The sum of the shares is what the
counts expect to be accepted; the best sum wins, of equals the longer match. Long matches therefore
draft much, doubtful ones little. (Oliaro et al. 2411.04975; vLLM's method and keys.)

Prompt and text of the request are counted in an automaton of its own. With
`suffix_decoding_max_cached_requests` above 0, which is not the default here, outputs of finished
requests are counted too, in a store with caps on requests and tokens; the request's own counts go
first where the sums are equal. Shares are taken over occurrences that something followed, so that
the suffix itself, at the end of the text, does not halve the share of a single earlier match.

Drafts are fixed guesses, the counts never serve as a draft law: any choice is exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from copy import copy

from draftproof.core.records import Observation, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.options import Option, count_from, number_from, yes_or_no
from draftproof.drafters.protocol import (
    Drafter,
    DraftSession,
    Foreseeing,
    Foreseen,
    Memory,
    Request,
)
from draftproof.drafters.registry import Config, Method, Parts
from draftproof.drafters.stores.automaton import Match, SuffixAutomaton
from draftproof.drafters.stores.grow import Planned, likeliest, place
from draftproof.drafters.stores.outputs import SharedOutputs
from draftproof.errors import UsageError

CHANCES = (0.15, 0.3, 0.54, 0.65, 0.65, 0.8, 0.8, 0.8, 0.92)
"""Share of drafted tokens accepted once reached, by the strength foreseen: measured on 160 texts
that SmolLM2-135M wrote, edits of code, summaries, chat and mathematics, which differ little in it
(benchmarks/record.md)."""


class Suffix(Drafter):
    """max_tree_depth: most tokens of match and draft together. max_spec_factor: drafts for each
    matched token. min_token_prob: least share of a path. max_cached_requests, max_cached_tokens:
    caps of the shared store, 0 for none. tree: draft the likeliest tree instead of the likeliest
    chain."""

    name = "suffix"
    selections: frozenset[Selection] = frozenset({"fixed"})

    def __init__(
        self,
        max_tree_depth: int = 24,
        max_spec_factor: float = 1.0,
        min_token_prob: float = 0.1,
        *,
        max_cached_requests: int = 0,
        max_cached_tokens: int = 200_000,
        tree: bool = False,
    ) -> None:
        self.max_tree_depth, self.max_spec_factor = max_tree_depth, max_spec_factor
        self.min_token_prob = min_token_prob
        self.trees = tree
        keeps = max_cached_requests > 0 and max_cached_tokens > 0
        self.shared = (
            SharedOutputs(max_tree_depth, max_cached_requests, max_cached_tokens) if keeps else None
        )
        self.memories: tuple[Memory, ...] = () if self.shared is None else (self.shared,)

    def open(self, request: Request) -> SuffixSession:
        return SuffixSession(self, request)


class SuffixSession(DraftSession, Foreseeing):
    """One request's counts, and the way to the shared store if there is one."""

    def __init__(self, drafter: Suffix, request: Request) -> None:
        self._drafter, self._laws = drafter, request.laws
        self._num_prompt_tokens = len(request.prompt)
        self._own = SuffixAutomaton(drafter.max_tree_depth)
        self._committed: list[int] = list(request.prompt)

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        place(self._offer(context, draft.room)[0], draft, context, self._laws)

    def foresee(self, context: Sequence[int]) -> Foreseen:
        """How many tokens of a draft after `context` the counts expect to be accepted, and 1."""
        planned, score = self._offer(context, self._drafter.max_tree_depth)
        strength = 1 + int(score)
        return (
            Foreseen(strength, len(planned), CHANCES[min(strength, len(CHANCES)) - 1])
            if planned
            else Foreseen(0)
        )

    def _offer(self, context: Sequence[int], room: int) -> tuple[Planned, float]:
        """The best draft of at most `room` tokens, and its score."""
        self._count(context)
        shared = self._drafter.shared
        best, score = self._best(self._own, self._own.suffixes(), room, [], 0.0)
        if shared is not None:
            with shared.lock:
                for part in shared.parts():
                    best, score = self._best(part, part.matches(context), room, best, score)
        return best, score

    def _best(
        self,
        counts: SuffixAutomaton,
        matches: Iterator[Match],
        room: int,
        best: Planned,
        score: float,
    ) -> tuple[Planned, float]:
        """The better of `best` and what `counts` offers after the matches, which come longest
        first."""
        for state, shortest, longest in matches:
            budget = self._budget(shortest, longest, room)
            if budget <= score:
                continue
            planned = likeliest(
                state,
                counts.followers,
                nodes=budget,
                depth=budget,
                floor=self._drafter.min_token_prob,
                chain=not self._drafter.trees,
            )
            expected = sum(share for _, _, share in planned)
            if expected > score:
                best, score = planned, expected
        return best, score

    def _budget(self, shortest: int, longest: int, room: int) -> int:
        """The most that may be drafted after one of these matches: longer ones allow more, and
        leave less of the depth."""
        factor, depth = self._drafter.max_spec_factor, self._drafter.max_tree_depth
        even = int(depth / (1 + factor))  # where both bounds meet
        lengths = {min(max(length, shortest), longest) for length in (even, even + 1)}
        return min(room, max(min(int(factor * length), depth - length) for length in lengths))

    def _count(self, context: Sequence[int]) -> None:
        """Count what is new in the context; all of it when it does not go on from what was counted,
        as after an edit."""
        known = self._own.tokens
        if len(known) > len(context) or list(context[: len(known)]) != known:
            self._own = SuffixAutomaton(self._drafter.max_tree_depth)
        self._own.extend(context[len(self._own.tokens) :])

    def observe(self, seen: Observation) -> None:
        """Remember what was emitted, for the shared store."""
        if self._drafter.shared is not None and seen.round is not None:
            self._committed[seen.round.start :] = seen.round.tokens

    def state_key(self) -> Hashable:
        """The request's own counts follow from the context; the store's do not."""
        return self._drafter.shared.version if self._drafter.shared is not None else ()

    def fork(self) -> SuffixSession:
        other = copy(self)
        other._own, other._committed = self._own.fork(), list(self._committed)
        return other

    def close(self) -> None:
        if self._drafter.shared is not None:
            self._drafter.shared.add(self._committed[self._num_prompt_tokens :])
        self._committed = []
        self._own = SuffixAutomaton(self._drafter.max_tree_depth)


def _make(config: Config, parts: Parts) -> Suffix:
    asked = {
        option.name.removeprefix(SUFFIX_PREFIX): config.option(option.name) for option in SUFFIX
    }
    tree = asked.pop("use_tree")
    if tree and not parts.target.supports_trees:
        raise UsageError(
            f"{parts.target.name} cannot read a tree in one pass: leave {SUFFIX_PREFIX}use_tree out"
        )
    return Suffix(**asked, tree=tree)


SUFFIX_PREFIX = "suffix_decoding_"
SUFFIX = (
    Option(
        "suffix_decoding_max_tree_depth",
        24,
        count_from(1),
        "most tokens of match and draft together (24)",
    ),
    Option(
        "suffix_decoding_max_spec_factor",
        1.0,
        number_from(0),
        "drafts for each matched token (1.0)",
    ),
    Option(
        "suffix_decoding_min_token_prob",
        0.1,
        number_from(0, 1),
        "least share of the counts a drafted path has (0.1)",
    ),
    Option(
        "suffix_decoding_max_cached_requests",
        0,
        count_from(0),
        "outputs of earlier requests to look in as well; 0, the default here, for none",
    ),
    Option(
        "suffix_decoding_max_cached_tokens",
        200_000,
        count_from(0),
        "cap on those in tokens (200000)",
        vllm=False,
    ),
    Option(
        "suffix_decoding_use_tree",
        False,
        yes_or_no,
        "draft a tree instead of a chain (false)",
        vllm=False,
    ),
)
METHODS = (
    Method(
        "suffix",
        "counts what followed the text's last tokens; drafts as far as the counts carry",
        24,
        _make,
        options=SUFFIX,
        length_from="suffix_decoding_max_tree_depth",
        replayable=True,
        vllm=True,
        examples={"suffix": Suffix, "suffix, tree": lambda: Suffix(max_spec_factor=3.0, tree=True)},
    ),
)
