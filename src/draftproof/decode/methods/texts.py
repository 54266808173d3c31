"""Methods that draft from tokens: the text so far, stores of other texts, and what the target said beside the draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from draftproof.core.tree import MAX_NODES
from draftproof.decode.methods.checks import count_from, number_from, one_to, yes_or_no
from draftproof.decode.methods.method import Method, Option, Parts
from draftproof.drafters.protocol import Drafter
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.decode.config import SpeculativeConfig


def store_of(kind: str) -> Callable[[str, Any], str]:
    """A check: the path of a store of this kind, read and found whole."""

    def check(name: str, value: Any) -> str:
        from draftproof.drafters.stores.files import read_store

        if not isinstance(value, str):
            raise UsageError(f"{name} is {value!r}; it is the path of a file of draftproof build-store")
        return read_store(value, kind).path

    return check


def ngram(config: SpeculativeConfig, parts: Parts) -> Drafter:
    """(longest, shortest) is (3, 1) unless given; one alone stands for both, as in vLLM."""
    from draftproof.drafters.ngram import NGram

    longest, shortest = config.option("prompt_lookup_max"), config.option("prompt_lookup_min")
    if longest is None and shortest is None:
        longest, shortest = 3, 1
    return NGram(longest or shortest, shortest or longest, tree=config.shape)


def suffix(config: SpeculativeConfig, parts: Parts) -> Drafter:
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


def _prediction(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.drafters.prediction import Prediction

    return Prediction()


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


def _lookahead(config: SpeculativeConfig, parts: Parts) -> Drafter:
    """The length of an n-gram is the draft length + 1."""
    from draftproof.drafters.lookahead import Lookahead

    if not parts.target.supports_trees:
        raise UsageError(f"method 'lookahead' reads its window as a tree, and {parts.target.name} reads chains only")
    return Lookahead(config.option("lookahead_window"), max(config.num_speculative_tokens, 1), config.option("lookahead_pool"))


LOOKUP = (
    Option("prompt_lookup_max", None, count_from(1), "longest suffix looked up, in tokens (3)"),
    Option("prompt_lookup_min", None, count_from(1), "shortest suffix looked up, in tokens (1)"),
)
LOOKAHEAD = (
    Option("lookahead_window", 5, count_from(1), "columns of the Jacobi window (5)", vllm=False),
    Option("lookahead_pool", 5, count_from(1), "n-grams kept and guessed for one first token (5)", vllm=False),
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

TEXT_METHODS = (
    Method(
        "ngram",
        "looks up the text's last tokens in what stands before",
        10,
        ngram,
        options=LOOKUP,
        trees=True,
        replayable=True,
        vllm=True,
    ),
    Method(
        "suffix",
        "counts what followed the text's last tokens; drafts as far as the counts carry",
        24,
        suffix,
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
        "prediction",
        "what the caller expects the answer to repeat, found again after every edit",
        16,
        _prediction,
        foretold=False,
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
    Method(
        "lookahead",
        "the target drafts for itself: Jacobi iteration and the n-grams it leaves",
        3,
        _lookahead,
        options=LOOKAHEAD,
        foretold=False,
    ),
)
