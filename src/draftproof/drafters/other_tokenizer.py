"""A draft model with another tokenizer (2502.05202), exactly, greedy or sampled: it reads the text
in tokens of its own.

Two routes. *text*: the draft model goes on greedily in its own tokens, and what it wrote is encoded
by the target's tokenizer into fixed guesses (the paper's SLEM, transformers' universal assisted
decoding): any text will do, a guess may be anything. *shared*: it draws from its own law restricted
to the tokens that both spell alike, renormalised under the request's parameters; that law is
recorded with the draw, so the rules for sampled drafts apply (the paper's TLI, vLLM's
`use_heterogeneous_vocab`). *auto* tries both and keeps to the one whose drafts were accepted more
in this request's rounds so far.

Not covered: string-level rejection (SLRS), which sums over all ways to spell a token; trees.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable, Sequence
from copy import copy
from typing import Literal

from array_api_compat import array_namespace, device

from draftproof.core.history import common_prefix
from draftproof.core.records import Array, Observation, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.options import Option, one_of, yes_or_no
from draftproof.drafters.protocol import Drafter, DraftSession, Memory, Request
from draftproof.drafters.registry import Config, Parts, Variant
from draftproof.errors import InvalidLogitsError, UsageError
from draftproof.models.protocol import LanguageModel, Output, Step
from draftproof.models.spelling import whole_characters
from draftproof.models.transcript import Transcript, Vocabularies, target_tokens

Route = Literal["auto", "text", "shared"]
TRIALS = 3
"""Drafts of each route before `auto` compares them."""


class OtherTokenizer(Drafter):
    """model: the draft model, over its own tokens. between: its vocabulary beside the target's.
    route: see above. draft_sample_method: as of a draft model, for the shared route; the text route
    always takes its likeliest tokens."""

    name = "draft_model"
    memories: tuple[Memory, ...] = ()
    model: LanguageModel

    def __init__(
        self,
        model: LanguageModel,
        between: Vocabularies,
        route: Route = "auto",
        draft_sample_method: str = "probabilistic",
    ) -> None:
        if route not in ("auto", "text", "shared"):
            raise UsageError(
                f"the route across tokenizers is {route!r}; allowed: auto, shared, text"
            )
        if route != "text" and not between.target_of:
            raise UsageError(
                f"{model.name} shares no token with the target, so only the route 'text' can draft"
            )
        self.model, self.between, self.route = model, between, route
        self.draft_sample_method = draft_sample_method
        fixed = route == "text" or draft_sample_method == "greedy"
        self.selections: frozenset[Selection] = frozenset({"fixed"} if fixed else {"iid", "fixed"})
        self._indices: dict[tuple[str, str], tuple[Array, Array]] = {}

    def indices(self, row: Array) -> tuple[Array, Array]:
        """The shared tokens' target ids and draft ids, as arrays where `row` is; made once."""
        xp, place = array_namespace(row), device(row)
        key = (xp.__name__, str(place))
        if key not in self._indices:
            pairs = self.between.draft_of
            self._indices[key] = (
                xp.asarray(list(pairs), device=place),
                xp.asarray(list(pairs.values()), device=place),
            )
        return self._indices[key]

    def open(self, request: Request) -> OtherTokenizerSession:
        return OtherTokenizerSession(self, request)


class OtherTokenizerSession(DraftSession):
    """The draft model's reading of one request. accepted: route -> drafts made, and tokens of them
    that were accepted."""

    def __init__(self, drafter: OtherTokenizer, request: Request) -> None:
        self._between, self._route, self._laws = drafter.between, drafter.route, request.laws
        self._greedy = drafter.draft_sample_method == "greedy" or request.laws.greedy
        self._vocab_size, self._indices = request.target.vocab_size, drafter.indices
        self._model, self._session = drafter.model, drafter.model.open()
        self._transcript = Transcript(between=drafter.between)
        self._accepted: dict[str, tuple[int, int]] = {"shared": (0, 0), "text": (0, 0)}
        self._drafted_by: str | None = None

    @property
    def route(self) -> str:
        """The route of the next draft, chosen by past rounds alone."""
        if self._route != "auto":
            return self._route
        (shared, shared_hits), (text, text_hits) = self._accepted["shared"], self._accepted["text"]
        if min(shared, text) < TRIALS:
            return "shared" if shared <= text else "text"
        return "shared" if shared_hits * text >= text_hits * shared else "text"

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> Generator[Step, Output, None]:
        self._transcript = self._transcript.after(context)
        ids = self._transcript.ids
        if not ids or not self._fits(len(ids)):
            limit = (
                f"outgrew its {self._model.max_length} tokens"
                if ids
                else "says nothing in its tokens"
            )
            draft.note(f"the text {limit}: the draft model is left out")
            return
        common = common_prefix(self._session.tokens, ids)
        self._session.rollback(min(common, len(ids) - 1))
        self._drafted_by = self.route
        try:
            yield from (
                self._write(context, draft)
                if self._drafted_by == "text"
                else self._draw(context, draft)
            )
        except InvalidLogitsError as error:
            draft.invalid_law(error)

    def _draw(self, context: Sequence[int], draft: DraftBuilder) -> Generator[Step, Output, None]:
        """The shared route: a chain of tokens that both know."""
        unread = self._transcript.ids[self._session.length :]
        while draft.room > 0 and self._fits(self._session.length + len(unread)):
            output = yield Step(self._session, unread, rows=(len(unread) - 1,))
            logits, path = self._shared_logits(output.logits[0]), draft.path()
            law = None if self._laws.greedy else self._laws.law(logits, context, path)
            self._laws.check()
            if not draft.go_on(law):
                return
            if law is None or self._greedy:
                draft.guess(self._laws.greedy_tokens(logits[None, :], context, [path])[0])
            else:
                draft.draw(law)
            drawn = self._between.draft_of.get(draft.path()[-1])
            if drawn is None:  # a logits processor forced a token that the draft model cannot read
                return
            unread = (drawn,)

    def _shared_logits(self, row: Array) -> Array:
        """The draft model's row over the target's ids [vocab]: -inf but for the shared tokens."""
        xp = array_namespace(row)
        ours, theirs = self._indices(row)
        logits = xp.full((self._vocab_size,), -xp.inf, dtype=row.dtype, device=device(row))
        logits[ours] = row[theirs]
        return logits

    def _write(self, context: Sequence[int], draft: DraftBuilder) -> Generator[Step, Output, None]:
        """The text route: as many draft tokens as the draft has room for, encoded as target
        tokens."""
        unread = self._transcript.ids[self._session.length :]
        written, end = b"", None
        for _ in range(draft.room):
            if not self._fits(self._session.length + len(unread)) or not draft.go_on(None):
                break
            output = yield Step(self._session, unread, rows=(len(unread) - 1,))
            row = output.logits[0]
            token = int(array_namespace(row).argmax(row))
            if not math.isfinite(row[token]):  # NaN is the largest number of its row
                raise InvalidLogitsError(
                    f"the logits of {self._model.name} hold NaN or infinity, or allow no token"
                )
            spelled = self._between.draft.spelled(token)
            if spelled is None:
                end = self._between.target_of.get(token)
                break
            written, unread = written + spelled, (token,)
        guesses = target_tokens(self._between, context, whole_characters(written))
        for guess in [*guesses, *([] if end is None else [end])]:
            if (
                draft.room <= 0
                or guess >= self._vocab_size
                or self._laws.forbids(guess, context, draft.path())
            ):
                return
            draft.guess(guess)

    def _fits(self, length: int) -> bool:
        return self._model.max_length is None or length <= self._model.max_length

    def observe(self, seen: Observation) -> None:
        if seen.round is None or self._drafted_by is None:
            return
        drafts, hits = self._accepted[self._drafted_by]
        self._accepted[self._drafted_by] = (drafts + 1, hits + seen.round.num_accepted_tokens)
        self._drafted_by = None

    def state_key(self) -> Hashable:
        return tuple(self._session.tokens), self._transcript, tuple(self._accepted.items())

    def fork(self) -> OtherTokenizerSession:
        other = copy(self)
        other._session, other._accepted = self._session.fork(), dict(self._accepted)
        return other

    def close(self) -> None:
        self._session.close()


def _make(config: Config, parts: Parts) -> OtherTokenizer | None:
    """None where the draft model has the target's own tokens."""
    if not config.options.get("use_heterogeneous_vocab"):
        return None
    from draftproof.models.vocabulary import side_by_side

    assert parts.draft is not None
    between = side_by_side(parts.target, parts.draft)
    if between is None:
        return None
    if config.shape is not None and not config.shape.is_chain:
        raise UsageError("a draft model with another tokenizer drafts chains; leave the tree out")
    route, how = config.option("heterogeneous_vocab_route"), config.option("draft_sample_method")
    return OtherTokenizer(parts.draft, between, route, how)


OTHER_TOKENIZER = (
    Option(
        "use_heterogeneous_vocab",
        False,
        yes_or_no,
        "take a draft model with another tokenizer; sampled too, unlike in vLLM",
    ),
    Option(
        "heterogeneous_vocab_route",
        "auto",
        one_of("auto", "text", "shared"),
        'across tokenizers: by "text", by "shared" tokens, or the one accepted more so far',
        vllm=False,
    ),
)
VARIANTS = (Variant("draft_model", _make, OTHER_TOKENIZER),)
