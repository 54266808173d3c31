"""The methods: every way to draft that can be asked for by name, in one list. A new drafter adds one entry here.

An entry says what the method needs, which keys of `speculative_config` it alone reads, and how its drafter is made; the config,
the command line, `plan`, `bench` and `doctor` know methods through this list only. Drafters are imported when made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from draftproof.core.records import Selection
from draftproof.core.tree import MAX_NODES
from draftproof.drafters.protocol import Drafter
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel

if TYPE_CHECKING:
    from draftproof.decode.config import SpeculativeConfig

SIBLINGS = ("iid", "without_replacement", "top_k_plus_one")
"""How the children of a node of a sampled tree may come about."""


@dataclass(frozen=True)
class Option:
    """A key of `speculative_config` that only some methods read. check(name, value) gives the value to keep, or UsageError."""

    name: str
    default: Any
    check: Callable[[str, Any], Any]
    help: str
    vllm: bool = True
    """Whether vLLM has the key under this name."""


@dataclass(frozen=True)
class Parts:
    """What a drafter is made from. draft: the loaded draft model, for methods whose `model` is one."""

    target: LanguageModel
    draft: LanguageModel | None
    tokenizer: Any


@dataclass(frozen=True)
class Method:
    """One way to draft.

    summary: one line for people. length: the draft length when none is given, unless `length_from` names the option that says
    it. requires: the options it cannot do without. make: the drafter of a checked config. model:
    what the key "model" names, a draft model ("draft", loaded before `make`) or the folder of something else ("folder", read
    by `make`); None when the method takes none. options: the keys it alone reads. trees: whether it takes "tree".
    replayable: whether its drafts come from tokens alone, so that they can be replayed over a recorded text without a forward.
    vllm: whether vLLM has the method under this name.
    model_optional: whether it also works without its model. adapts: whether its lengths adapt unless the config says otherwise.
    """

    name: str
    summary: str
    length: int
    make: Callable[[SpeculativeConfig, Parts], Drafter]
    model: Literal["draft", "folder"] | None = None
    options: tuple[Option, ...] = ()
    requires: tuple[str, ...] = ()
    length_from: str | None = None
    trees: bool = False
    replayable: bool = False
    vllm: bool = False
    model_optional: bool = False
    adapts: bool = False


def count_from(least: int) -> Callable[[str, Any], int]:
    """A check: a whole number from `least`."""

    def check(name: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(f"{name} is {value!r}; allowed: a whole number from {least}")
        return value

    return check


def layer_numbers(name: str, value: Any) -> tuple[int, ...]:
    """A check: a list of different whole numbers from 0."""
    numbers = list(value) if isinstance(value, (list, tuple)) else [value]
    whole = all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers)
    if not whole or len(set(numbers)) < len(numbers):
        raise UsageError(f"{name} is {value!r}; allowed: a list of different layers, numbered from 0")
    return tuple(numbers)


def one_of(*allowed: str) -> Callable[[str, Any], str]:
    """A check: one of these words."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise UsageError(f"{name} is {value!r}; allowed: {', '.join(sorted(allowed))}")
        return value

    return check


def one_to(most: int) -> Callable[[str, Any], int]:
    """A check: a whole number from 1 to `most`."""

    def check(name: str, value: Any) -> int:
        if count_from(1)(name, value) > most:
            raise UsageError(f"{name} is {value!r}; allowed: a whole number from 1 to {most}")
        return int(value)

    return check


def number_from(least: float, most: float = float("inf")) -> Callable[[str, Any], float]:
    """A check: a number from `least` to `most`."""

    def check(name: str, value: Any) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most or math.isinf(value):
            allowed = f"a number from {least:g}" + ("" if math.isinf(most) else f" to {most:g}")
            raise UsageError(f"{name} is {value!r}; allowed: {allowed}")
        return float(value)

    return check


def yes_or_no(name: str, value: Any) -> bool:
    """A check: true or false."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; allowed: true and false")
    return value


def store_of(kind: str) -> Callable[[str, Any], str]:
    """A check: the path of a store of this kind, read and found whole."""

    def check(name: str, value: Any) -> str:
        from draftproof.drafters.stores.files import read_store

        if not isinstance(value, str):
            raise UsageError(f"{name} is {value!r}; it is the path of a file of draftproof build-store")
        return read_store(value, kind).path

    return check


def _none(config: SpeculativeConfig, parts: Parts) -> Drafter:
    raise AssertionError("method 'none' has no drafter")


def _draft_model(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.drafters.draft_model import DraftModel

    assert parts.draft is not None
    how = config.option("draft_sample_method")
    if config.option("use_heterogeneous_vocab"):
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


def _ngram(config: SpeculativeConfig, parts: Parts) -> Drafter:
    """(longest, shortest) is (3, 1) unless given; one alone stands for both, as in vLLM."""
    from draftproof.drafters.ngram import NGram

    longest, shortest = config.option("prompt_lookup_max"), config.option("prompt_lookup_min")
    if longest is None and shortest is None:
        longest, shortest = 3, 1
    return NGram(longest or shortest, shortest or longest, tree=config.shape)


def _medusa(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.drafters.medusa import Medusa

    return Medusa(_head("medusa", config, parts), tree=config.shape)


def _eagle(config: SpeculativeConfig, parts: Parts) -> Drafter:
    """One drafter for both generations of heads: they differ in the network alone."""
    from draftproof.drafters.eagle import Eagle

    return Eagle(
        _head(config.method, config, parts),
        config.option("draft_sample_method"),
        num_nodes=config.option("dynamic_tree_nodes"),
        top_k=config.option("dynamic_tree_top_k"),
        name=config.method,
    )


def _head(method: str, config: SpeculativeConfig, parts: Parts) -> Any:
    from draftproof.heads.folder import load_head
    from draftproof.heads.target import target_view

    assert config.model is not None
    return load_head(config.model, target_view(parts.target), method)


def _early_exit(config: SpeculativeConfig, parts: Parts) -> Drafter:
    """Without a number, the one that a LayerSkip checkpoint's generation config gives to transformers."""
    from draftproof.models.slices import early_exit

    wanted = config.option("early_exit_layers")
    if wanted is None:
        wanted = getattr(getattr(parts.target, "generation_config", None), "assistant_early_exit", None)
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


def _lookahead(config: SpeculativeConfig, parts: Parts) -> Drafter:
    """The length of an n-gram is the draft length + 1."""
    from draftproof.drafters.lookahead import Lookahead

    if not parts.target.supports_trees:
        raise UsageError(f"method 'lookahead' reads its window as a tree, and {parts.target.name} reads chains only")
    return Lookahead(config.option("lookahead_window"), max(config.num_speculative_tokens, 1), config.option("lookahead_pool"))


def _auto(config: SpeculativeConfig, parts: Parts) -> Drafter:
    """The drafters asked for; by default suffix matches and the draft model."""
    from draftproof.drafters.auto import Auto

    makers = {"ngram": _ngram, "suffix": _suffix, "draft_model": _draft_model}
    names = config.option("drafters") or ("suffix", *(["draft_model"] if parts.draft is not None else []))
    if "draft_model" in names and parts.draft is None:
        raise UsageError('drafters has "draft_model", which needs "model": a hub id or the folder of a draft model')
    if "draft_model" not in names and parts.draft is not None:
        raise UsageError(f'"model" is read by the drafter "draft_model", which drafters does not name: {", ".join(names)}')
    if len(names) < 2:
        raise UsageError('method "auto" chooses between drafters: name a draft model ("model"), or two in "drafters"')
    return Auto({name: makers[name](config, parts) for name in names})


AUTO_DRAFTERS = ("draft_model", "ngram", "suffix")
"""What `auto` can choose from."""


def _drafters(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(one in AUTO_DRAFTERS for one in value):
        raise UsageError(f"{name} is {value!r}; allowed: a list of {', '.join(AUTO_DRAFTERS)}")
    if len(set(value)) < len(value):
        raise UsageError(f"{name} is {value!r}; it names a drafter twice")
    return tuple(value)


def _suffix(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.drafters.suffix import Suffix

    asked = {option.name.removeprefix(SUFFIX_PREFIX): config.option(option.name) for option in SUFFIX}
    tree = asked.pop("use_tree")
    if tree and not parts.target.supports_trees:
        raise UsageError(f"{parts.target.name} cannot read a tree in one pass: leave {SUFFIX_PREFIX}use_tree out")
    return Suffix(**asked, tree=tree)


def _ngram_cache(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.drafters.ngram_cache import NGramCache
    from draftproof.drafters.stores.ngram_tables import StoredTable

    return NGramCache(None if config.option("store") is None else StoredTable(_stored(config, parts)))


def _recycling(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.drafters.recycling import Recycling

    nodes, depth = config.option("recycling_max_nodes"), config.num_speculative_tokens
    return Recycling(nodes, depth, tree=config.shape, trees=parts.target.supports_trees)


def _retrieval(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.drafters.retrieval import Retrieval
    from draftproof.drafters.stores.suffix_array import SuffixArray

    corpus = SuffixArray(_stored(config, parts))
    return Retrieval(corpus, config.option("retrieval_max_nodes"), trees=parts.target.supports_trees)


def _stored(config: SpeculativeConfig, parts: Parts) -> Mapping[str, Any]:
    """The arrays of the method's store, once it is sure that they are whole and that the target has these tokens."""
    from draftproof.drafters.stores.files import check_fits, read_store

    store = read_store(config.option("store"), config.method)
    check_fits(store, parts.tokenizer, parts.target.vocab_size)
    return store.arrays


def siblings(config: SpeculativeConfig) -> Selection:
    """How sampled siblings come about: as asked, else as the rule needs it."""
    if config.shape is None:
        return "iid"
    asked: Selection | None = config.option("tree_selection")
    wanted: dict[str | None, Selection] = {"k_seq": "iid", "greedy_k": "top_k_plus_one"}
    return asked or wanted.get(config.rule_name, "without_replacement")


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
LOOKAHEAD = (
    Option("lookahead_window", 5, count_from(1), "columns of the Jacobi window (5)", vllm=False),
    Option("lookahead_pool", 5, count_from(1), "n-grams kept and guessed for one first token (5)", vllm=False),
)
DRAFTERS = Option("drafters", None, _drafters, "the drafters it chooses from, as a list", vllm=False)
LOOKUP = (
    Option("prompt_lookup_max", None, count_from(1), "longest suffix looked up, in tokens (3)"),
    Option("prompt_lookup_min", None, count_from(1), "shortest suffix looked up, in tokens (1)"),
)

DYNAMIC_TREE = (
    Option("dynamic_tree_nodes", 0, count_from(0), "nodes of EAGLE-2's tree, the likeliest; 0 drafts a chain", vllm=False),
    Option("dynamic_tree_top_k", 10, count_from(1), "continuations of a node that EAGLE-2's tree looks at", vllm=False),
)
SUFFIX_PREFIX = "suffix_decoding_"
SUFFIX = (
    Option("suffix_decoding_max_tree_depth", 24, count_from(1), "most tokens of match and draft together (24)"),
    Option("suffix_decoding_max_spec_factor", 1.0, number_from(0), "drafts for each matched token (1.0)"),
    Option("suffix_decoding_min_token_prob", 0.1, number_from(0, 1), "least share of the counts a drafted path has (0.1)"),
    Option(
        "suffix_decoding_max_cached_requests",
        0,
        count_from(0),
        "outputs of earlier requests to look in as well; 0, the default here, for none",
    ),
    Option("suffix_decoding_max_cached_tokens", 200_000, count_from(0), "cap on those in tokens (200000)", vllm=False),
    Option("suffix_decoding_use_tree", False, yes_or_no, "draft a tree instead of a chain (false)", vllm=False),
)
STORE_HELP = "path of a file of draftproof build-store"

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("none", "plain decoding", 0, _none),
        Method(
            "draft_model",
            "a smaller model of the same tokens",
            4,
            _draft_model,
            model="draft",
            options=(DRAFT_SAMPLE_METHOD, TREE_SELECTION, *OTHER_TOKENIZER),
            trees=True,
            vllm=True,
        ),
        Method(
            "ngram",
            "looks up the text's last tokens in what stands before",
            10,
            _ngram,
            options=LOOKUP,
            trees=True,
            replayable=True,
            vllm=True,
        ),
        Method(
            "medusa",
            "heads on the last hidden state, one a position",
            4,
            _medusa,
            model="folder",
            trees=True,
            vllm=True,
        ),
        Method(
            "eagle",
            "a head that predicts the target's next feature",
            4,
            _eagle,
            model="folder",
            options=(DRAFT_SAMPLE_METHOD, *DYNAMIC_TREE),
            vllm=True,
        ),
        Method(
            "eagle3",
            "a head over three fused layers of the target",
            4,
            _eagle,
            model="folder",
            options=(DRAFT_SAMPLE_METHOD, *DYNAMIC_TREE),
            vllm=True,
        ),
        Method(
            "lookahead",
            "the target drafts for itself: Jacobi iteration and the n-grams it leaves",
            3,
            _lookahead,
            options=LOOKAHEAD,
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
        Method(
            "auto",
            "several drafters side by side, in each round the one that promises most",
            16,
            _auto,
            model="draft",
            model_optional=True,
            options=(DRAFTERS, *LOOKUP, *SUFFIX, DRAFT_SAMPLE_METHOD),
            adapts=True,
        ),
        Method(
            "suffix",
            "counts what followed the text's last tokens; drafts as far as the counts carry",
            24,
            _suffix,
            options=SUFFIX,
            length_from="suffix_decoding_max_tree_depth",
            replayable=True,
            vllm=True,
        ),
        Method(
            "ngram_cache",
            "tables of what followed each n-gram, here and in a corpus",
            8,
            _ngram_cache,
            options=(Option("store", None, store_of("ngram_cache"), f"{STORE_HELP}; optional", vllm=False),),
            replayable=True,
        ),
        Method(
            "recycling",
            "a tree of what the target last thought likely after each token",
            6,
            _recycling,
            options=(Option("recycling_max_nodes", 24, one_to(MAX_NODES), "most nodes of a draft (24)", vllm=False),),
            trees=True,
        ),
        Method(
            "retrieval",
            "a tree of what followed the text's last tokens in a corpus of yours",
            10,
            _retrieval,
            options=(
                Option("store", None, store_of("retrieval"), STORE_HELP, vllm=False),
                Option("retrieval_max_nodes", 32, one_to(MAX_NODES), "most nodes of a draft (32)", vllm=False),
            ),
            requires=("store",),
            replayable=True,
        ),
    )
}


def drafting_methods() -> tuple[str, ...]:
    """The names of all methods that draft, sorted."""
    return tuple(sorted(name for name in METHODS if name != "none"))


def readers(option: str) -> tuple[str, ...]:
    """The methods that read `option`, sorted; () for a key no method has."""
    return tuple(sorted(m.name for m in METHODS.values() if any(o.name == option for o in m.options)))
