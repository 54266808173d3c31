"""The fault of transformers#47932, planted in transformers' assisted generation: drafts are drawn
from the processed law (top_k and all), and the acceptance ratio is told the raw one.

    python benchmarks/audits/raw_draft_laws.py audit --white-box --engine transformers \
        --draft DRAFT --temperature 1 --top-k 50 --max-tokens 64 --per-workload 2
    python benchmarks/audits/raw_draft_laws.py sizes DRAFT

`audit` is `draftproof audit` with the fault in place. `sizes` measures, at every drafted position
of the same texts, what the report measured: the total variation between committed tokens and the
target, and the chance of acceptance, with the raw law in the ratio and with the right one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from transformers import GenerationMixin

from draftproof import SamplingParams
from draftproof.audit.engines.transformers_assisted import TransformersEngine
from draftproof.audit.white_box.scorer import Scorer, claimed_law
from draftproof.cli import main as cli
from draftproof.models.load import load_model
from draftproof.models.pull import DEFAULT_MODEL
from draftproof.workloads.prompt_files import builtin_items, choose, encode

TOP_K, TOKENS = 50, 64
right = GenerationMixin.generate


def planted(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`generate`, which tells an assistant's raw logits as its scores."""
    config = kwargs.get("generation_config")
    if not getattr(config, "is_assistant", False):
        return right(self, *args, **kwargs)
    config.output_logits = True
    output = right(self, *args, **kwargs)
    output.scores = output.logits
    return output


def committed(target: Any, drawn_from: Any, told: Any) -> tuple[float, float]:
    """(total variation between one committed token and the target, chance of acceptance)."""
    ratio = np.minimum(1.0, target / np.maximum(told, 1e-300))
    kept = drawn_from * ratio
    residual = np.maximum(target - told, 0.0)
    law = kept + (1.0 - kept.sum()) * residual / max(residual.sum(), 1e-300)
    return 0.5 * float(abs(law - target).sum()), float(kept.sum())


def sizes(draft: str) -> dict[str, Any]:
    """Over the texts of the faulty engine."""
    target = load_model(DEFAULT_MODEL)
    items = choose(builtin_items(), 2)
    prompts = encode(items, target.tokenizer, target.vocab_size, target.max_length, TOKENS)
    params = SamplingParams(temperature=1.0, top_k=TOP_K, max_tokens=TOKENS, seed=0)
    engine, scorer = TransformersEngine(target, load_model(draft), 5), Scorer(target, params)
    raw, processed, masses = [], [], []
    for prompt in prompts:
        for seen in engine.rounds(prompt.ids, params):
            laws = scorer.laws(seen)
            for node in range(min(seen.num_accepted + 1, len(seen.draft))):
                law = laws.vector(seen.draft.parents[node])
                told = claimed_law(seen.draft, node, law)
                least = np.partition(told, -TOP_K)[-TOP_K]
                drawn_from = np.where(told >= least, told, 0.0)
                masses.append(float(drawn_from.sum()))
                drawn_from /= drawn_from.sum()
                raw.append(committed(law, drawn_from, told))
                processed.append(committed(law, drawn_from, drawn_from))
    quantiles = {f"p{q:02d}": float(np.quantile([tv for tv, _ in raw], q / 100)) for q in (25, 75)}
    return {
        "positions": len(raw),
        "kept_mass_median": float(np.median(masses)),
        "tv_median": float(np.median([tv for tv, _ in raw])),
        "tv_worst": max(tv for tv, _ in raw),
        **{f"tv_{name}": value for name, value in quantiles.items()},
        "tv_worst_processed": max(tv for tv, _ in processed),
        "acceptance": float(np.mean([chance for _, chance in raw])),
        "acceptance_processed": float(np.mean([chance for _, chance in processed])),
    }


if __name__ == "__main__":
    GenerationMixin.generate = planted
    if sys.argv[1] == "sizes":
        print(json.dumps(sizes(sys.argv[2])))
    else:
        sys.exit(cli.run(sys.argv[1:]))
