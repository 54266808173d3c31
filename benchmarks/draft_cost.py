"""What drafting without a model costs: milliseconds a round, by length of context and of corpus,
and what is stored.

    python benchmarks/draft_cost.py [--contexts 1000 4000 16000] [--rounds 300] [--out results.json]

A made-up text with words, repeats and copied passages stands in for a context (its law is fixed by
a seed), a longer one for a corpus. A round appends one to three tokens of the text, then asks for a
draft; the first round, which takes in the whole context, is shown apart. Times are wall clock: run
it on an idle machine. The last line is one JSON document."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from draftproof import SamplingParams, TableModel
from draftproof.core.chance import KeyedChance
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Observation
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.ngram import NGram
from draftproof.drafters.ngram_cache import NGramCache
from draftproof.drafters.protocol import Drafter, DraftSession, Request
from draftproof.drafters.recycling import Recycling
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.ngram_tables import StoredTable, build_tables
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.drafters.suffix import Suffix

VOCAB = 50_000
CORPUS = 300_000
LENGTH = 12


def text(length: int, seed: int) -> list[int]:
    """Words of one to six tokens with Zipf frequencies; every tenth step copies a passage of 10 to
    60 tokens. The words are the same for all seeds."""
    rng, same = random.Random(seed), random.Random(0)
    words = [
        [int(VOCAB * same.random() ** 3) for _ in range(same.randint(1, 6))] for _ in range(3000)
    ]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    tokens: list[int] = []
    while len(tokens) < length:
        if len(tokens) > 100 and rng.random() < 0.1:
            begin = rng.randrange(len(tokens) - 60)
            tokens += tokens[begin : begin + rng.randint(10, 60)]
        else:
            tokens += rng.choices(words, weights)[0]
    return tokens[:length]


def drafters() -> dict[str, Callable[[], Drafter]]:
    corpus = [np.asarray(text(CORPUS, 7))]
    table, array = StoredTable(build_tables(corpus)), SuffixArray(build_suffix_array(corpus))

    def remembering() -> Suffix:
        drafter = Suffix(max_cached_requests=1000)
        assert drafter.shared is not None
        for i in range(0, 100_000, 500):
            drafter.shared.add(corpus[0][i : i + 500].tolist())
        return drafter

    return {
        "ngram": NGram,
        "suffix": Suffix,
        "suffix, tree": lambda: Suffix(tree=True),
        "suffix, 200 earlier outputs": remembering,
        "ngram_cache": NGramCache,
        f"ngram_cache, corpus of {CORPUS}": lambda: NGramCache(table),
        f"retrieval, corpus of {CORPUS}": lambda: Retrieval(array),
        "recycling": Recycling,
    }


def rounds(drafter: Drafter, length: int, count: int) -> list[float]:
    """Seconds of the first and of `count` further rounds that begin at `length` tokens of
    context."""
    whole = text(length + 3 * count, length)
    params = SamplingParams()
    laws = LawPipeline(params, num_prompt_tokens=length, vocab_size=VOCAB)
    session = drafter.open(
        Request(tuple(whole[:length]), params, laws, TableModel([[0.5, 0.5], [0.5, 0.5]]))
    )
    rng, context, spent = random.Random(0), whole[:length], []
    for _ in range(count + 1):
        draft = DraftBuilder(
            KeyedChance((0, 0), len(context)),
            depth=LENGTH,
            vocab_size=VOCAB,
            max_nodes=256 if drafter.trees else None,
        )
        began = time.perf_counter()
        session.propose(context, draft)
        spent.append(time.perf_counter() - began)
        built = draft.build()
        began = time.perf_counter()
        observe(session, context, built.tokens, built.parents, rng)
        spent[-1] += time.perf_counter() - began
        context += whole[len(context) : len(context) + rng.randint(1, 3)]
    session.close()
    return spent


def observe(
    session: DraftSession, context: list[int], tokens: Any, parents: Any, rng: random.Random
) -> None:
    """A pass over the pending token and the draft, with best ids for `recycling`."""
    rows = (context[-1], *tokens)
    best = np.asarray([[int(VOCAB * rng.random() ** 3) for _ in range(8)] for _ in rows])
    session.observe(
        Observation(len(context) - 1, context[-1:], {}, rows, (-1, *(p + 1 for p in parents)), best)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, nargs="+", default=[1000, 4000, 16000])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    print(
        "| drafter | context | first round, ms | a round, median ms | 95% | largest "
        "|\n|---|---|---|---|---|---|"
    )
    for name, make in drafters().items():
        for length in args.contexts:
            first, *others = (1000 * s for s in rounds(make(), length, args.rounds))
            cost = {
                "drafter": name,
                "context": length,
                "first_ms": first,
                "median_ms": statistics.median(others),
                "p95_ms": float(np.quantile(others, 0.95)),
                "max_ms": max(others),
            }
            found.append(cost)
            print(
                (
                    "| {drafter} | {context} | {first_ms:.1f} | {median_ms:.3f} | "
                    "{p95_ms:.3f} | {max_ms:.3f} |"
                ).format(**cost)
            )
    document = json.dumps({"rounds": args.rounds, "costs": found})
    if args.out:
        args.out.write_text(document + "\n", encoding="utf-8")
    print(document)


if __name__ == "__main__":
    main()
