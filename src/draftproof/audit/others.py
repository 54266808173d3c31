"""Drafters whose coming draft depends on more than the context, in the proof: on rounds before, on
another tokenizer, on a part of the target's own layers.

Each is an entry of KINDS: the models it runs with, and what it is expected to emit. A fixed draft
that depends on rounds before is foretold by asking a copy of the drafter for it: what the target
makes of the draft is then summed by hand. A sampled one has a plan that is written without the
drafter's code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.exact import Case, Harness, begun, ends_of, fork, laws_of
from draftproof.audit.formulas import expected_tokens_of_round, formula_of
from draftproof.audit.kinds import Kind
from draftproof.audit.remembered import RememberedLaws
from draftproof.audit.toys import VOCAB, Pair, pairs
from draftproof.core.chance import KeyedChance
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.rules import RULES
from draftproof.core.rules.protocol import Rule
from draftproof.decode.generation import Generation
from draftproof.decode.passes import drive
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.other_tokenizer import OtherTokenizer, OtherTokenizerSession
from draftproof.drafters.protocol import Drafter
from draftproof.drafters.registry import proofs
from draftproof.models.table import TableModel
from draftproof.models.transcript import Vocabularies

NODES = 6
LETTERS, OTHER_LETTERS = (b"a", b"b", b"ab"), (b"b", b"a", b"ba", b"c")
"""The tokens of the toys' target and of a draft model with another tokenizer: two are spelled
alike, the others are not."""


class Spelled:
    """A spelling by a list of byte strings; the longest that fits is taken first."""

    specials: dict[str, int] = {}
    starts: tuple[int, ...] = ()
    leads_with_space = False

    def __init__(self, *tokens: bytes) -> None:
        self._tokens = tokens

    def spelled(self, token: int) -> bytes:
        return self._tokens[token]

    def by_bytes(self) -> dict[bytes, int]:
        return {spelled: token for token, spelled in enumerate(self._tokens)}

    def encode(self, data: bytes) -> list[int]:
        ids: list[int] = []
        while data:
            fits = [token for token, spelled in enumerate(self._tokens) if data.startswith(spelled)]
            if fits:
                ids.append(max(fits, key=lambda token: len(self._tokens[token])))
            data = data[len(self._tokens[ids[-1]]) if fits else 1 :]
        return ids


TARGET_SPELLING, DRAFT_SPELLING = Spelled(*LETTERS), Spelled(*OTHER_LETTERS)
BETWEEN = Vocabularies(
    TARGET_SPELLING, DRAFT_SPELLING, target_size=VOCAB, draft_size=len(OTHER_LETTERS)
)


def _other_law(prefix: tuple[int, ...]) -> NDArray[np.float64]:
    mass = np.exp(np.random.default_rng([9, len(prefix), *prefix]).normal(size=len(OTHER_LETTERS)))
    law: NDArray[np.float64] = mass / mass.sum()
    return law


@cache
def _other_model() -> TableModel:
    return TableModel(_other_law, vocab_size=len(OTHER_LETTERS), name="other letters")


def _across(route: Literal["auto", "text", "shared"], pair: Pair, laws: LawPipeline) -> Kind:
    """The shared route's plan: the text so far in the draft model's letters, its row at the letters
    that both have."""
    ours, theirs = (list(side) for side in zip(*BETWEEN.draft_of.items(), strict=True))

    def law(context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        text = b"".join(LETTERS[token] for token in context)
        read = (*DRAFT_SPELLING.encode(text), *(BETWEEN.draft_of[token] for token in path))
        logits = np.full(VOCAB, -np.inf)
        logits[ours] = np.log(_other_law(read))[theirs]
        return np.asarray(laws.law(logits, context, path))

    return Kind(f"{route} route", OtherTokenizer(_other_model(), BETWEEN, route), law)


@cache
def _module() -> Any:
    """A Llama of four layers over the toys' three tokens, random weights, float64."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    state = torch.get_rng_state()
    torch.manual_seed(3)
    shape: dict[str, Any] = dict(
        hidden_size=8, intermediate_size=12, num_attention_heads=2, num_key_value_heads=1
    )
    ends: dict[str, Any] = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
    config = LlamaConfig(
        vocab_size=VOCAB,
        num_hidden_layers=4,
        initializer_range=0.5,
        max_position_embeddings=32,
        **shape,
        **ends,
    )
    module: Any = LlamaForCausalLM(config)
    torch.set_rng_state(state)
    return module.double().eval()


def _table_of(model: Any, name: str, ends: Sequence[int] = ()) -> TableModel:
    """What a model of transformers says after every prefix, read anew each time."""
    from draftproof.models.protocol import Step, extend

    @cache
    def law(prefix: tuple[int, ...]) -> NDArray[np.float64]:
        session = model.open()
        row = extend(Step(session, prefix, rows=(len(prefix) - 1,))).logits[0]
        session.close()
        return np.asarray(row.double().softmax(-1))

    return TableModel(law, vocab_size=VOCAB, eos_token_ids=ends, name=name)


@cache
def _layers() -> tuple[TableModel, dict[str, TableModel]]:
    """The whole Llama, and its slices as the package makes them."""
    from draftproof.models.hf import HFModel
    from draftproof.models.slices import early_exit, skipping

    whole = HFModel(_module(), name="llama", check=False)
    slices = {"early_exit": early_exit(whole, 2), "layer_skip": skipping(whole, [2], [1], [3])}
    return _table_of(whole, "llama", (VOCAB - 1,)), {
        name: _table_of(model, name) for name, model in slices.items()
    }


@cache
def _reference_layers(name: str) -> Any:
    """The same parts by hand: a copy of the module with layers taken out and the outputs of
    sublayers set to nothing."""
    import copy

    import torch

    slim = copy.deepcopy(_module())
    layers = slim.model.layers
    with torch.no_grad():
        if name == "layer_skip":
            layers[1].self_attn.o_proj.weight.zero_()
            layers[3].mlp.down_proj.weight.zero_()
    for number in (3, 2) if name == "early_exit" else (2,):
        del layers[number]
    for number, layer in enumerate(layers):
        layer.self_attn.layer_idx = number
    slim.config.num_hidden_layers = len(layers)
    return slim


@cache
def _reference_law(name: str, prefix: tuple[int, ...]) -> NDArray[np.float64]:
    import torch

    with torch.no_grad():
        logits = _reference_layers(name)(torch.tensor([prefix]), use_cache=False).logits[0, -1]
    # penalties look at logits, and a table's are those of its laws
    return np.asarray(logits.log_softmax(-1))


def _slice(name: str, pair: Pair, laws: LawPipeline) -> Kind:
    def law(context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        return np.asarray(laws.law(_reference_law(name, context + path), context, path))

    return Kind(name, DraftModel(_layers()[1][name], name=name), law)


def remembering_kinds() -> dict[str, Callable[[Pair, LawPipeline], Kind]]:
    """The drafters whose files say how they are proven without describing their drafts: those
    depend on rounds before."""
    listed = {
        name: proof.drafter
        for name, proof in proofs().items()
        if proof.guess is None and proof.paths is None
    }
    return {name: partial(_remembering, make()) for name, make in listed.items()}


def _remembering(drafter: Drafter, pair: Pair, laws: LawPipeline) -> Kind:
    return Kind(drafter.name, drafter, _no_plan)


def _no_plan(context: tuple[int, ...], path: tuple[int, ...]) -> None:
    raise AssertionError("a draft that depends on rounds before has no plan")


SLICES = ("early_exit", "layer_skip")
"""Kinds whose target is the Llama, whatever pair is named."""

KINDS: dict[str, Callable[[Pair, LawPipeline], Kind]] = remembering_kinds() | {
    "text_route": partial(_across, "text"),
    "shared_route": partial(_across, "shared"),
    "either_route": partial(_across, "auto"),
    "early_exit": partial(_slice, "early_exit"),
    "layer_skip": partial(_slice, "layer_skip"),
}
"""Name -> what is proven, over a pair of toys under one request's laws."""


@dataclass
class OtherHarness(Harness):
    """Foretells by the plan where the coming draft is sampled, else by the coming draft."""

    def expected_tokens(self, generation: Generation, depth: int) -> float:
        drafting = generation.drafting
        writes = isinstance(drafting, OtherTokenizerSession) and drafting.route == "text"
        if self.kind.plan is not _no_plan and not writes:
            context = tuple(generation.context)
            plan = self.kind.plan if not generation.pipeline.greedy else self._likeliest
            return expected_tokens_of_round(
                self.rule_name, self.target_row, plan, context, depth, self.ends
            )
        return self._of_the_coming_draft(generation, depth)

    def _likeliest(self, context: tuple[int, ...], path: tuple[int, ...]) -> int:
        law = self.kind.plan(context, path)
        return int(np.argmax(np.asarray(law)))

    def _of_the_coming_draft(self, generation: Generation, depth: int) -> float:
        """By the rule's formula for fixed guesses, over what a copy of the drafter proposes."""
        context, drafting = tuple(generation.context), fork(generation).drafting
        builder = DraftBuilder(
            KeyedChance((0, 0), len(context)),
            depth=depth,
            vocab_size=VOCAB,
            max_nodes=generation.max_nodes,
        )
        proposal = (
            drafting.propose(context, builder)
            if drafting is not None and builder.room > 0
            else None
        )
        if proposal is not None:
            drive(proposal)
        draft = builder.build()
        paths = [draft.tokens_to(node) for node in range(len(draft))]
        return formula_of(self.rule_name).guesses(paths, self.target_row, context, self.ends)


def other_harness(case: Case, rule: Rule | None = None) -> Harness:
    """The generation of a case whose draft is one of KINDS, ready for its first round."""
    own_layers = case.draft in SLICES
    target = _layers()[0] if own_layers else pairs()[case.pair].target
    laws, drafts = (RememberedLaws(case.sampling, **laws_of(target)) for _ in range(2))
    kind = KINDS[case.draft](pairs()[case.pair], drafts)
    most = NODES if kind.drafter.trees else None
    generation = begun(case, target, kind, laws, drafts, max_nodes=most, rule=rule)
    return OtherHarness(
        target, kind, laws, generation, case.rule, ends_of(case, target), case.horizon, case.rounds
    )


def rules_of(name: str) -> tuple[str, ...]:
    """The rules a kind is proven under: all that verify what it makes, `gumbel` but for its
    noise."""
    drafter = KINDS[name](
        pairs()["markov"], LawPipeline(SamplingParams(), num_prompt_tokens=1, vocab_size=VOCAB)
    ).drafter
    return tuple(
        rule.name
        for rule in RULES.values()
        if rule.lossless
        and drafter.selections <= rule.selections
        and (rule.trees or not drafter.trees)
    )
