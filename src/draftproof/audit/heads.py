"""Draft heads in the proof: real networks, tiny and with random weights, over a table target that
shows features.

Nothing about a head's quality matters for exactness, so its weights are random; what is proven is
that whatever it drafts from whatever features it was shown, the text keeps the target's law. The
reference draws each head's law by reading the whole context anew, one row at a time, so a head that
keeps a stale row or a guessed feature drafts other lengths than foretold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.drafting import TREES, Kind, TreeKind
from draftproof.audit.exact import PROMPT, Case, Harness, begun, ends_of, laws_of
from draftproof.audit.toys import VOCAB, pairs
from draftproof.core.pipeline import LawPipeline
from draftproof.decode.generation import Generation
from draftproof.models.table import TableModel

WIDTH, LAYERS, HEADS = 4, 3, 3
KINDS = (
    "medusa",
    "medusa [2,1]",
    "medusa [2,2]",
    "eagle",
    "eagle greedy",
    "eagle tree",
    "eagle3",
    "eagle3 tree",
)
"""Every kind of draft a head makes. Shapes are those of `TREES`; "tree" is the dynamic one."""

DYNAMIC_NODES, DYNAMIC_TOP_K = 4, 2


def feature(prefix: tuple[int, ...], layer: int) -> NDArray[np.float64]:
    """The toy target's hidden state [WIDTH] after a prefix, different in every layer and after
    every history."""
    return _feature(prefix, layer)


@cache
def _feature(prefix: tuple[int, ...], layer: int) -> NDArray[np.float64]:
    return np.random.default_rng([11, layer, len(prefix), *prefix]).normal(size=WIDTH)


def with_features(model: TableModel) -> TableModel:
    """The same laws, with hidden states."""
    return TableModel(
        model.law,
        vocab_size=model.vocab_size,
        eos_token_ids=model.eos_token_ids,
        hidden=feature,
        name=model.name,
    )


def toy_view() -> Any:
    """The embedding and output layer of the toy target, for heads that borrow them."""
    import torch

    from draftproof.heads.target import TargetView

    generator = torch.Generator().manual_seed(1)
    embedding, output = (
        torch.randn(VOCAB, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return TargetView("toy", WIDTH, VOCAB, LAYERS, lambda ids: embedding[ids], output)


def toy_head(method: str) -> Any:
    """A head of a method with random weights, in float64."""
    import torch

    from draftproof.heads.eagle import Eagle
    from draftproof.heads.eagle3 import Eagle3
    from draftproof.heads.medusa import Medusa, MedusaConfig

    state = torch.get_rng_state()
    torch.manual_seed(5)
    shape: dict[str, Any] = dict(
        num_attention_heads=2, num_key_value_heads=1, intermediate_size=6, head_dim=2
    )
    shape |= {"rms_norm_eps": 1e-6, "max_position_embeddings": 64}
    head: Any
    if method == "medusa":
        head = Medusa(MedusaConfig(WIDTH, VOCAB, LAYERS, num_heads=HEADS, num_layers=2))
    elif method == "eagle":
        head = Eagle.of(toy_view(), **shape)
    else:
        head = Eagle3.of(toy_view(), (0, 2), **shape)
    for weights in head.parameters():
        torch.nn.init.normal_(weights, std=0.7)
    torch.set_rng_state(state)
    return head.double().eval()


class Reference:
    """What a head's next law is, by reading everything anew."""

    def __init__(self, method: str, laws: LawPipeline) -> None:
        self._method, self._head, self._laws = method, toy_head(method), laws
        self._laws_of: dict[Any, Any] = {}

    def law(self, context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        """The processed draft law after a drafted path; None where the head has no draft."""
        if len(context) <= len(PROMPT):  # the target has read nothing yet
            return None
        logits = self.logits(context, path)
        return None if logits is None else np.asarray(self._laws.law(logits, context, path))

    def logits(self, context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        """Raw draft logits [vocab] after a drafted path, remembered."""
        key = (context, path)
        if key not in self._laws_of:
            self._laws_of[key] = (
                self._medusa(context, path)
                if self._method == "medusa"
                else self._eagle(context, path)
            )
        return self._laws_of[key]

    def _medusa(self, context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        import torch

        if len(path) >= HEADS:
            return None
        with torch.no_grad():
            return self._head.logits(torch.tensor(feature(context[:-1], LAYERS)), len(path)).numpy()

    def _eagle(self, context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        import torch

        from draftproof.heads.feature_head import Rows

        rows = Rows(self._head)
        with torch.no_grad():
            for t in range(len(context) - 1):
                states = {
                    layer: feature(context[: t + 1], layer) for layer in self._head.hidden_layers
                }
                out = rows.read(context[t + 1 : t + 2], self._head.fuse(states)[None], (t,))
            for i, token in enumerate(path):
                out = rows.read((token,), out, (len(context) - 1 + i,))
            return self._head.spread(self._head.logits(out))[0].numpy()


@dataclass
class DynamicHarness(Harness):
    """A harness whose drafts are trees of no fixed shape: their length is summed over the tree
    found by brute force."""

    reference: Any = None

    def expected_tokens(self, generation: Generation, depth: int) -> float:
        context = tuple(generation.context)
        if self.reference.law(context, ()) is None or depth <= 0:
            return 1.0
        kept = dynamic_tree(self.reference, self.laws, context, depth, generation.stopper.ends)
        return 1.0 + sum(self._accepted(context, path) for path in kept)

    def _accepted(self, context: tuple[int, ...], path: tuple[int, ...]) -> float:
        """The chance that `path` is accepted and one more token follows it: none does behind an end
        token."""
        if any(token in self.ends for token in path):
            return 0.0
        chances = [self.target_row(context, path[:i])[token] for i, token in enumerate(path)]
        return float(np.prod(chances))


def dynamic_tree(
    reference: Reference,
    laws: LawPipeline,
    context: tuple[int, ...],
    depth: int,
    ends: Callable[[int, int], bool],
) -> list[tuple[int, ...]]:
    """EAGLE-2's paths by their definition: expand the best `DYNAMIC_TOP_K` of each level, keep the
    best of all levels. ends: whether a token at a level ends the text, so that nothing is drafted
    behind it."""
    scores: dict[tuple[int, ...], float] = {}
    frontier: list[tuple[int, ...]] = [()]
    for _ in range(depth):
        level: dict[tuple[int, ...], float] = {}
        for path in frontier:
            logits = reference.logits(context, path)
            chances = logits - np.logaddexp.reduce(logits)
            for token in laws.best_tokens(logits, context, path, DYNAMIC_TOP_K):
                longer = (*path, token)
                level[longer] = scores.get(path, 0.0) + chances[token]
        scores |= level
        going_on = [path for path in level if not ends(path[-1], len(path))]
        frontier = sorted(going_on, key=lambda path: -level[path])[:DYNAMIC_TOP_K]
    return sorted(scores, key=lambda path: (-scores[path], len(path)))[:DYNAMIC_NODES]


def head_kind(name: str, laws: LawPipeline) -> tuple[Kind, Reference]:
    """A kind of KINDS, its drafter over toy weights, and the reference its plan is made from."""
    from draftproof.drafters.eagle import Eagle
    from draftproof.drafters.medusa import Medusa

    method, _, form = name.partition(" ")
    reference, head = Reference(method, laws), toy_head(method)

    def likeliest(context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        law = reference.law(context, path)
        return None if law is None else int(np.argmax(law))

    if method == "medusa":
        if not form:
            return Kind(name, Medusa(head), likeliest), reference
        shape = TREES[form]
        return TreeKind(
            name,
            Medusa(head, tree=shape),
            _flat_where_none(reference),
            shape=shape,
            selection="fixed",
        ), reference
    if form == "tree":
        drafter = Eagle(head, num_nodes=DYNAMIC_NODES, top_k=DYNAMIC_TOP_K, name=method)
        return Kind(name, drafter, likeliest), reference
    if form == "greedy":
        return Kind(name, Eagle(head, "greedy", name=method), likeliest), reference
    return Kind(name, Eagle(head, name=method), reference.law), reference


def _flat_where_none(reference: Reference) -> Any:
    """A tree's plan must name tokens everywhere; before the first pass nothing is drafted, and the
    law of zeros says so."""

    def plan(context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        law = reference.law(context, path)
        return np.zeros(VOCAB) if law is None else law

    return plan


def head_harness(case: Case) -> Harness:
    """The generation of a case whose draft is one of KINDS, ready for its first round."""
    target = with_features(pairs()[case.pair].target)
    laws, drafts = (LawPipeline(case.sampling, **laws_of(target)) for _ in range(2))
    kind, reference = head_kind(case.draft, drafts)
    generation = begun(case, target, kind, laws, drafts, max_nodes=_most_nodes(kind))
    given = (
        target,
        kind,
        laws,
        generation,
        case.rule,
        ends_of(case, target),
        case.horizon,
        case.rounds,
    )
    if case.draft.endswith(" tree"):
        return DynamicHarness(*given, reference=reference)
    return Harness(*given)


def _most_nodes(kind: Kind) -> int | None:
    if isinstance(kind, TreeKind):
        return len(kind.shape)
    return DYNAMIC_NODES if kind.drafter.trees else None


def head_cases(params: Sequence[str], kinds: Sequence[str] = KINDS) -> list[Case]:
    """Each kind under each rule that verifies it exactly, on the toy with a full history, three
    tokens deep."""
    from draftproof.audit.table import PARAMETERS

    cases = []
    for name in kinds:
        fixed = name.partition(" ")[0] == "medusa" or name.endswith(("greedy", "tree"))
        tree = "[" in name or name.endswith(" tree")
        rules = ("match", "token", "block")[: 1 if tree else 2 if fixed else 3]
        for rule in rules:
            depth = TREES[name.split(" ")[1]].depth if "[" in name else 2
            cases += [Case(rule, name, "full_history", p, PARAMETERS[p], depth) for p in params]
    return cases
