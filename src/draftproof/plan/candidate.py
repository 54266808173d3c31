"""A drafter to plan with: whether it can be foretold, its traces on given texts, and what its
rounds cost beyond passes.

Two kinds. A draft model of the target's tokens, or a slice of the target, reads the texts
(`forcing.py`). Everything else is replayed over them, round by round (`replay.py`), with what it
wants to see of the target's passes. A method that has the target read tokens beside the draft is
refused here: `bench` measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from draftproof.core.best_tree import best_tree
from draftproof.core.params import SamplingParams
from draftproof.core.records import Round
from draftproof.core.rules import RULES
from draftproof.core.tree import TreeShape, tree_text
from draftproof.costs.outside_passes import (
    Outside,
    fit_outside,
    outside_passes,
    passes_waited_for,
)
from draftproof.costs.timings import Timings
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.protocol import Drafter
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.plan.acceptance import Judge
from draftproof.plan.forcing import Floats, Text, force
from draftproof.plan.predict import Recorded
from draftproof.plan.replay import replay
from draftproof.plan.rounds import (
    Trace,
    level_sizes,
    trace_of_coins,
    trace_of_ratios,
    trace_of_tree,
)

BEST = "best"
BEST_WIDTH, BEST_DEPTH = 3, 8
"""Most siblings and levels of the best tree that is looked for."""
MOST_NODES = 32
"""Of a tree that is timed; chains are as long at most."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Candidate:
    """config: as given; a tree in it takes the place of chains. draft: the draft model's loaded
    weights where it has one. shapes: trees to foretell beside the chains, "2,2,1" or BEST for the
    best one by its recorded acceptance and the costs."""

    config: SpeculativeConfig
    draft: LanguageModel | None = None
    shapes: tuple[str, ...] = ()
    _made: dict[tuple[int, TreeShape | None], SpeculativeDecoder] = field(
        default_factory=dict, compare=False, repr=False
    )

    @cached_property
    def name(self) -> str:
        shape = None if self.config.shape is None else f"tree {tree_text(self.config.tree)}"
        said = [
            self.config.method,
            self.config.model,
            self.config.revision,
            shape,
            self.config.rule_name,
        ]
        if self.chooses:
            said.append("of " + ", ".join(member.method for member in self.config.members))
        options = [
            f"{key}={value}"
            for key, value in self.config.options.items()
            if not (self.chooses and key == "drafters")
        ]
        return " ".join(str(word) for word in (*said, *options) if word)

    @property
    def short(self) -> str:
        """The name with the last part of a path in place of the whole, for sentences."""
        model = self.config.model or ""
        return (
            self.name.replace(model, model.rsplit("/", 1)[-1])
            if model.count("/") > 1
            else self.name
        )

    @property
    def chooses(self) -> bool:
        """Whether drafter and length are chosen round by round: then there is one prediction and no
        length to choose."""
        return self.config.spec.adapts

    @property
    def given_shapes(self) -> list[TreeShape]:
        """All shapes but the best one, which is not known yet."""
        own = [] if self.config.shape is None else [self.config.shape]
        return own + [TreeShape.parse(shape) for shape in self.shapes if shape != BEST]

    @property
    def most_nodes(self) -> int:
        """The longest draft of its shapes, or of those it chooses, in tokens."""
        chosen = self.config.num_speculative_tokens if self.chooses else 0
        return max((len(shape) for shape in self.given_shapes), default=chosen)

    def check(self, target: LanguageModel, params: SamplingParams) -> None:
        """UsageError for what cannot be foretold, before any work."""
        spec = self.config.spec
        check_config(self.config)
        if (self.shapes or self.config.shape) and not (spec.trees and target.supports_trees):
            who = target.name if spec.trees else f"method {self.config.method!r}"
            raise UsageError(f"{who} takes no tree of a given shape: leave the tree out")
        if self.config.shape and self.shapes:
            raise UsageError("the configuration has a tree already: leave --tree out")
        if self.most_nodes > MOST_NODES:
            raise UsageError(
                f"a tree of {self.most_nodes} nodes is more than plan times; allowed: at "
                f"most {MOST_NODES}"
            )
        self.judges(target, params)

    def decoder(self, target: LanguageModel, shape: TreeShape | None = None) -> SpeculativeDecoder:
        """The decoder that would run it, made once."""
        if (key := (id(target), shape)) not in self._made:
            config = self.config
            if shape is not None:
                config = replace(config, tree=shape.parents, num_speculative_tokens=shape.depth)
            self._made[key] = SpeculativeDecoder(
                self.draft, target, target.tokenizer, speculative_config=config
            )
        return self._made[key]

    def drafter(self, target: LanguageModel, shape: TreeShape | None = None) -> Drafter:
        """What drafts in that decoder."""
        drafter = self.decoder(target, shape).drafter
        assert drafter is not None
        return drafter

    def passes_of(self, target: LanguageModel) -> LanguageModel | None:
        """The model whose passes drafting takes: the draft model or a slice of the target; None
        where there is none."""
        return self.drafter(target).model

    def lengths(self, target: LanguageModel, asked: Sequence[int]) -> list[int]:
        """Those of the lengths that its drafts can have: a tree which the method shapes itself has
        a depth of its own."""
        if self.chooses:
            return [self.config.num_speculative_tokens]
        shape = self.drafter(target).tree
        if self.config.shape is not None or shape is None:
            return list(asked)
        return [k for k in asked if k <= shape.depth] or [shape.depth]

    def judges(self, target: LanguageModel, params: SamplingParams) -> list[Judge]:
        """For chains (none where a tree is configured), and for trees if any is asked for.
        UsageError: a rule unknown here."""
        found = []
        if self.config.shape is None:
            found.append(self._judge(self.decoder(target), params, 1))
        shapes = self.given_shapes + (
            [TreeShape.from_levels([BEST_WIDTH])] if BEST in self.shapes else []
        )
        if shapes:
            width = max(len(children) for shape in shapes for children in shape.children.values())
            found.append(self._judge(self.decoder(target, shapes[0]), params, width))
        return found

    def _judge(self, decoder: SpeculativeDecoder, params: SamplingParams, width: int) -> Judge:
        assert decoder.drafter is not None
        drawn = decoder.drafter.selections - {"fixed"} if params.temperature > 0 else frozenset()
        rule = next(name for name, one in RULES.items() if one is decoder.rule_for(params))
        return Judge(rule, fixed=not drawn, width=width, selection=next(iter(drawn), "fixed"))

    def read(
        self,
        target: LanguageModel,
        texts: Sequence[Text],
        params: SamplingParams,
        longest: int,
        progress: Progress,
    ) -> Readings:
        """What each text says of its drafts, by forwards of both models or by replay."""
        drafter = self.drafter(target)
        if not isinstance(drafter, DraftModel):
            return Replayed(self, target, texts, params, longest)
        if not all(text.own for text in texts) and (self.shapes or self.config.shape):
            raise UsageError(
                "trees are foretold on the target's own answers: leave out the answers "
                "of the file, or the tree"
            )
        judges = self.judges(target, params)
        forced = force(
            *(target, drafter.model, texts, params, judges),
            lambda done: progress(f"{self.short} reads", done, len(texts)),
        )
        columns = [np.asarray(f.chances) for f in forced]
        overlaps = [np.asarray(f.overlaps) for f in forced]
        return Read(self, target, judges, texts, columns, overlaps, longest)


class Readings:
    """What texts say of a drafter's drafts; `chains(k)` and `trees(shape)` give one trace a
    text."""

    candidate: Candidate
    target: LanguageModel

    def prepare(self, lengths: Sequence[int], progress: Progress) -> None:
        """Do the work that `recorded` would do for these lengths, where that is work, and tell of
        it."""

    def chains(self, k: int) -> list[Trace]:
        raise NotImplementedError

    def trees(self, shape: TreeShape) -> list[Trace]:
        raise NotImplementedError

    def best_shape(self, costs: Timings) -> TreeShape | None:
        raise NotImplementedError

    def passes_of_chain(self, k: int) -> Floats | None:
        """Drafting passes of a round of 0, 1, ... drafted tokens when k are asked for; None: one
        each."""
        return None

    def recorded(
        self, lengths: Sequence[int], prompts: Sequence[int], costs: Timings
    ) -> list[tuple[int, Recorded]]:
        """(draft length or depth, its traces) of every chain and every tree."""
        candidate = self.candidate
        found = []
        if candidate.config.shape is None:
            found = [
                (k, Recorded(self.chains(k), prompts, self.passes_of_chain(k))) for k in lengths
            ]
        shapes = candidate.given_shapes
        if BEST in candidate.shapes:
            best = self.best_shape(costs)
            shapes += [best] if best is not None and not best.is_chain else []
        for shape in shapes:
            steps = (
                draft_passes(shape, costs) if candidate.passes_of(self.target) is not None else None
            )
            found.append((shape.depth, Recorded(self.trees(shape), prompts, steps, shape.parents)))
        return found


@dataclass(frozen=True)
class Replayed(Readings):
    """A drafter asked round by round, anew for each length and shape; but a chain that is drawn, or
    a head's, begins alike whatever its length, so the longest one says it of all."""

    candidate: Candidate
    target: LanguageModel
    texts: Sequence[Text]
    params: SamplingParams
    longest: int

    def prepare(self, lengths: Sequence[int], progress: Progress) -> None:
        lengths = (
            sorted({self._replayed(k) for k in lengths})
            if self.candidate.config.shape is None
            else ()
        )
        asked = [
            *((None, k) for k in lengths),
            *((shape, shape.depth) for shape in self.candidate.given_shapes),
        ]
        texts, before = len(self.texts), 0

        def tell(done: int) -> None:
            progress(f"{self.candidate.short} is replayed", before + done, len(asked) * texts)

        for shape, k in asked:
            self._traces(shape, k, tell)
            before += texts

    def _replayed(self, k: int) -> int:
        """The length that is replayed to learn of drafts of k tokens."""
        drafter = self.candidate.drafter(self.target)
        alike = not drafter.trees and ("iid" in drafter.selections or drafter.wants.hidden)
        return max(k, self.longest) if alike else k

    def chains(self, k: int) -> list[Trace]:
        return self._traces(None, self._replayed(k))

    def passes_of_chain(self, k: int) -> Floats | None:
        """A draft model that writes a text of its own does so k tokens long, however many of the
        target's that makes."""
        drafter = self.candidate.drafter(self.target)
        writes = drafter.model is not None and drafter.selections == {"fixed"}
        return np.append(0.0, np.full(k, float(k))) if writes else None

    def trees(self, shape: TreeShape) -> list[Trace]:
        return self._traces(shape, shape.depth)

    def best_shape(self, costs: Timings) -> TreeShape | None:
        """Its guesses have no law to choose a shape by."""
        return None

    @cached_property
    def _known(self) -> dict[tuple[TreeShape | None, int], list[Trace]]:
        return {}

    def _traces(
        self, shape: TreeShape | None, k: int, tell: Callable[[int], None] = lambda done: None
    ) -> list[Trace]:
        """Kept, as every batch size asks for the same. `tell` is given the number of texts that are
        done."""
        if (shape, k) not in self._known:
            decoder = self.candidate.decoder(self.target, shape)
            drafter = self.candidate.drafter(self.target, shape)
            most = decoder.longest_draft if drafter.trees else None
            judge = self.candidate.judges(self.target, self.params)[0]
            found = []
            for done, text in enumerate(self.texts):
                tell(done)
                found.append(replay(drafter, self.target, text, self.params, k, most, judge))
            self._known[shape, k] = found
        return self._known[shape, k]


@dataclass(frozen=True)
class Read(Readings):
    """A draft model that has read the texts. columns: chances [n, ...] a text, the judges' side by
    side."""

    candidate: Candidate
    target: LanguageModel
    judges: Sequence[Judge]
    texts: Sequence[Text]
    columns: Sequence[Floats]
    overlaps: Sequence[Floats]
    longest: int

    def chains(self, k: int) -> list[Trace]:
        """On a given answer the chances of its tokens say nothing about what the target would emit;
        overlaps stand in."""
        traces = []
        for text, columns, overlaps in zip(self.texts, self.columns, self.overlaps, strict=True):
            joint = self.judges[0].joint and text.own
            made = trace_of_ratios if joint else trace_of_coins
            traces.append(made(columns[:, 0] if text.own else overlaps, overlaps, k))
        return traces

    def trees(self, shape: TreeShape) -> list[Trace]:
        pairs = zip(self._tree_columns(), self.overlaps, strict=True)
        return [
            trace_of_tree(partial(self.judges[-1].places, columns), overlaps, shape)
            for columns, overlaps in pairs
        ]

    def best_shape(self, costs: Timings) -> TreeShape | None:
        """By the mean chance of each place, and this machine's costs; None when no tree pays."""
        judge, means = self.judges[-1], np.concatenate(self._tree_columns()).mean(axis=0)
        by_count = [judge.places(means[None, :], k)[0] for k in range(1, judge.width + 1)]
        most = costs.curve.tokens[-1] - 1
        return best_tree(
            [[float(chance) for chance in places / max(1.0, places.sum())] for places in by_count],
            costs.table.draft,
            costs.table.verify_ratio,
            max_nodes=most,
            max_depth=min(BEST_DEPTH, most),
        ).shape

    def _tree_columns(self) -> list[Floats]:
        count = self.judges[-1].num_columns
        return [columns[:, -count:] for columns in self.columns]


def check_config(config: SpeculativeConfig) -> None:
    """UsageError for a config that cannot be foretold with any target."""
    if not config.spec.foretold:
        raise UsageError(
            f"plan cannot foretell method {config.method!r}, which has the target read "
            "tokens beside the draft: "
            f"measure it with bench --arm {config.method}"
        )
    rule = RULES.get(config.rule_name or "")
    if rule is not None and not rule.lossless:
        raise UsageError(
            f"plan cannot foretell rule {rule.name}: its text is not the target's, which "
            "is all that plan reads; "
            "measure it with bench"
        )
    if (
        config.options.get("use_heterogeneous_vocab")
        and config.option("heterogeneous_vocab_route") == "auto"
    ):
        raise UsageError(
            "plan foretells one route across tokenizers: give "
            '"heterogeneous_vocab_route": "text" or "shared", or both in turn'
        )
    if config.schedule is not None:
        raise UsageError(
            "plan finds the draft length by batch size itself: leave the schedule out, "
            "and give --batch 1,2,4,8"
        )
    if config.spec.adapts and config.length_rule == "live":
        raise UsageError(
            'plan predicts lengths that follow counts, and adaptive "live" follows the '
            "clock: measure it with bench"
        )
    if not config.spec.adapts and (
        config.adaptive not in (None, False, "fixed") or config.auto_off
    ):
        raise UsageError(
            "plan foretells fixed draft lengths: leave adaptive and auto_off out, or "
            "measure them with bench"
        )


def draft_passes(shape: TreeShape, costs: Timings) -> Floats:
    """Drafting passes of a round that drafts the first levels of a shape, in single draft steps, by
    the number of its tokens.

    A level's pass reads the levels above it once more; it is taken to cost over one token what the
    target's pass does."""
    sizes = level_sizes(shape)
    found = np.zeros(sizes[-1] + 1)
    spent = 0.0
    for above, size in zip(sizes, sizes[1:], strict=False):
        spent += costs.table.verify_ratio(max(1, above))
        found[size] = spent
    return found


def tried_outside(
    candidate: Candidate, target: LanguageModel, text: Text, params: SamplingParams, longest: int
) -> Outside:
    """What real rounds on `text` spend outside forwards, one sequence alone."""
    few = (
        [candidate.config.shape.depth]
        if candidate.config.shape
        else sorted({1, max(1, longest // 2), longest})
    )
    return time_outside(candidate.decoder(target), text.prompt, params, few)


def time_outside(
    decoder: SpeculativeDecoder,
    prompt: tuple[int, ...],
    params: SamplingParams,
    lengths: Sequence[int],
    tokens: int = 12,
) -> Outside:
    """Run the real decoder for a few tokens, plainly and with each draft length, and read what is
    not a forward."""
    short = replace(params, max_tokens=tokens, ignore_eos=True, min_tokens=0)
    rounds: list[Round] = []
    with passes_waited_for(decoder.target, decoder.drafter):
        plain = [r for r in decoder.plain.generate(prompt, short).rounds if not r.reads_prompt]
        for length in lengths:
            run = replace(
                short, num_speculative_tokens=length, max_tokens=max(tokens, 2 * length + 2)
            )
            rounds += [r for r in decoder.generate(prompt, run).rounds if not r.reads_prompt]
    return fit_outside(
        [r.seconds.rest for r in plain],
        [(len(r.draft_tokens), outside_passes(r.seconds, decoder.drafter)) for r in rounds],
    )
