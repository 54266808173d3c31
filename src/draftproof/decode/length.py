"""The draft length of one request: which drafter drafts in the coming round, how far, and why.

Asked before a round's first draft; told how the round ended. Decisions rest on counts of past
rounds, on a table of costs and on the laws that tokens are about to be drawn from: never on the
tokens of the draft under construction, which would bias what is emitted, and, unless `live`, never
on the clock, so that a run replays with its seed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from draftproof.core.records import Array, Round
from draftproof.core.tree import node_depths
from draftproof.costs.live_costs import LiveCosts
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.lengths.acceptance import strength_class
from draftproof.decode.lengths.auto_off import PROBE, Ledger, Switch
from draftproof.decode.lengths.pace import Pace
from draftproof.decode.lengths.protocol import LengthRule
from draftproof.drafters.protocol import Choosing, DraftSession, Foreseeing, Foreseen

EXPECTED_USE = 0.125
"""The share of the text left in which a drafter that still has to read may hope to draft. Little:
how well it does is not known before it has read, and where it does badly all of the reading is
lost."""


@dataclass(frozen=True)
class Situation:
    """What is known when a round begins. length: committed tokens. longest: the longest draft that
    is allowed. remaining: tokens until the limit. foreseen: what drafters say of their coming
    drafts. How much of the text the target has read already is no part of it, so that a turn of a
    chat decides as a cold run does."""

    length: int
    longest: int
    remaining: int
    foreseen: Mapping[str, Foreseen] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What one drafter would do: drafts, the tokens and the time expected of the round, and the
    reason in a few words."""

    drafts: int
    reason: str
    tokens: float = 1.0
    time: float = 1.0
    probe: bool = False

    @property
    def rate(self) -> float:
        """Tokens per time."""
        return self.tokens / self.time

    def gain(self, rate: float) -> float:
        """Tokens beyond those of a plain round, less what the time beyond it brings elsewhere, at
        `rate` tokens per time."""
        return self.tokens - 1.0 - rate * (self.time - 1.0)


class Member:
    """One drafter's share in the decisions.

    costs: per level of a draft, which is a token where drafts are chains; by_token: the same where
    they are trees, None for chains. longest: its longest draft, where it has a limit of its own. A
    drafter that can tell strong drafts from weak ones has a switch for each class of them: that
    guesses after one matching token do not pay says little about those after ten."""

    def __init__(
        self,
        name: str,
        rule: LengthRule,
        costs: RoundCosts,
        *,
        auto_off: bool,
        live: bool = False,
        by_token: RoundCosts | None = None,
        longest: int | None = None,
    ) -> None:
        self.name, self.rule, self.costs = name, rule, costs
        self.by_token, self.longest = by_token, longest
        self.live = LiveCosts(costs, by_token) if live else None
        self.read = 0
        """Committed tokens this drafter has read."""
        self._auto_off = auto_off
        self._switches: dict[int | None, Switch] = {}
        self._class: int | None = None

    @property
    def chains(self) -> bool:
        return self.by_token is None

    @property
    def switch(self) -> Switch | None:
        """That of drafts as strong as the coming one."""
        return self._switches.setdefault(self._class, Switch()) if self._auto_off else None

    @property
    def steps(self) -> bool:
        """Whether it works once for each level of a draft, as models do."""
        return self.costs.draft > 0

    def plan(self, now: Situation, ledger: Ledger | None) -> Plan:
        """The coming round if this drafter drafts."""
        seen = now.foreseen.get(self.name, Foreseen(1))
        limits = [limit for limit in (now.longest, self.longest, seen.most) if limit is not None]
        longest = min(limits)
        if longest <= 0:
            return Plan(0, "no room for a draft")
        if seen.strength == 0:
            return Plan(0, "nothing to propose")
        strength = seen.strength if self.name in now.foreseen else None
        self._class = None if strength is None else strength_class(strength)
        emitted = 0 if ledger is None else ledger.emitted
        status = "on" if self.switch is None else self.switch.status(emitted)
        if status == "off":
            return Plan(0, "off: recent rounds cost more than they gave")
        wanted = self.rule.begin(longest, now.foreseen.get(self.name))
        if status == "probe":
            wanted = min(PROBE, longest)
        elif wanted == 0:
            if self.switch is not None:
                self.switch.turn_off(emitted)
                return Plan(0, "off: no draft is expected to pay")
            return Plan(1, "no draft is expected to pay, and auto_off is off", probe=True)
        drafts = wanted if ledger is None else self._affordable(wanted, now, ledger)
        if drafts == 0:
            return Plan(0, "over budget: one more losing round would cost too much")
        planned = drafts if status == "probe" else min(drafts, self.rule.room(0))
        tokens, time = 1.0 + self.rule.expected(planned), self.costs.round(planned)
        if ledger is not None and not self._repays(tokens / time, now):
            return Plan(0, "too little text is left to repay what the drafter has to read")
        time += self._catching_up(tokens, now)
        return Plan(
            drafts,
            "probe" if status == "probe" else self.rule.name,
            tokens,
            time,
            status == "probe",
        )

    def _catching_up(self, tokens: float, now: Situation) -> float:
        """This round's share of reading what the drafter has not read yet, were it to draft
        EXPECTED_USE of what is left."""
        backlog = self.costs.read * (now.length - self.read - 1)
        return backlog / max(EXPECTED_USE * now.remaining / tokens, 1.0)

    def _affordable(self, wanted: int, now: Situation, ledger: Ledger) -> int:
        """The most drafts, up to `wanted`, whose worst outcome the ledger allows."""
        unread = now.length - self.read
        for drafts in range(wanted, 0, -1):
            if ledger.affords(self.costs.round(drafts, drafts if self.steps else 0, unread)):
                return drafts
        return 0

    def _repays(self, rate: float, now: Situation) -> bool:
        """Whether drafting the rest of the text at `rate` would win back the reading of what the
        drafter has not read."""
        backlog = self.costs.read * (now.length - self.read - 1)
        return backlog <= 1.0 or now.remaining * (1.0 - 1.0 / max(rate, 1.0)) >= backlog

    def cost(self, record: Round, asked: int, backlog: int) -> float:
        """Of a finished round in which this drafter was asked: its steps (as many as laws were
        shown, at least as deep as the draft), the pass over the draft, and the work around them."""
        levels = _levels(record)
        steps = max(levels, asked, 1) if self.steps else 0
        if self.by_token is None:
            return self.costs.round(levels, steps, backlog)
        return self.by_token.round(
            len(record.draft_tokens) + record.num_read_beside, steps, backlog
        )

    def observe(self, record: Round, cost: float, emitted: int) -> None:
        """A round of this drafter's has ended. One in which it had nothing to propose, at no cost,
        teaches nothing."""
        if not record.draft_tokens and not record.num_read_beside and not self.steps:
            return
        self.rule.observe(record)
        if self.switch is not None:
            self.switch.observe(cost, len(record.tokens), emitted)
        self.read = record.start + min(record.num_accepted_tokens, max(_levels(record) - 1, 0))

    def follow_clock(self, record: Round, steps: int) -> None:
        """Take new costs from the times of a round, when live."""
        if self.live is not None:
            self.live.observe(record, steps)
            self.costs, self.by_token = self.live.costs, self.live.by_token
            self.rule.reckon_with(self.costs)

    def state_key(self) -> Hashable:
        kinds = sorted(self._switches, key=lambda kind: -1 if kind is None else kind)
        used = tuple(
            (kind, self._switches[kind].state_key()) for kind in kinds if self._switches[kind].used
        )
        return (self.rule.state_key(), used, self.read)


class LengthController:
    """The lengths of one request's drafts, of one drafter or of several side by side. ledger: None
    lets every round go. A tree's depth is decided from past rounds alone, since what a law shows on
    one branch must not decide about another."""

    def __init__(self, members: Sequence[Member], ledger: Ledger | None = None) -> None:
        self._members, self._ledger = tuple(members), ledger
        self._chosen: Member | None = None
        self._plan = Plan(0, "")
        self._pace = Pace()
        self._asked = 0
        self._backlog = 1

    @property
    def choice(self) -> str | None:
        """The drafter of the coming round; None when nothing is drafted."""
        return None if self._chosen is None else self._chosen.name

    @property
    def reason(self) -> str:
        """Why the coming round drafts as it does, in a few words; the statistics count rounds by
        it."""
        return self._plan.reason

    def foreseen(self, drafting: DraftSession, context: Sequence[int]) -> Mapping[str, Foreseen]:
        """What the drafters say of their drafts after `context`, by name; those that say nothing
        are left out."""
        if isinstance(drafting, Choosing):
            return drafting.foresee_each(context)
        return (
            {self._members[0].name: drafting.foresee(context)}
            if isinstance(drafting, Foreseeing)
            else {}
        )

    def begin(self, now: Situation) -> int:
        """The most drafts of the coming round; 0 when it is plain."""
        if self._ledger is not None and self._ledger.emitted == 0:
            self._ledger.prompt = self._members[0].costs.prompt * (now.length - 1)
        self._asked, self._chosen = 0, None
        plans = [(member.plan(now, self._ledger), member) for member in self._members]
        promised = [(plan, member) for plan, member in plans if plan.drafts]
        drafting = (
            promised if len(plans) == 1 or self._ledger is None else self._worthwhile(promised)
        )
        if not drafting:
            why = (
                "no draft promises what its time is worth at the pace of the text"
                if promised
                else _joined(plans)
            )
            self._plan = Plan(0, plans[0][0].reason if len(plans) == 1 else why)
            return 0
        self._plan, self._chosen = max(drafting, key=lambda pair: pair[0].gain(self._pace.now))
        self._backlog = now.length - self._chosen.read
        if len(plans) > 1:
            self._plan = replace(self._plan, reason=f"{self.choice}: {self._plan.reason}")
        return self._plan.drafts

    def _worthwhile(self, plans: Sequence[tuple[Plan, Member]]) -> list[tuple[Plan, Member]]:
        """Those that promise more than their time is worth at the pace of the text; where there is
        none, those that only ask whether a drafter has become useful."""
        promising = [
            pair for pair in plans if not pair[0].probe and pair[0].gain(self._pace.now) > 0
        ]
        return promising or [pair for pair in plans if pair[0].probe]

    def room(self, depth: int) -> int:
        """How many more tokens after `depth` seem worth drafting; never asked when `begin` said
        0."""
        limit = self._plan.drafts - depth
        if self._chosen is None or self._plan.probe:
            return max(limit, 0)
        return max(min(limit, self._chosen.rule.room(depth)), 0)

    def go_on(self, law: Array | None, depth: int) -> bool:
        """Whether to draw from `law` after `depth` drafts."""
        self._asked = max(self._asked, depth + 1)
        if self._chosen is None or depth >= self._plan.drafts:
            return False
        if self._plan.probe and (law is None or not self._chosen.chains):
            return True
        return self._chosen.rule.go_on(law if self._chosen.chains else None, depth)

    def observe(self, record: Round) -> None:
        """The round has ended."""
        cost = self.price(self.choice, record, *self.asked)
        self._pace.enter(cost, len(record.tokens))
        emitted = 0
        if self._ledger is not None:
            self._ledger.enter(cost, len(record.tokens))
            emitted = self._ledger.emitted
        if self._chosen is not None:
            self._chosen.observe(record, cost, emitted)
        for member in self._members:
            steps = max(_levels(record), self._asked) if member is self._chosen else 0
            member.follow_clock(record, steps)

    @property
    def asked(self) -> tuple[int, int]:
        """How many laws the drafter of the round has shown so far, and the tokens it had not read
        when the round began."""
        return self._asked, self._backlog

    def price(self, drafter: str | None, record: Round, asked: int, backlog: int) -> float:
        """What a round of `drafter` (None: a plain one) takes in plain tokens' time, by the costs
        of this controller."""
        member = next((member for member in self._members if member.name == drafter), None)
        return 1.0 if member is None else member.cost(record, asked, backlog)

    def state_key(self) -> Hashable:
        """Equal keys mean equal decisions from now on; only between rounds."""
        ledger = None if self._ledger is None else self._ledger.state_key()
        return (
            ledger,
            self._pace.state_key(),
            tuple(member.state_key() for member in self._members),
        )


def _levels(record: Round) -> int:
    """How deep the draft was."""
    return 1 + max(node_depths(record.draft_parents), default=-1)


def _joined(plans: Sequence[tuple[Plan, Member]]) -> str:
    return "; ".join(f"{member.name}: {plan.reason}" for plan, member in plans)
