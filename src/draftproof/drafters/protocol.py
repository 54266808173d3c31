"""The narrow waist towards drafters: anything that proposes tokens.

A `Drafter` is made once (weights, stores); `open` gives the state of one request. Requests share
nothing unless a shared store was asked for.

A drafter of your own subclasses `Drafter` and `DraftSession`. What is abstract or has no default
must be there; what has a default may be left out. What only some sessions can do is a protocol of
its own: `Foreseeing`, `Renewable`, `Choosing`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from draftproof.core.records import Observation, Selection
from draftproof.core.tree import TreeShape
from draftproof.drafters.stores.memory import Memory as Memory
from draftproof.models.protocol import LanguageModel, Output, Step

if TYPE_CHECKING:
    from draftproof.core.params import SamplingParams
    from draftproof.core.pipeline import LawPipeline
    from draftproof.drafters.builder import DraftBuilder

Proposal = Generator[Step, Output, None] | None
"""What `propose` returns: nothing, or a generator that yields the forward passes it needs and is
sent their outputs."""


@dataclass(frozen=True)
class Wants:
    """What a drafter needs. Back from the target's passes: hidden layers by id, and this many top
    ids of every row. From the caller: prediction, whether it reads `SamplingParams.prediction`."""

    hidden: tuple[int, ...] = ()
    top_ids: int = 0
    prediction: bool = False


@dataclass(frozen=True)
class Request:
    """One sequence to be generated, as a drafter sees it. `laws` turns the drafter's own logits
    into its law under the same parameters; `target` is there for methods that share its weights."""

    prompt: tuple[int, ...]
    params: SamplingParams
    laws: LawPipeline
    target: LanguageModel
    sample: int = 0


@dataclass(frozen=True)
class Foreseen:
    """What a drafter knows of its coming draft before making it, from the context alone. strength:
    a whole number that goes with how likely it is accepted, such as the length of a match; 0:
    nothing to propose. most: its length at most. chance: that a token of such a draft is accepted
    once it is reached, as drafts of this strength are elsewhere; what a request's own rounds say of
    that strength soon outweighs it."""

    strength: int
    most: int | None = None
    chance: float | None = None


class DraftSession(ABC):
    """A drafter's state for one request, in which the context only grows: every `propose` is given
    all of it."""

    @abstractmethod
    def propose(self, context: Sequence[int], draft: DraftBuilder) -> Proposal:
        """Add tokens that may follow `context` (all committed tokens, the pending one last) through
        `draft`.

        Called only when `draft.room > 0`. A generator when forwards are needed: `output = yield
        Step(session, tokens)`."""

    def observe(self, seen: Observation) -> None:
        """Told after the prompt and after every round what the target has read and how the round
        ended."""
        return None

    @abstractmethod
    def state_key(self) -> Hashable:
        """Equal keys mean equal future behaviour on equal contexts; what the enumerator memoises
        on."""

    @abstractmethod
    def fork(self) -> DraftSession:
        """A copy that goes its own way: whatever is told to one of the two leaves the other as it
        was. Also between `propose` and the `observe` that follows it; never while a proposal is
        under way. What belongs to the drafter (weights, stores) stays shared."""

    def close(self) -> None:
        """Free what the session holds. Idempotent."""
        return None


@runtime_checkable
class Foreseeing(Protocol):
    """What a `DraftSession` has too if it can say something of its draft at little cost; lengths
    that adapt make use of it."""

    def foresee(self, context: Sequence[int]) -> Foreseen:
        """Of the draft after `context`, the pending token last."""


@runtime_checkable
class Renewable(Protocol):
    """What a `DraftSession` has too if a chat may keep it for the next turn. One without it is
    closed and a new one opened, which reads the whole prompt anew (as must the target, where the
    drafter wants hidden states)."""

    def renew(self, request: Request, kept: int) -> None:
        """Serve `request` from now on, with its parameters. The first `kept` tokens of its prompt
        are the beginning of what was observed so far and stay; whatever came after them is gone,
        and other tokens may stand there: forget it. The next observation starts at `kept`.
        Afterwards the session behaves like a new one that has observed those tokens."""


@runtime_checkable
class Choosing(Protocol):
    """What the `DraftSession` of a drafter of several has too: which of them drafts is decided
    before the round."""

    def foresee_each(self, context: Sequence[int]) -> Mapping[str, Foreseen]:
        """What every member that is `Foreseeing` says of its draft after `context`, by name."""

    def choose(self, name: str) -> None:
        """Let the member `name` draft from now on."""


class Drafter(ABC):
    """Anything that proposes tokens; made once, opened for every request.

    name: as in `speculative_config["method"]`. selections: the kinds of draft it may build, so that
    a rule that cannot verify them is refused before the first token. memories: what it keeps from
    earlier requests and drafts from; () where requests share nothing. These three have no default.

    trees: whether its drafts may branch. wants: see `Wants`. tree: the one shape of its drafts,
    None where there is none. limits: of a drafter of several, the longest draft of each member that
    has a limit of its own.

    What drafting costs is reckoned from: model, the language model whose passes drafting takes,
    None where there is none; network, the module of weights that a step of drafting reads beside (a
    head), None where there is none; tokens_a_step, how many levels of a draft a step of that
    network gives."""

    name: str
    selections: frozenset[Selection]
    memories: tuple[Memory, ...]

    trees: bool = False
    wants: Wants = Wants()
    tree: TreeShape | None = None
    limits: Mapping[str, int] = MappingProxyType({})

    model: LanguageModel | None = None
    network: Any = None
    tokens_a_step: int = 1

    @property
    def known_texts(self) -> int:
        """A digest of what was written before the request and may be drafted (a corpus, its
        tables); 0 where nothing is. A text of this seed among it would know the coins that judge
        its drafts."""
        return 0

    @abstractmethod
    def open(self, request: Request) -> DraftSession:
        """The state for one request; called once per sequence."""

    @property
    def members(self) -> Mapping[str, Drafter]:
        """The drafters it chooses from, by name; itself where it is one."""
        return {self.name: self}

    def most_read(self, depth: int) -> int:
        """The most tokens the target reads for a draft of at most `depth` levels, what it reads
        beside the draft included."""
        if self.tree is None or not self.trees:
            return depth
        return sum(map(len, self.tree.levels[:depth]))

    def session_bytes(self, num_tokens: int) -> int:
        """What a session's own rows of a text of `num_tokens` tokens take, in bytes, beside those
        of `model`."""
        return 0
