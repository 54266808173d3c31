"""What a pass over n tokens costs on a real pair, and what `gumbel` costs beside `token` outside
the passes.

    python benchmarks/rules_times.py --target TARGET --draft DRAFT --rows FOLDER --out FILE

Passes: target and draft over n tokens as trees whose first level has two nodes, behind a prompt;
the sizes of a repetition follow each other, so that a machine that drifts drifts for all. Rules:
whole decode loops over recorded rows of logits (FOLDER as `rules_on_real_pair.py` left it) instead
of models, so that what is timed is laws, draws and verification; a round's seconds less its passes.
To be run with nothing else running.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from real_models import CHAT, chat_ids

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.models.load import load_model
from draftproof.models.protocol import Output, Step, extend
from draftproof.report.provenance import provenance

TARGET_SIZES = (1, 2, 3, 4, 5, 7, 9, 11, 16)
DRAFT_SIZES = (1, 2, 6)
REPEATS = 5
TOP_P = (1.0, 0.9)
SEEDS = range(3)


def passes(model: Any, sizes: Sequence[int]) -> dict[int, list[float]]:
    """Seconds of a pass over each number of tokens, the prompt read."""
    session = model.open()
    prompt = chat_ids(model.tokenizer, CHAT[0])
    extend(Step(session, prompt, rows=(len(prompt) - 1,)))
    found: dict[int, list[float]] = {n: [] for n in sizes}
    for repeat in range(REPEATS + 1):
        for n in sizes:
            parents = tuple(-1 if i == 0 else 0 if i < 3 else i - 2 for i in range(n))
            begin = time.perf_counter()
            extend(Step(session, tuple(prompt[:n]), parents if n > 2 else None))
            if repeat > 0:
                found[n].append(round(time.perf_counter() - begin, 5))
            session.rollback(len(prompt))
    session.close()
    return found


class RecordedRows(TableModel):
    """A model whose logits after a prefix are one of the recorded rows, chosen by the last two
    tokens."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__(lambda prefix: [1.0], vocab_size=rows.shape[1])
        self._rows = rows

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        outputs = []
        for step in steps:
            before = step.session.tokens  # type: ignore[attr-defined]
            step.session.read(step)  # type: ignore[attr-defined]
            prefix = [*before[-1:], *step.tokens]
            wanted = range(len(step.tokens)) if step.rows is None else step.rows
            places = [
                sum(prefix[max(0, row + len(before[-1:]) - 1) :][:2]) % len(self._rows)
                for row in wanted
            ]
            outputs.append(Output(self._rows[places]))
        return outputs

    def logits(self, prefix: tuple[int, ...]) -> Any:
        """Not what is read: the session only has to keep its tokens."""
        return np.zeros(1)


def recorded(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of target and draft after the same paths of one recorded round [n, vocab], float32."""
    with np.load(min(folder.rglob("T0.7/*/*.npz"))) as held:
        at = {
            side: {tuple(p): i for i, p in enumerate(json.loads(str(held[f"{side}_paths"])))}
            for side in ("target", "draft")
        }
        both = [path for path in at["target"] if path in at["draft"]]
        rows = {}
        for side in at:
            stored = held[f"{side}_rows"][[at[side][path] for path in both]]
            values = (
                (stored.astype(np.uint32) << 16).view(np.float32)
                if stored.dtype == np.uint16
                else stored
            )
            rows[side] = torch.from_numpy(values.astype(np.float32))
    size = min(len(row[0]) for row in rows.values())
    return rows["target"][:, :size].clone(), rows["draft"][:, :size].clone()


def rule_seconds(rows: tuple[torch.Tensor, torch.Tensor], rule: str, top_p: float) -> list[float]:
    """Seconds of each round outside the passes: chains of four, sampled."""
    target, draft = (RecordedRows(side) for side in rows)
    made = SpeculativeDecoder(
        draft, target, speculative_config={"rule": rule, "num_speculative_tokens": 4}
    )
    found = []
    for seed in SEEDS:
        params = SamplingParams(
            temperature=0.7, top_p=top_p, max_tokens=40, seed=seed, ignore_eos=True
        )
        for done in made.generate([1, 2, 3], params).rounds:
            if len(done.draft_tokens) == 4:
                seconds = done.seconds
                found.append(round(seconds.draft - seconds.draft_forward + seconds.rest, 6))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument(
        "--rows", type=Path, help="recorded rounds; without them only passes are timed"
    )
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/rules_times.json"))
    args = parser.parse_args()
    rows = recorded(args.rows) if args.rows else None
    document: dict[str, Any] = {"rules": {}}
    for top_p in TOP_P if rows else ():
        for rule in ("token", "gumbel", "token", "gumbel"):
            document["rules"].setdefault(f"{rule}, top-p {top_p}", []).extend(
                rule_seconds(rows, rule, top_p)
            )
    for side, sizes in (("target", TARGET_SIZES), ("draft", DRAFT_SIZES)):
        model = load_model(getattr(args, side), dtype=args.dtype)
        document[side] = passes(model, sizes)
        if side == "target":
            surroundings = provenance(model)
            document["provenance"] = {
                k: v for k, v in surroundings.items() if k not in ("target", "command")
            }
        del model
    args.out.write_text(json.dumps(document) + "\n")
    for name, seconds in document["rules"].items():
        print(
            f"{name}: median {1e3 * np.median(seconds):.2f} ms a round outside the "
            f"passes, {len(seconds)} rounds"
        )
    for side in ("target", "draft"):
        print(
            side, {n: round(float(np.median(seconds)), 3) for n, seconds in document[side].items()}
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
