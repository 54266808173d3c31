"""One sequence being generated, round by round.

context -> propose -> one target pass over what it has not read, plus the draft -> laws -> rule ->
commit token by token -> keep the accepted path -> Round -> observe. `round()` is a generator: it
yields the forward passes it needs, so one driver can serve a single sequence or put the passes of
many into one. The enumerator calls the two halves of which a round is made, `propose` and `settle`,
on forks of a generation.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from draftproof.core.chance import Chance
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import (
    ROOT,
    Array,
    Beside,
    Draft,
    Observation,
    Origin,
    Round,
    Seconds,
    Verdict,
)
from draftproof.core.rules.protocol import Rule
from draftproof.decode.length import LengthController, Situation
from draftproof.decode.logprobs import TokenLogprobs, row_logprobs, top_ids
from draftproof.decode.reading import is_to_be_scored, read_scored
from draftproof.decode.stopping import Stopper
from draftproof.decode.target_laws import RowLaws
from draftproof.drafters.builder import DraftBuilder, LengthPolicy
from draftproof.drafters.protocol import Choosing, DraftSession, Wants
from draftproof.errors import UsageError
from draftproof.models.protocol import Output, Session, Step


@dataclass(frozen=True)
class Proposed:
    """What one round's drafting left. forward_seconds: the part of `seconds` that the drafter's
    forward passes took."""

    builder: DraftBuilder
    seconds: float
    forward_seconds: float


@dataclass
class Generation:
    """The state of one sequence. Everything that changes is here, in the two sessions, and in
    `stopper`.

    session: the target's, having read a prefix of `context`. chance_at: chance of the round that
    starts at a committed length. rule, drafting: how to speculate; `drafting=None` decodes plainly,
    one token a round. length: what decides about draft lengths up to `num_speculative_tokens`; None
    drafts that many. policy: a bare rule in its place, for proofs. owns_drafting: whether the
    drafter's session ends with this one. ahead: see `Reading`."""

    session: Session
    context: list[int]
    params: SamplingParams
    pipeline: LawPipeline
    stopper: Stopper
    rule: Rule
    chance_at: Callable[[int], Chance]
    drafting: DraftSession | None = None
    owns_drafting: bool = True
    wants: Wants = Wants()
    num_speculative_tokens: int = 0
    max_nodes: int | None = None
    policy: LengthPolicy | None = None
    length: LengthController | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    ahead: list[Observation] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.drafting is not None and not isinstance(self.drafting, DraftSession):
            raise UsageError(
                f"a drafter opened a {type(self.drafting).__name__}, which is no "
                "subclass of DraftSession"
            )

    @property
    def finished(self) -> bool:
        return self.stopper.finish is not None

    def round(self) -> Generator[Step, Output, Round]:
        """One round; returns its record. Must not be called once `finished`."""
        if is_to_be_scored(self):
            yield from read_scored(self)
        chance = self.chance_at(len(self.context))
        proposed = yield from self.propose(chance)
        return (yield from self.settle(proposed, chance))

    def settle(self, proposed: Proposed, chance: Chance) -> Generator[Step, Output, Round]:
        """The second half of a round: the target reads what was proposed, and the rule decides."""
        begin = perf_counter()
        start, draft = len(self.context), proposed.builder.build()
        self._check(draft)
        before_verify = perf_counter()
        unread = self.context[self.session.length :]
        beside = self._fitting(proposed.builder.beside(), draft)
        output = yield self._verify_step(unread, draft, beside)
        after_verify = perf_counter()
        logits = output.logits[: len(draft) + 1]
        laws = RowLaws(self.pipeline, logits, self.context, draft)
        verdict = laws.within_law(self.rule.verify(draft, laws, chance))
        tokens, num_accepted = self._commit(draft, verdict, logits)
        self.session.keep(
            (*range(len(unread)), *(len(unread) + node for node in verdict.path[:num_accepted]))
        )
        record = self._record(start, draft, verdict, tokens, num_accepted, laws, proposed.builder)
        record = replace(record, reads_prompt=len(unread) > 1, num_read_beside=len(beside))
        self._tell(start, unread, draft, verdict.path[:num_accepted], output, record)
        seconds = Seconds(
            draft=proposed.seconds,
            draft_forward=proposed.forward_seconds,
            verify=after_verify - before_verify,
            rest=before_verify - begin + perf_counter() - after_verify,
        )
        record = replace(record, seconds=seconds)
        if self.length is not None:
            self.length.observe(record)
        return record

    def close(self) -> None:
        """Free the drafter's state, if it is ours. The target session belongs to the caller."""
        if self.drafting is not None and self.owns_drafting:
            self.drafting.close()

    def propose(self, chance: Chance) -> Generator[Step, Output, Proposed]:
        """The first half of a round: the drafter fills a builder."""
        begin = perf_counter()
        builder = self._builder(chance)
        proposal = None
        if self.drafting is not None and builder.room > 0:
            proposal = self.drafting.propose(self.context, builder)
        forward = 0.0
        try:
            step = next(proposal) if proposal is not None else None
            while proposal is not None and step is not None:
                asked = perf_counter()
                output = yield step
                forward += perf_counter() - asked
                step = proposal.send(output)
        except StopIteration:
            pass
        if (
            self.drafting is not None
            and builder.num_nodes == 0
            and self.pipeline.constraint is not None
        ):
            builder = self._expected_by_grammar(builder, chance)
        return Proposed(builder, perf_counter() - begin, forward)

    def _builder(self, chance: Chance) -> DraftBuilder:
        length = self.length if self.drafting is not None else None
        return DraftBuilder(
            chance,
            depth=self._depth(),
            vocab_size=self.session.model.vocab_size,
            max_nodes=self._node_budget(),
            policy=self.policy if length is None else length.go_on,
            worth=None if length is None else length.room,
            ends=self.stopper.ends,
        )

    def _expected_by_grammar(self, empty: DraftBuilder, chance: Chance) -> DraftBuilder:
        """Where the drafter has nothing: the tokens whose characters the grammar leaves no choice
        about, as guesses."""
        constraint = self.pipeline.constraint
        expected = (
            constraint.forced(self.context)
            if constraint is not None and "fixed" in self.rule.selections
            else ()
        )
        if not expected:
            return empty
        builder = DraftBuilder(
            chance,
            depth=self._longest(),
            vocab_size=self.session.model.vocab_size,
            ends=self.stopper.ends,
        )
        for token in expected:
            if builder.room <= 0 or self.pipeline.forbids(token, self.context, builder.path()):
                break
            builder.guess(token)
        return builder

    def _longest(self) -> int:
        """The longest draft that is asked for and fits."""
        return min(self.num_speculative_tokens, self.stopper.remaining - 1)

    def _depth(self) -> int:
        """How deep the draft of this round may grow; asks `length`, and hands its choice to a
        drafter of several."""
        longest = self._longest()
        if self.length is None or self.drafting is None:
            return longest
        depth = self.length.begin(
            Situation(
                length=len(self.context),
                longest=max(longest, 0),
                remaining=self.stopper.remaining,
                foreseen=self.length.foreseen(self.drafting, self.context),
            )
        )
        if self.length.choice is not None and isinstance(self.drafting, Choosing):
            self.drafting.choose(self.length.choice)
        return depth

    def _node_budget(self) -> int | None:
        """Most nodes of a tree: as asked, and no more than the target's context holds in one
        pass."""
        limit = self.session.model.max_length
        if self.max_nodes is None or limit is None:
            return self.max_nodes
        return min(self.max_nodes, limit - len(self.context))

    def _check(self, draft: Draft) -> None:
        """A rule sees only drafts it is exact for; the decoder refuses such pairs earlier, by what
        the drafter declares."""
        if draft.tokens and (
            draft.selection not in self.rule.selections or not (self.rule.trees or draft.is_chain)
        ):
            shape = "chain" if draft.is_chain else "tree"
            raise ValueError(
                f"rule {self.rule.name!r} cannot verify a {shape} of {draft.selection} drafts"
            )

    def _fitting(self, beside: Beside, draft: Draft) -> Beside:
        """`beside`, or nothing where the target's context has no room for it."""
        limit = self.session.model.max_length
        return (
            beside
            if limit is None or len(self.context) + len(draft) + len(beside) <= limit
            else Beside()
        )

    def _verify_step(self, unread: Sequence[int], draft: Draft, beside: Beside) -> Step:
        """The pass over what is unread, the draft, and last what is read beside it."""
        first = len(unread) - 1
        after = len(unread) + len(draft)
        parents = None
        if beside or not draft.is_chain:
            roots = [first if parent == ROOT else after + parent for parent in beside.parents]
            parents = (*range(-1, first), *(first + 1 + parent for parent in draft.parents), *roots)
        rows = (*range(first, after), *(after + node for node in beside.wanted))
        return Step(
            self.session, (*unread, *draft.tokens, *beside.tokens), parents, rows, self.wants.hidden
        )

    def _commit(self, draft: Draft, verdict: Verdict, logits: Array) -> tuple[list[int], int]:
        """Commit the accepted path and the drawn token one by one until one of them ends the
        text."""
        wanted = self.params.logprobs
        tokens: list[int] = []
        row = 0
        for node in (*verdict.path, None):
            token = verdict.token if node is None else draft.tokens[node]
            if wanted is not None:
                self.logprobs.append(row_logprobs(logits[row], token, wanted))
            tokens.append(token)
            self.context.append(token)
            if self.stopper.push(token) or node is None:
                break
            row = node + 1
        return tokens, min(len(tokens), len(verdict.path))

    def _record(
        self,
        start: int,
        draft: Draft,
        verdict: Verdict,
        tokens: list[int],
        num_accepted: int,
        laws: RowLaws,
        builder: DraftBuilder,
    ) -> Round:
        reached = list(verdict.path[:num_accepted])
        origins: list[Origin] = ["draft"] * num_accepted
        if len(tokens) > num_accepted:
            origins.append(verdict.origin(draft))
            reached += draft.children.get(verdict.path[-1] if verdict.path else ROOT, [])[:1]
        overlaps = (
            tuple(laws.overlap(node, i < num_accepted) for i, node in enumerate(reached))
            if draft.is_chain
            else ()
        )
        return Round(
            start=start,
            draft_tokens=draft.tokens,
            draft_parents=draft.parents,
            tokens=tuple(tokens),
            origins=tuple(origins),
            num_accepted_tokens=num_accepted,
            num_accepted_after_end=len(verdict.path) - num_accepted,
            reached=len(reached),
            overlaps=overlaps,
            num_invalid_draft_laws=builder.num_invalid_laws,
            note="; ".join(builder.notes) or None,
            drafter=None if self.length is None else self.length.choice,
            length_reason=None if self.length is None else self.length.reason,
        )

    def _tell(
        self,
        start: int,
        unread: Sequence[int],
        draft: Draft,
        path: Sequence[int],
        output: Output,
        record: Round,
    ) -> None:
        """Hand the drafter what the target has read for good, and the finished round."""
        if self.drafting is None:
            return
        while self.ahead:
            self.drafting.observe(self.ahead.pop(0))
        kept = [*range(len(unread)), *(len(unread) + node for node in path)]
        row_parents = (-1, *(parent + 1 for parent in draft.parents))
        top = top_ids(output.logits, self.wants.top_ids) if self.wants.top_ids else None
        num_rows = len(draft) + 1
        self.drafting.observe(
            Observation(
                start=start - len(unread),
                tokens=(*unread, *(draft.tokens[node] for node in path)),
                hidden={layer: states[kept] for layer, states in output.hidden.items()},
                row_tokens=(unread[-1], *draft.tokens),
                row_parents=row_parents,
                top_ids=None if top is None else top[:num_rows],
                beside_top_ids=None if top is None or len(top) == num_rows else top[num_rows:],
                round=record,
            )
        )
