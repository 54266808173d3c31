"""The exact joint law of several requests: whether one of them can tell another about coins that it
has yet to use.

What runs is the decoder itself, over a list of prompts or call after call, with every coin that it
would toss walked through. Which coins coincide is read off the streams that the decoder made: equal
keys are one coin, others are independent. A coin that is used twice is followed as an interval of
what is known of it, so that the law of a decoder that shares coins comes out exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal

from numpy import asarray

from draftproof.core.chance import Purpose
from draftproof.core.enumerate import EnumeratingChance, outcomes, round_key
from draftproof.core.params import SamplingParams
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.decode.speculation import ChanceAt, Speculation
from draftproof.drafters.ngram_cache import NGramCache
from draftproof.drafters.protocol import Drafter
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.ngram_tables import StoredTable, build_tables
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.models.table import TableModel

Text = tuple[int, ...]
Joint = dict[tuple[Text, ...], float]


@dataclass
class RoundOfStream(EnumeratingChance):
    """Chance of one round of one stream, its outcomes among those of the whole run. world: the
    run's. stream: the Threefry key that the decoder gave the sequence."""

    world: EnumeratingChance | None = None
    stream: tuple[int, int] = (0, 0)

    def _choose(
        self, bounds: tuple[float, ...], last: int | None, purpose: Purpose, node: int
    ) -> int:
        assert self.world is not None
        key: Any = (*self.stream, *round_key(self.start, purpose, node))
        self.world.key = lambda *_: key
        return self.world._choose(bounds, last, purpose, node)


@dataclass(frozen=True, eq=False)
class EnumeratedSpeculation(Speculation):
    """Speculation whose coins are those of `world`."""

    world: EnumeratingChance | None = None

    def chance_of(self, prompt: tuple[int, ...], params: SamplingParams, index: int) -> ChanceAt:
        keyed = super().chance_of(prompt, params, index)

        def chance_at(start: int) -> RoundOfStream:
            stream = keyed(start).key  # type: ignore[attr-defined]
            return RoundOfStream(start, (), {}, True, round_key, world=self.world, stream=stream)

        return chance_at


class EnumeratedDecoder(SpeculativeDecoder):
    """A decoder whose coins are those of a world."""

    def in_world(self, world: EnumeratingChance) -> EnumeratedDecoder:
        """A copy whose coins are those of `world`."""
        made, how = copy(self), self.speculation
        made._speculation = EnumeratedSpeculation(how.config, how.drafter, how.rule, world)
        return made


@dataclass(frozen=True)
class Case:
    """make: a decoder, before its first request. prompts, limits: of each request, all with one
    seed. together: as one list, or call after call. knowing: what the second request drafts from
    once the first one's text is there, a prediction or a corpus of it; None: nothing."""

    make: Callable[[], EnumeratedDecoder]
    prompts: tuple[Text, ...]
    limits: tuple[int, ...]
    together: bool = True
    seed: int = 5
    knowing: Literal["prediction", "corpus"] | None = None

    def params(self) -> list[SamplingParams]:
        """Every request's."""
        return [SamplingParams(max_tokens=limit, seed=self.seed) for limit in self.limits]

    def texts(self, world: EnumeratingChance) -> tuple[Text, ...]:
        """One run: as a list, or one after the other over the same decoder."""
        made = self.make().in_world(world)
        prompts = [list(prompt) for prompt in self.prompts]
        if self.together:
            return tuple(result.token_ids for result in made.generate(prompts, self.params()))
        found: list[Text] = []
        for prompt, params in zip(prompts, self.params(), strict=True):
            if found and self.knowing == "prediction":
                params = replace(params, prediction=found[0])
            if found and self.knowing == "corpus":
                made = over_corpus(made, (*prompt, *found[0])).in_world(world)
            found.append(made.generate(prompt, params).token_ids)
        return tuple(found)


def over_corpus(made: EnumeratedDecoder, text: Text) -> EnumeratedDecoder:
    """The same decoder with a store of `text` in the place of its own, often enough for any
    threshold."""
    documents = [asarray(text)] * 4
    if isinstance(made.drafter, Retrieval):
        drafter: Drafter = Retrieval(SuffixArray(build_suffix_array(documents)), trees=False)
    else:
        drafter = NGramCache(StoredTable(build_tables(documents, least=1)))
    config = {"num_speculative_tokens": made.config.num_speculative_tokens, "rule": made.rule.name}
    return EnumeratedDecoder(drafter, made.target, speculative_config=config)


@dataclass(frozen=True)
class AcrossRequests:
    """joint_tv: total variation between the joint law of the texts and the product of the target's
    laws. tv: of each request's own law from the target's, the largest. outcomes: how many were
    walked."""

    joint_tv: float
    tv: float
    outcomes: int


def prove_requests(case: Case) -> AcrossRequests:
    """Walk every outcome of `case`."""
    joint: Joint = defaultdict(float)
    count = 0
    for outcome, texts in outcomes(case.texts, 0, share=True):
        joint[texts] += outcome.probability
        count += 1
    target = case.make().target
    assert isinstance(target, TableModel)
    laws = [
        target_texts(target, prompt, limit)
        for prompt, limit in zip(case.prompts, case.limits, strict=True)
    ]
    product: Joint = {(): 1.0}
    for law in laws:
        product = {
            (*texts, text): mass * own
            for texts, mass in product.items()
            for text, own in law.items()
        }
    return AcrossRequests(
        _tv(joint, product), max(_tv(_marginal(joint, i), law) for i, law in enumerate(laws)), count
    )


def target_texts(target: TableModel, prompt: Text, limit: int) -> dict[Text, float]:
    """The target's own law of whole texts of at most `limit` tokens."""
    law: dict[Text, float] = {}
    pending: list[tuple[Text, float]] = [((), 1.0)]
    while pending:
        text, mass = pending.pop()
        if len(text) == limit or (text and text[-1] in target.eos_token_ids):
            law[text] = mass
            continue
        row = target.law(prompt + text).tolist()
        pending.extend(
            ((*text, token), mass * chance) for token, chance in enumerate(row) if chance > 0
        )
    return law


def _marginal(joint: Joint, place: int) -> dict[Text, float]:
    law: dict[Text, float] = defaultdict(float)
    for texts, mass in joint.items():
        law[texts[place]] += mass
    return law


def _tv(one: Any, other: Any) -> float:
    return float(0.5 * sum(abs(one.get(k, 0.0) - other.get(k, 0.0)) for k in {*one, *other}))
