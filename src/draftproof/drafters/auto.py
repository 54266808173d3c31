"""`auto`: several drafters side by side, one of them drafting in each round.

Which one is said before the round, by `choose`: the decoder's length controller compares what past
rounds of this request and the table of costs let it expect of each, together with what drafters can
say of their coming draft before they make it (`foresee`, for instance the length of a match). No
draw of the round plays a part, so the choice cannot bias what is emitted. All drafters follow the
text; only the chosen one works.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from typing import Any

from draftproof.core.records import Observation, Selection
from draftproof.drafters import registry
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.options import DRAFT_SAMPLE_METHOD, Option
from draftproof.drafters.protocol import (
    Choosing,
    Drafter,
    DraftSession,
    Foreseeing,
    Foreseen,
    Proposal,
    Renewable,
    Request,
    Wants,
)
from draftproof.drafters.registry import Method, Parts
from draftproof.errors import UsageError


class Auto(Drafter):
    """members: name -> drafter, the one to begin with first. limits: the longest draft of those
    that have a limit of their own. One rule verifies them all: it must know every kind of draft
    among them, and trees if one of them branches."""

    name = "auto"

    def __init__(
        self, members: Mapping[str, Drafter], limits: Mapping[str, int] | None = None
    ) -> None:
        if len(members) < 2:
            raise UsageError(
                "auto chooses between at least two drafters; it was given "
                f"{', '.join(members) or 'none'}"
            )
        self._members, self.limits = dict(members), dict(limits or {})
        self.trees = any(member.trees for member in members.values())
        self.selections: frozenset[Selection] = frozenset().union(
            *(member.selections for member in members.values())
        )
        hidden = {layer for member in members.values() for layer in member.wants.hidden}
        self.memories = tuple(memory for member in members.values() for memory in member.memories)
        wants = [member.wants for member in members.values()]
        self.wants = Wants(
            tuple(sorted(hidden)),
            max(one.top_ids for one in wants),
            any(one.prediction for one in wants),
        )

    @property
    def members(self) -> Mapping[str, Drafter]:
        return self._members

    @property
    def known_texts(self) -> int:
        return sum(member.known_texts for member in self._members.values()) % 2**64

    def open(self, request: Request) -> AutoSession:
        return AutoSession(self.members, request)


class AutoSession(DraftSession, Choosing, Renewable):
    """The members' states for one request."""

    def __init__(self, members: Mapping[str, Drafter], request: Request) -> None:
        self._members = members
        self._sessions: dict[str, DraftSession] = {
            name: member.open(request) for name, member in members.items()
        }
        self._chosen = next(iter(members))

    def foresee_each(self, context: Sequence[int]) -> dict[str, Foreseen]:
        """What every member that can says of a draft after `context`, by name."""
        able = {
            name: session
            for name, session in self._sessions.items()
            if isinstance(session, Foreseeing)
        }
        return {name: session.foresee(context) for name, session in able.items()}

    def choose(self, name: str) -> None:
        """Let `name` draft from now on."""
        self._chosen = name

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> Proposal:
        return self._sessions[self._chosen].propose(context, draft)

    def observe(self, seen: Observation) -> None:
        for session in self._sessions.values():
            session.observe(seen)

    def state_key(self) -> Hashable:
        return (self._chosen, tuple(session.state_key() for session in self._sessions.values()))

    def fork(self) -> AutoSession:
        other = copy(self)
        other._sessions = {name: session.fork() for name, session in self._sessions.items()}
        return other

    def renew(self, request: Request, kept: int) -> None:
        """Members that cannot be renewed are opened anew."""
        self._chosen = next(iter(self._members))
        for name, session in self._sessions.items():
            if isinstance(session, Renewable):
                session.renew(request, kept)
            else:
                session.close()
                self._sessions[name] = self._members[name].open(request)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


NAME = "auto"
OF_THE_WHOLE = (
    "rule",
    "rejection_sample_method",
    "adaptive",
    "auto_off",
    "costs",
    "num_speculative_tokens_per_batch_size",
)
"""Keys that say something about all drafters together."""


def _auto(config: Any, parts: Parts) -> Auto:
    made, limits = {}, {}
    for member, asked in zip(config.members, _listed(config), strict=True):
        if (
            member.shape is not None
            and not member.shape.is_chain
            and not parts.target.supports_trees
        ):
            raise UsageError(
                f"{parts.target.name} cannot read a tree in one pass: leave the tree of "
                f"{member.method!r} out"
            )
        own = Parts(
            parts.target, parts.draft if member.spec.model == "draft" else None, parts.tokenizer
        )
        made[member.method] = member.spec.make(member, own)
        if "num_speculative_tokens" in asked:
            limits[member.method] = member.num_speculative_tokens
    return Auto(made, limits)


def _listed(config: Any) -> list[dict[str, Any]]:
    """The drafters asked for, each as a mapping with its own keys only. By default suffix matches
    and the draft model; without a model, suffix matches and prompt lookup."""
    usual = ("suffix", "ngram" if config.model is None else "draft_model")
    return [
        {"method": one} if isinstance(one, str) else dict(one)
        for one in config.option("drafters") or usual
    ]


def _members(config: Any) -> tuple[Any, ...]:
    """The drafters' configurations, with what is said beside the list for those named by their bare
    names."""
    listed = _listed(config)
    names = ", ".join(one["method"] for one in listed)
    takers = [
        one
        for one in listed
        if registry.METHODS[one["method"]].model is not None and "model" not in one
    ]
    if config.model is not None and not takers:
        raise UsageError(
            '"model" is read by a drafter that takes one and has none, and drafters '
            f"names no such: {names}"
        )
    if config.model is not None and len(takers) > 1:
        several = " and ".join(repr(one["method"]) for one in takers)
        raise UsageError(
            f'"model" could be of {several}: give each its own, as {{"method": "eagle3", '
            f'"model": "..."}}'
        )
    bare = [one for one in listed if one.keys() == {"method"}]
    for one in takers if config.model is not None else ():
        one["model"] = config.model
        if config.revision is not None:
            one["revision"] = config.revision
    for key in config.options.keys() - {DRAFTERS.name}:
        readers = [
            one
            for one in bare
            if any(option.name == key for option in registry.METHODS[one["method"]].options)
        ]
        if not readers:
            raise UsageError(
                f"speculative_config[{key!r}] is read by none of the drafters named "
                "without keys of their own"
            )
        for one in readers:
            one[key] = config.options[key]
    return tuple(type(config).from_dict(one) for one in listed)


def _drafters(name: str, value: Any) -> tuple[str | dict[str, Any], ...]:
    """A check: a list of at least two different methods, each a name or a mapping with "method"."""
    allowed = sorted(registry.METHODS.keys() - {"none", NAME})
    if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
        raise UsageError(
            f"{name} is {value!r}; allowed: a list of {', '.join(allowed)}, or of "
            "mappings with such a method"
        )
    names = [one.get("method") if isinstance(one, Mapping) else one for one in value]
    for one in names:
        if one not in allowed:
            raise UsageError(
                f"{name} has {one!r}; allowed: {', '.join(allowed)}, or a mapping with "
                "such a method"
            )
    if len(set(names)) < len(names):
        raise UsageError(f"{name} is {value!r}; it names a drafter twice")
    if len(names) < 2:
        raise UsageError(f"{name} is {value!r}; method {NAME!r} chooses between at least two")
    for one in value:
        general = [key for key in OF_THE_WHOLE if isinstance(one, Mapping) and key in one]
        if general:
            raise UsageError(
                f"{name}: {general[0]!r} holds for all drafters together; give it beside {name!r}"
            )
    return tuple(dict(one) if isinstance(one, Mapping) else one for one in value)


DRAFTERS = Option(
    "drafters",
    None,
    _drafters,
    "the drafters it chooses from: names, or mappings with keys of their own",
    vllm=False,
)

METHODS = (
    Method(
        NAME,
        "several drafters side by side, in each round the one that promises most",
        16,
        _auto,
        model="drafters",
        model_optional=True,
        options=(DRAFTERS, DRAFT_SAMPLE_METHOD),
        adapts=True,
        members=_members,
        passes_on=("ngram", "suffix"),
    ),
)
