"""`draft_model`: a smaller language model proposes a chain (2211.17192) or a tree of fixed shape.

With `draft_sample_method="probabilistic"` drafts are sampled from the draft's own law, processed by
the very parameters that make the target's; with `"greedy"` its most likely tokens are fixed
guesses. The draft's session trails the context: it is rolled back to what the target accepted and
reads the rest with its next step.

A tree is drafted level by level, all siblings of a level in one pass. A session's tree pass has to
be settled before the next, so each level's pass reads the levels above it again: few tokens, and
one pass a level as for a chain.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from copy import copy
from typing import Literal

from draftproof.core.pipeline import unprocessed_law
from draftproof.core.records import ROOT, Array, Observation, Selection
from draftproof.core.tree import TreeShape
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.options import (
    DRAFT_SAMPLE_METHOD,
    Option,
    count_from,
    layer_numbers,
    one_of,
)
from draftproof.drafters.protocol import Drafter, DraftSession, Memory, Renewable, Request
from draftproof.drafters.registry import Config, Method, Parts
from draftproof.errors import InvalidLogitsError, UsageError
from draftproof.models.protocol import LanguageModel, Output, Step
from draftproof.models.vocabulary import align_logits

DraftSampleMethod = Literal["probabilistic", "greedy"]


class DraftModel(Drafter):
    """model: the draft model, over the target's tokens (its padded output layer may differ in
    size). tree: the shape of its drafts, None for a chain of the draft length. selection: how
    siblings come about when they are sampled. name: of the method, where the model is not one of
    its own but a slice of the target."""

    model: LanguageModel
    memories: tuple[Memory, ...] = ()

    def __init__(
        self,
        model: LanguageModel,
        draft_sample_method: DraftSampleMethod = "probabilistic",
        *,
        tree: TreeShape | None = None,
        selection: Selection = "iid",
        name: str = "draft_model",
    ) -> None:
        if draft_sample_method not in ("probabilistic", "greedy"):
            raise UsageError(
                f"draft_sample_method {draft_sample_method!r} is unknown; allowed: "
                "probabilistic, greedy"
            )
        if tree is not None and not tree.is_chain and not model.supports_trees:
            raise UsageError(f"{model.name} cannot read a tree in one pass; give it a chain")
        self.model, self.draft_sample_method, self.tree = model, draft_sample_method, tree
        self.selection = selection
        self.name = name
        self.trees = tree is not None and not tree.is_chain
        greedy = draft_sample_method == "greedy"
        self.selections: frozenset[Selection] = frozenset(
            {"fixed"} if greedy else {selection, "fixed"}
        )

    def open(self, request: Request) -> DraftModelSession:
        return DraftModelSession(self, request)


class DraftModelSession(DraftSession, Renewable):
    """The draft model's reading of one request."""

    def __init__(self, drafter: DraftModel, request: Request) -> None:
        self._asks_greedy = drafter.draft_sample_method == "greedy"
        self._greedy = self._asks_greedy or request.laws.greedy
        self._tree, self._selection = drafter.tree if drafter.trees else None, drafter.selection
        self._laws, self._vocab_size = request.laws, request.target.vocab_size
        self._model, self._session = drafter.model, drafter.model.open()
        self._num_input_ids = drafter.model.num_input_ids
        self._read: tuple[tuple[int, int], ...] = ()

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> Generator[Step, Output, None]:
        if not self._fits(len(context)):
            draft.note(
                f"prompt and text outgrew the draft model's {self._model.max_length} "
                "tokens: decoding plainly"
            )
            return
        unread = context[self._session.length :]
        if max(unread) >= self._num_input_ids:
            draft.note(
                f"token {max(unread)} is none of the draft model's {self._num_input_ids} "
                "input ids: decoding plainly"
            )
            return
        try:
            yield from (
                self._propose_chain(context, draft)
                if self._tree is None
                else self._propose_tree(context, draft)
            )
        except InvalidLogitsError as error:
            draft.invalid_law(error)

    def _propose_chain(
        self, context: Sequence[int], draft: DraftBuilder
    ) -> Generator[Step, Output, None]:
        unread: Sequence[int] = context[self._session.length :]
        while draft.room > 0 and self._fits(len(context) + len(draft.path())):
            output = yield Step(self._session, tuple(unread), rows=(len(unread) - 1,))
            node = draft.newest
            added = self._grow(output.logits[0], context, draft, node, 1)
            if not added or draft.path()[-1] >= self._num_input_ids:
                return
            unread = draft.path()[-1:]

    def _propose_tree(
        self, context: Sequence[int], draft: DraftBuilder
    ) -> Generator[Step, Output, None]:
        """`placed`: node of the shape -> node of the draft; they differ once a node has fewer
        children than the shape gives."""
        assert self._tree is not None
        unread = tuple(context[self._session.length :])
        output = yield Step(self._session, unread, rows=(len(unread) - 1,))
        placed = {ROOT: ROOT}
        level, row_of = [ROOT], {ROOT: 0}
        while level:
            below: list[int] = []
            for parent in level:
                children = self._tree.children.get(parent, ())
                node = placed[parent]
                if children and draft.room_under(node) > 0:
                    nodes = self._grow(
                        output.logits[row_of[parent]], context, draft, node, len(children)
                    )
                    placed.update(zip(children, nodes, strict=False))
                    below += children[: len(nodes)]
            level = [
                node
                for node in below
                if node in self._tree.children and self._reads(draft, placed[node])
            ]
            level = [node for node in level if draft.room_under(placed[node]) > 0]
            if not level or not self._fits(len(context) + draft.num_nodes):
                return
            output = yield self._tree_step(len(context), draft, [placed[node] for node in level])
            row_of = {node: row for row, node in enumerate(level)}

    def _tree_step(self, length: int, draft: DraftBuilder, wanted: Sequence[int]) -> Step:
        """One pass over `wanted` nodes and those above them, from a session that has read the
        context."""
        self._session.rollback(length)
        above = sorted({node for last in wanted for node in draft.nodes_to(last)})
        index = {node: i for i, node in enumerate(above)} | {ROOT: ROOT}
        self._read = tuple((draft.token(node), index[draft.parent(node)]) for node in above)
        tokens, parents = zip(*self._read, strict=True)
        return Step(self._session, tokens, parents, rows=tuple(index[node] for node in wanted))

    def _reads(self, draft: DraftBuilder, node: int) -> bool:
        return draft.token(node) < self._num_input_ids

    def _grow(
        self, logits: Array, context: Sequence[int], draft: DraftBuilder, parent: int, count: int
    ) -> Sequence[int]:
        """Add up to `count` children under `parent`; the new nodes, none when the length policy
        says stop. At temperature 0 the draws are the best tokens: no law is needed."""
        logits, path = align_logits(logits, self._vocab_size), draft.path(parent)
        law = None if self._laws.greedy else self._laws.law(logits, context, path)
        self._laws.check()
        if not draft.go_on(
            unprocessed_law(logits) if law is None and draft.weighs_laws else law, parent
        ):
            return ()
        if law is not None and not self._greedy:
            return draft.draw_children(law, count, self._selection, parent)
        best = (
            self._laws.greedy_tokens(logits[None, :], context, [path])
            if count == 1
            else self._laws.best_tokens(logits, context, path, count)
        )
        nodes: list[int] = []
        for token in best:
            if draft.room_under(parent) <= 0:  # the target's context holds no more in one pass
                break
            nodes.append(draft.guess(token, parent))
        return nodes

    def _fits(self, length: int) -> bool:
        return self._model.max_length is None or length <= self._model.max_length

    def observe(self, seen: Observation) -> None:
        if self._read and seen.round is not None:
            self._session.keep(self._accepted(seen.tokens[seen.round.start - seen.start :]))
            self._read = ()
        self._session.rollback(min(self._session.length, seen.start + len(seen.tokens)))

    def _accepted(self, path: Sequence[int]) -> list[int]:
        """Indices, in the last tree pass, of the accepted tokens `path`, as far as that pass read
        them."""
        indices: list[int] = []
        for token in path:
            wanted = (token, indices[-1] if indices else ROOT)
            if wanted not in self._read:
                break
            indices.append(self._read.index(wanted))
        return indices

    def state_key(self) -> Hashable:
        return tuple(self._session.tokens)

    def fork(self) -> DraftModelSession:
        other = copy(self)
        other._session = self._session.fork()
        return other

    def renew(self, request: Request, kept: int) -> None:
        """Roll the draft model's session back to the tokens that stay."""
        self._greedy = self._asks_greedy or request.laws.greedy
        self._laws, self._read = request.laws, ()
        self._session.rollback(min(self._session.length, kept))

    def close(self) -> None:
        self._session.close()


def _make(config: Config, parts: Parts) -> DraftModel:
    assert parts.draft is not None
    how = config.option("draft_sample_method")
    return DraftModel(parts.draft, how, tree=config.shape, selection=siblings(config))


def _early_exit(config: Config, parts: Parts) -> DraftModel:
    """Without a number, the one that a LayerSkip checkpoint's generation config gives to
    transformers."""
    from draftproof.models.slices import early_exit

    wanted = config.option("early_exit_layers")
    if wanted is None:
        wanted = getattr(parts.target.generation_config, "assistant_early_exit", None)
    if wanted is None:
        raise UsageError(
            "method 'early_exit' needs early_exit_layers: how many of the target's first "
            "layers draft"
        )
    return _by_a_slice(config, early_exit(parts.target, wanted))


def _layer_skip(config: Config, parts: Parts) -> DraftModel:
    from draftproof.models.slices import skipping

    return _by_a_slice(
        config, skipping(parts.target, *(config.option(option.name) for option in SKIPPED))
    )


def _by_a_slice(config: Config, model: LanguageModel) -> DraftModel:
    how = config.option("draft_sample_method")
    return DraftModel(model, how, tree=config.shape, selection=siblings(config), name=config.method)


def siblings(config: Config) -> Selection:
    """How sampled siblings come about: as asked, else the usual way, or the next one that the rule
    verifies. A chain's one child is drawn in any case."""
    from draftproof.core.rules import RULES

    asked: Selection | None = None if config.shape is None else config.option("tree_selection")
    usual = SIBLINGS if config.shape is not None else ("iid", *SIBLINGS)
    rule = RULES.get(config.rule_name or "")
    return (
        asked
        if asked
        else next((kind for kind in usual if rule is None or kind in rule.selections), usual[0])
    )


SIBLINGS: tuple[Selection, ...] = ("without_replacement", "iid", "top_k_plus_one")
"""How the children of a node of a sampled tree may come about, the usual way first."""

TREE_SELECTION = Option(
    "tree_selection",
    None,
    one_of(*SIBLINGS),
    "how the children of a node of a sampled tree come about",
    vllm=False,
)
EARLY_EXIT_LAYERS = Option(
    "early_exit_layers",
    None,
    count_from(1),
    "how many of the target's first layers draft; LayerSkip's exit layer",
    vllm=False,
)
SKIPPED = (
    Option(
        "skip_layers", (), layer_numbers, "layers the draft leaves out, numbered from 0", vllm=False
    ),
    Option(
        "skip_attention_layers",
        (),
        layer_numbers,
        "layers of which it leaves out the attention",
        vllm=False,
    ),
    Option(
        "skip_mlp_layers", (), layer_numbers, "layers of which it leaves out the MLP", vllm=False
    ),
)
METHODS = (
    Method(
        "draft_model",
        "a smaller model of the same tokens",
        4,
        _make,
        model="draft",
        options=(DRAFT_SAMPLE_METHOD, TREE_SELECTION),
        trees=True,
        vllm=True,
    ),
    Method(
        "early_exit",
        "the target's first layers, for weights trained to exit early (LayerSkip)",
        4,
        _early_exit,
        options=(EARLY_EXIT_LAYERS, DRAFT_SAMPLE_METHOD, TREE_SELECTION),
        trees=True,
    ),
    Method(
        "layer_skip",
        "the target without some of its layers or sublayers",
        4,
        _layer_skip,
        options=(*SKIPPED, DRAFT_SAMPLE_METHOD, TREE_SELECTION),
        trees=True,
    ),
)
