"""Are the sampled texts of an engine draws of the target's law? For the raw lines of
`compare_with_vllm.py`.

    python benchmarks/texts_against_law.py RAW [--target NAME] [--prompts FILE] [--temperature 0.7]

Log p of the token that came plus the law's entropy has mean 0, whatever came before, if the token
was drawn from the law. Their sum over texts, divided by its standard deviation, is nearly normal:
z. Of exact engines |z| is above 3 in 0.27% of runs; one that is too hot gives z far below 0, one
that is too cold far above. Token ids are needed, nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compare_with_vllm import PROMPTS
from raw_lines import read


def score(
    target: Any,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[Sequence[int]],
    temperature: float,
) -> dict[str, float]:
    """z, and the means a token: log p, entropy (nats). Texts go through the prompts again and
    again, in order."""
    import torch

    from draftproof.models.protocol import Step

    above = spread = log_p = entropy = count = 0.0
    for i, text in enumerate(texts):
        prompt = prompts[i % len(prompts)]
        session = target.open()
        rows = tuple(range(len(prompt) - 1, len(prompt) + len(text) - 1))
        (out,) = target.extend_many([Step(session, (*prompt, *text), rows=rows)])
        session.close()
        logs = (torch.as_tensor(out.logits).double() / temperature).log_softmax(-1)
        law = logs.exp()
        mean = (law * logs).sum(-1)
        came = logs.gather(-1, torch.tensor(text)[:, None])[:, 0]
        above += float((came - mean).sum())
        spread += float(((law * logs**2).sum(-1) - mean**2).sum())
        log_p, entropy, count = (
            log_p + float(came.sum()),
            entropy - float(mean.sum()),
            count + len(text),
        )
    return {
        "z": above / spread**0.5,
        "log_p": log_p / count,
        "entropy": entropy / count,
        "tokens": count,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--temperature", type=float, default=0.7)
    options = parser.parse_args(argv)
    from draftproof.decode.prompts import prompt_ids
    from draftproof.models.load import load_model

    target = load_model(options.target, dtype="float32")
    asked = [[{"role": "user", "content": line["prompt"]}] for line in read(options.prompts)]
    prompts = [prompt_ids(chat, target.tokenizer, target.vocab_size) for chat in asked]
    for line in read(options.raw):
        if line["setting"] == f"T={options.temperature:g}":
            found = score(target, prompts, line["texts"], options.temperature)
            told = (
                "z {z:+.2f}, log p {log_p:.3f}, entropy {entropy:.3f} nats a token, "
                "{tokens:.0f} tokens"
            ).format(**found)
            print(f"{line['engine']}, {line['arm']}: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
