"""Methods that draft with a model: one of its own, or a part of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftproof.core.records import Selection
from draftproof.decode.methods.checks import count_from, layer_numbers, one_of, yes_or_no
from draftproof.decode.methods.method import Method, Option, Parts
from draftproof.drafters.protocol import Drafter
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel

if TYPE_CHECKING:
    from draftproof.decode.config import SpeculativeConfig

SIBLINGS: tuple[Selection, ...] = ("without_replacement", "iid", "top_k_plus_one")
"""How the children of a node of a sampled tree may come about, the usual way first."""


def draft_model(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.drafters.draft_model import DraftModel

    assert parts.draft is not None
    how = config.option("draft_sample_method")
    if config.options.get("use_heterogeneous_vocab"):
        from draftproof.models.vocabulary import side_by_side

        between = side_by_side(parts.target, parts.draft)
        if between is not None:
            return _across_tokenizers(config, parts.draft, between)
    return DraftModel(parts.draft, how, tree=config.shape, selection=siblings(config))


def _across_tokenizers(config: SpeculativeConfig, draft: LanguageModel, between: Any) -> Drafter:
    from draftproof.drafters.other_tokenizer import OtherTokenizer

    if config.shape is not None and not config.shape.is_chain:
        raise UsageError("a draft model with another tokenizer drafts chains; leave the tree out")
    return OtherTokenizer(draft, between, config.option("heterogeneous_vocab_route"), config.option("draft_sample_method"))


def _early_exit(config: SpeculativeConfig, parts: Parts) -> Drafter:
    """Without a number, the one that a LayerSkip checkpoint's generation config gives to transformers."""
    from draftproof.models.slices import early_exit

    wanted = config.option("early_exit_layers")
    if wanted is None:
        wanted = getattr(parts.target.generation_config, "assistant_early_exit", None)
    if wanted is None:
        raise UsageError("method 'early_exit' needs early_exit_layers: how many of the target's first layers draft")
    return _by_a_slice(config, early_exit(parts.target, wanted))


def _layer_skip(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.models.slices import skipping

    return _by_a_slice(config, skipping(parts.target, *(config.option(option.name) for option in SKIPPED)))


def _by_a_slice(config: SpeculativeConfig, model: LanguageModel) -> Drafter:
    from draftproof.drafters.draft_model import DraftModel

    how = config.option("draft_sample_method")
    return DraftModel(model, how, tree=config.shape, selection=siblings(config), name=config.method)


def siblings(config: SpeculativeConfig) -> Selection:
    """How sampled siblings come about: as asked, else the usual way, or the next one that the rule verifies. A chain's one
    child is drawn in any case."""
    from draftproof.core.rules import RULES

    asked: Selection | None = None if config.shape is None else config.option("tree_selection")
    usual = SIBLINGS if config.shape is not None else ("iid", *SIBLINGS)
    rule = RULES.get(config.rule_name or "")
    return asked if asked else next((kind for kind in usual if rule is None or kind in rule.selections), usual[0])


DRAFT_SAMPLE_METHOD = Option(
    "draft_sample_method",
    "probabilistic",
    one_of("probabilistic", "greedy"),
    '"probabilistic" samples the draft, "greedy" takes its likeliest token',
)
TREE_SELECTION = Option(
    "tree_selection", None, one_of(*SIBLINGS), "how the children of a node of a sampled tree come about", vllm=False
)
OTHER_TOKENIZER = (
    Option(
        "use_heterogeneous_vocab", False, yes_or_no, "take a draft model with another tokenizer; sampled too, unlike in vLLM"
    ),
    Option(
        "heterogeneous_vocab_route",
        "auto",
        one_of("auto", "text", "shared"),
        'across tokenizers: by "text", by "shared" tokens, or the one accepted more so far',
        vllm=False,
    ),
)
EARLY_EXIT_LAYERS = Option(
    "early_exit_layers", None, count_from(1), "how many of the target's first layers draft; LayerSkip's exit layer", vllm=False
)
SKIPPED = (
    Option("skip_layers", (), layer_numbers, "layers the draft leaves out, numbered from 0", vllm=False),
    Option("skip_attention_layers", (), layer_numbers, "layers of which it leaves out the attention", vllm=False),
    Option("skip_mlp_layers", (), layer_numbers, "layers of which it leaves out the MLP", vllm=False),
)

MODEL_METHODS = (
    Method(
        "draft_model",
        "a smaller model of the same tokens",
        4,
        draft_model,
        model="draft",
        options=(DRAFT_SAMPLE_METHOD, TREE_SELECTION, *OTHER_TOKENIZER),
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
