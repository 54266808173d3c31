"""Random settings: models, a drafter with its rule and length, parameters, and a way to call the
decoder; by number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

from draftproof import SpeculativeDecoder, TableModel
from draftproof.core.tree import TreeShape
from draftproof.drafters.auto import Auto
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.medusa import Medusa
from draftproof.drafters.ngram import NGram
from draftproof.drafters.ngram_cache import NGramCache
from draftproof.drafters.other_tokenizer import OtherTokenizer
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.ngram_tables import StoredTable, build_tables
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.drafters.suffix import Suffix
from draftproof.heads.eagle import Eagle as EagleHead
from draftproof.heads.eagle3 import Eagle3 as Eagle3Head
from draftproof.heads.medusa import Medusa as MedusaHead
from draftproof.heads.medusa import MedusaConfig
from draftproof.heads.target import TargetView
from draftproof.models.transcript import Vocabularies
from search.own import Edit, RandomModel, Tokens

CHAINS = ("match", "token", "block", "rrs", "traversal", "gumbel", "k_seq")
GUESSES = ("match", "rrs", "traversal", "k_seq", "greedy_k", "gumbel")
SELECTIONS = {
    "rrs": ("iid", "without_replacement"),
    "traversal": ("iid", "without_replacement"),
    "k_seq": ("iid",),
    "greedy_k": ("top_k_plus_one",),
    "match": ("iid", "without_replacement", "top_k_plus_one"),
    "gumbel": ("iid", "without_replacement", "top_k_plus_one"),
}
KINDS = (
    *(
        "draft_model",
        "draft_model",
        "tree",
        "tree",
        "ngram",
        "ngram_tree",
        "suffix",
        "ngram_cache",
        "recycling",
        "lookahead",
    ),
    *(
        "retrieval",
        "other_tokenizer",
        "medusa",
        "eagle",
        "eagle3",
        "eagle_tree",
        "auto",
        "auto_of_three",
    ),
)
MODES = ("single", "single", "single", "samples", "batch", "turns", "closed")
WIDTH = 4


@dataclass
class Setting:
    """processors: what is given to the decoder, made anew for each call; edits: the same, written
    again."""

    seed: int
    kind: str
    model: RandomModel
    target: TableModel
    ends: Tokens
    config: dict[str, Any]
    draft: Callable[[], Any]
    prompt: Tokens
    asked: dict[str, Any]
    longest: int
    mode: str
    processors: Callable[[Tokens], list[Any]]
    edits: Callable[[Tokens], Sequence[Edit]]

    def decoder(self) -> SpeculativeDecoder:
        return SpeculativeDecoder(self.draft(), self.target, speculative_config=dict(self.config))

    def __str__(self) -> str:
        return (
            f"{self.seed}: {self.kind} {self.config} {self.asked} ends {self.ends} "
            f"{self.mode} of {self.longest}"
        )


def setting(seed: int) -> Setting:
    """The setting of this number."""
    rng = np.random.default_rng(seed)
    vocab = int(rng.choice([2, 3, 3, 4]))
    ends = (int(rng.integers(vocab)),) if rng.random() < 0.4 else ()
    model = RandomModel(
        vocab,
        seed,
        int(rng.integers(1, 4)),
        rng.choice([0, 0, 0, 0.3]),
        float(rng.choice([0.5, 1, 3])),
        rng.random() < 0.2,
    )
    limit = None if rng.random() < 0.8 else int(rng.integers(6, 9))
    target = TableModel(
        model, vocab_size=vocab, eos_token_ids=ends, hidden=_hidden, max_length=limit
    )
    kind = str(rng.choice(KINDS))
    config, draft = _Drafts(rng, vocab, seed).made(kind)
    config |= _length(rng, kind)
    prompt = tuple(int(token) for token in rng.integers(0, vocab, int(rng.integers(1, 5))))
    asked = _asked(rng, vocab)
    mode = str(rng.choice(MODES)) if limit is None else "single"
    longest = int(rng.choice({2: [3, 3, 4, 5], 3: [3, 3, 4], 4: [2, 3]}[vocab]))
    longest = min(longest, 2) if mode in ("samples", "batch", "turns") else longest
    longest = longest if limit is None else min(longest, limit - len(prompt))
    asked["min_tokens"] = min(asked.get("min_tokens", 0), longest)
    processors, edits = _edited(rng, ends)
    return Setting(
        seed,
        kind,
        model,
        target,
        ends,
        config,
        draft,
        prompt,
        asked,
        longest,
        mode,
        processors,
        edits,
    )


def _length(rng: np.random.Generator, kind: str) -> dict[str, Any]:
    adaptive = str(rng.choice(["none", "none", "fixed", "heuristic", "lab", "survival"]))
    if adaptive == "none" and not kind.startswith("auto"):
        return {}
    verify = {
        "1": 1,
        "2": float(rng.choice([1.0, 1.05, 1.5])),
        "4": float(rng.choice([1.5, 1.6, 3.0])),
    }
    found: dict[str, Any] = {
        "costs": {"verify": verify, "draft": float(rng.choice([0, 0.05, 0.3])), "fixed": 0.1}
    }
    if adaptive != "none":
        found["adaptive"] = adaptive
    if rng.random() < 0.5:
        found["auto_off"] = [True, False, 0.2, 0.02][int(rng.integers(4))]
    return found


def _asked(rng: np.random.Generator, vocab: int) -> dict[str, Any]:
    def token() -> int:
        return int(rng.integers(vocab))

    temperatures, weights = (1.0, 0.7, 0.3, 1.8, 0.05, 0.0), (0.5, 0.2, 0.1, 0.15, 0.02, 0.03)
    asked: dict[str, Any] = {"temperature": float(rng.choice(temperatures, p=weights))}
    options: list[tuple[str, float, Callable[[], Any]]] = [
        ("top_k", 0.2, lambda: int(rng.integers(max(1, vocab - 2), vocab + 1))),
        ("top_p", 0.25, lambda: float(rng.choice([0.97, 0.95, 0.9, 0.8, 0.5]))),
        ("min_p", 0.2, lambda: float(rng.choice([0.02, 0.05, 0.2, 0.6]))),
        ("repetition_penalty", 0.35, lambda: float(rng.choice([1.3, 0.7, 2.5]))),
        ("frequency_penalty", 0.3, lambda: float(rng.choice([0.6, -0.8, 2.0]))),
        ("presence_penalty", 0.3, lambda: float(rng.choice([0.5, -0.5]))),
        ("logit_bias", 0.25, lambda: {token(): float(rng.choice([-1.0, 1.5, -100, -math.inf]))}),
        (
            "allowed_token_ids",
            0.08,
            lambda: sorted(int(t) for t in rng.choice(vocab, vocab - 1, replace=False)),
        ),
        ("suppress_tokens", 0.08, lambda: [token()]),
        (
            "bad_words_ids",
            0.2,
            lambda: [
                [token() for _ in range(rng.integers(1, 4))] for _ in range(rng.integers(1, 3))
            ],
        ),
        ("min_tokens", 0.25, lambda: int(rng.integers(1, 3))),
        ("stop_token_ids", 0.2, lambda: [token()]),
        ("ignore_eos", 0.1, lambda: True),
    ]
    return asked | {name: value() for name, share, value in options if rng.random() < share}


def _edited(
    rng: np.random.Generator, ends: Tokens
) -> tuple[Callable[[Tokens], list[Any]], Callable[[Tokens], Sequence[Edit]]]:
    """Logits processors and what they do: one that knows nothing after an end, one with a state,
    one of transformers'."""
    which, number = rng.random(), int(rng.integers(1, 4))
    if which < 0.15 and ends:
        return lambda prompt: [NothingAfter(ends[0], len(prompt))], lambda prompt: [
            _nothing_after(ends[0])
        ]
    if which < 0.3:
        return lambda prompt: [Budget(number)], lambda prompt: [_budget(number)]
    if which < 0.45:
        return lambda prompt: [NoRepeatNGramLogitsProcessor(number)], lambda prompt: [
            _no_repeat(number)
        ]
    return lambda prompt: [], lambda prompt: []


@dataclass
class NothingAfter:
    end: int
    prompt: int

    def __call__(self, ids: Any, scores: Any) -> Any:
        return scores - math.inf if self.end in ids[0, self.prompt :].tolist() else scores


def _nothing_after(end: int) -> Edit:
    return lambda whole, text, x: x - math.inf if end in text else x


@dataclass
class Budget:
    """Counts its calls; beyond its budget token 0 is twice as likely to the power of 2 (a bias of
    log 4)."""

    budget: int
    calls: int = 0

    def __call__(self, ids: Any, scores: Any) -> Any:
        self.calls += 1
        return scores + torch.eye(scores.shape[1], dtype=scores.dtype)[0] * math.log(4) * (
            self.calls > self.budget
        )


def _budget(budget: int) -> Edit:
    return lambda whole, text, x: x + np.eye(len(x))[0] * math.log(4) * (len(text) >= budget)


def _no_repeat(n: int) -> Edit:
    def edit(whole: Tokens, text: Tokens, x: Any) -> Any:
        last = whole[len(whole) - n + 1 :]
        starts = range(len(whole) - n + 1) if len(whole) >= n - 1 else range(0)
        x[[whole[i + n - 1] for i in starts if whole[i : i + n - 1] == last]] = -math.inf
        return x

    return edit


class _Drafts:
    """Makes a drafter of a kind: the speculative config, and what gives the draft."""

    def __init__(self, rng: np.random.Generator, vocab: int, seed: int) -> None:
        self._rng, self._vocab, self._seed = rng, vocab, seed
        self._length = {"num_speculative_tokens": int(rng.integers(1, 4))}

    def made(self, kind: str) -> tuple[dict[str, Any], Callable[[], Any]]:
        return getattr(self, f"_{kind}")()  # type: ignore[no-any-return]

    def _pick(self, *choices: Any) -> Any:
        return choices[int(self._rng.integers(len(choices)))]

    def _model(self) -> TableModel:
        vocab = self._vocab if self._rng.random() < 0.8 else self._vocab + self._pick(-1, 1)
        order, zeros = int(self._rng.integers(1, 4)), self._pick(0, 0, 0.3)
        law = RandomModel(vocab, self._seed + 777, order, zeros, self._pick(0.3, 1, 3))
        return TableModel(
            law,
            vocab_size=vocab,
            max_length=self._pick(None, None, None, None, int(self._rng.integers(4, 8))),
        )

    def _by_name(
        self, method: str, rules: Sequence[str], **keys: Any
    ) -> tuple[dict[str, Any], Callable[[], Any]]:
        return {"method": method, "rule": self._pick(*rules), **keys}, lambda: None

    def _draft_model(self) -> Any:
        model, method = self._model(), self._pick("probabilistic", "probabilistic", "greedy")
        rules = (*CHAINS, "greedy_k") if method == "greedy" else CHAINS
        return {
            **self._length,
            "draft_sample_method": method,
            "rule": self._pick(*rules),
        }, lambda: model

    def _tree(self) -> Any:
        model, rule = self._model(), self._pick(*SELECTIONS)
        small = ("2", "2,1", "3", "-1,-1,0")
        config = {
            "tree": self._pick(*small, *(("1,2", "2,2") if self._vocab < 4 else ())),
            "rule": rule,
        }
        if self._rng.random() < 0.15:
            return config | {"draft_sample_method": "greedy"}, lambda: model
        return config | {"tree_selection": self._pick(*SELECTIONS[rule])}, lambda: model

    def _ngram(self) -> Any:
        return self._by_name("ngram", (*CHAINS, "greedy_k"), **self._length)

    def _ngram_tree(self) -> Any:
        return self._by_name("ngram", GUESSES, tree=self._pick("2,1", "2,2", "3,1"))

    def _suffix(self) -> Any:
        keys: dict[str, Any] = {**self._length, "suffix_decoding_min_token_prob": 0.0}
        if self._rng.random() < 0.4:
            return self._by_name("suffix", GUESSES, suffix_decoding_use_tree=True, **keys)
        return self._by_name("suffix", (*CHAINS, "greedy_k"), **keys)

    def _recycling(self) -> Any:
        return self._by_name(
            "recycling", GUESSES, recycling_max_nodes=int(self._rng.integers(2, 6)), **self._length
        )

    def _lookahead(self) -> Any:
        window = int(self._rng.integers(1, 4))
        return self._by_name(
            "lookahead", GUESSES, lookahead_window=window, lookahead_pool=2, **self._length
        )

    def _auto(self) -> Any:
        keys: dict[str, Any] = {
            "drafters": ["suffix", "ngram"],
            "suffix_decoding_min_token_prob": 0.0,
        }
        return self._by_name("auto", (*CHAINS, "greedy_k"), **keys, **self._length)

    def _auto_of_three(self) -> Any:
        model = self._model()
        config = {**self._length, "rule": self._pick(*CHAINS)}
        return config, lambda: Auto(
            {
                "draft_model": DraftModel(model),
                "suffix": Suffix(min_token_prob=0.0),
                "ngram": NGram(),
            }
        )

    def _document(self, length: int) -> Any:
        return np.random.default_rng(self._seed).integers(0, self._vocab, length)

    def _ngram_cache(self) -> Any:
        stored = self._pick(None, StoredTable(build_tables([self._document(30)])))
        return {**self._length, "rule": self._pick(*CHAINS, "greedy_k")}, lambda: NGramCache(stored)

    def _retrieval(self) -> Any:
        corpus = SuffixArray(build_suffix_array([self._document(40)]))
        trees = self._pick(True, False)
        config = {**self._length, "rule": self._pick(*(GUESSES if trees else CHAINS))}
        return config, lambda: Retrieval(corpus, 4, trees=trees)

    def _other_tokenizer(self) -> Any:
        model = TableModel(RandomModel(4, self._seed + 5, 3, 0.0, 0.8), vocab_size=4)
        ours = Letters(b"a", b"b", b"ab", b"c", count=self._vocab)
        between = Vocabularies(
            ours, Letters(b"b", b"a", b"ba", b"c"), target_size=self._vocab, draft_size=4
        )
        route, method = self._pick("auto", "text", "shared"), self._pick("probabilistic", "greedy")
        return {**self._length, "rule": self._pick(*CHAINS)}, lambda: OtherTokenizer(
            model, between, route, method
        )

    def _medusa(self) -> Any:
        head = _head("medusa", self._vocab, self._seed)
        shape = self._pick(TreeShape.parse("2,1"), None)
        config = {
            "rule": self._pick(*(GUESSES if shape else CHAINS)),
            **({} if shape else self._length),
        }
        return config, lambda: Medusa(head, tree=shape)

    def _eagle(self) -> Any:
        return self._chain_of("eagle")

    def _eagle3(self) -> Any:
        return self._chain_of("eagle3")

    def _chain_of(self, name: str) -> Any:
        head, method = _head(name, self._vocab, self._seed), self._pick("probabilistic", "greedy")
        return {**self._length, "rule": self._pick(*CHAINS)}, lambda: Eagle(head, method, name=name)

    def _eagle_tree(self) -> Any:
        head = _head("eagle3", self._vocab, self._seed)
        return {**self._length, "rule": self._pick(*GUESSES)}, lambda: Eagle(
            head, num_nodes=3, top_k=2, name="eagle3"
        )


class Letters:
    """A spelling by byte strings; the longest that fits is taken first."""

    specials: dict[str, int] = {}
    starts: tuple[int, ...] = ()
    leads_with_space = False

    def __init__(self, *tokens: bytes, count: int | None = None) -> None:
        self._tokens = tokens[:count]

    def spelled(self, token: int) -> bytes:
        return self._tokens[token]

    def by_bytes(self) -> dict[bytes, int]:
        return {spelled: token for token, spelled in enumerate(self._tokens)}

    def encode(self, data: bytes) -> list[int]:
        found: list[int] = []
        while data:
            fits = [token for token, spelled in enumerate(self._tokens) if data.startswith(spelled)]
            found += [max(fits, key=lambda token: len(self._tokens[token]))] if fits else []
            data = data[len(self._tokens[found[-1]]) if fits else 1 :]
        return found


def _hidden(prefix: Sequence[int], layer: int) -> Any:
    return np.random.default_rng([3, layer, *(token + 1 for token in prefix)]).normal(size=WIDTH)


def _head(kind: str, vocab: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    embedding, output = (
        torch.randn(vocab, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    view = TargetView("toy", WIDTH, vocab, 3, lambda ids: embedding[ids], output)
    shape: dict[str, Any] = dict(
        num_attention_heads=2, num_key_value_heads=1, intermediate_size=6, head_dim=2
    )
    shape |= {"rms_norm_eps": 1e-6, "max_position_embeddings": 64}
    head: Any
    if kind == "medusa":
        head = MedusaHead(MedusaConfig(WIDTH, vocab, 3, num_heads=3))
    else:
        head = (
            EagleHead.of(view, **shape)
            if kind == "eagle"
            else Eagle3Head.of(view, tuple(sorted({0, vocab - 1})), **shape)
        )
    with torch.no_grad():
        for weights in head.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator) * 0.8)
    return head.double().eval().requires_grad_(False)
