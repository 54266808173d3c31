"""The lab's scale-up, step by step: 20 code and 20 chat answers, acceptance by workload, the cost
of a step, what follows. Run in this folder, with PYTHONPATH=.. for what benchmarks share.

    python lab_scale_up.py --out raw.jsonl --only text    untimed, beside other work
    python lab_scale_up.py --out raw.jsonl --seconds 240  alone; again to go on
    python lab_scale_up.py --out raw.jsonl --report       the table
    python lab_scale_up.py --tiny   two tiny random models, seconds on any CPU
    python lab_scale_up.py --shapes --device cuda --out gpu.jsonl
        random weights in Qwen2.5's real shapes: costs are real, acceptance is by chance (synthetic)

`--target Qwen/Qwen2.5-1.5B-Instruct --draft Qwen/Qwen2.5-0.5B-Instruct` are the lab's own; by
default a Coder pair stands in.

1. The target answers, greedily and at temperature 0.7.
2. alpha: both models read the answers, overlap per workload.
3. c: 100 cached single-token steps of each model, medians.
4. Foretold: tokens per pass and speedup for each draft length.
5. Measured: the same, interleaved with plain decoding and transformers' assisted generation.
Every line of --out is one finished piece of work, and a run goes on after the pieces its file has.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lab_table import WORKLOADS, Line, markdown
from raw_lines import append, read_if_there

K = (2, 4, 6)
TEMPERATURES = (0.0, 0.7)
STEPS, VISITS = 100, 3
TOGETHER = 4
"""Prompts whose answers are written and read together."""
KINDS = ("text", "steps", "costs", "run")
SHAPES = {
    "1.5B": dict(
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
    ),
    "0.5B": dict(
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
    ),
    "tiny": dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    ),
    "tinier": dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
    ),
}
"""Qwen2.5's from the config.json of its repositories; the vocabulary is 151,936 there and 512 for
the tiny ones."""
ASKED = {
    "code": (
        "Write a Python function that {}.",
        *(
            "reverses a list in place",
            "counts the vowels in a text",
            "returns the n-th Fibonacci number",
        ),
        *("checks whether a number is prime", "merges two sorted lists", "flattens a nested list"),
        *(
            "removes duplicates and keeps the order",
            "computes the mean and the median",
            "finds the longest word in a text",
        ),
        *(
            "turns a Roman numeral into an integer",
            "reads a CSV file into dictionaries",
            "sorts words by their length",
        ),
        *(
            "finds two numbers that add up to a target",
            "transposes a matrix",
            "checks whether brackets are balanced",
        ),
        *(
            "does a binary search",
            "splits a list into chunks",
            "counts the words of a file",
            "rotates a list by k places",
        ),
        "inverts a dictionary",
    ),
    "chat": (
        "What are the most important facts about {}?",
        *(
            "volcanoes",
            "bicycles",
            "the water cycle",
            "chess",
            "black holes",
            "bread baking",
            "public libraries",
            "sleep",
        ),
        *(
            "the Roman Empire",
            "electric cars",
            "bees",
            "jazz",
            "vaccines",
            "mountain climbing",
            "prime numbers",
            "coffee",
        ),
        *("gardening", "the stock market", "photography", "the human heart"),
    ),
}
"""Workload -> how it is asked, then what is asked for: 20 short prompts each."""


@dataclass(frozen=True)
class Piece:
    """A piece of work. number: the first prompt of a text, the prompt of a run, the visit of the
    costs."""

    kind: str
    temperature: float
    number: int


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    lines = read_if_there(options.out) if options.out else []
    if not options.report:
        end = time.monotonic() + options.seconds
        work: Work | None = None
        for piece in pieces(options):
            if piece.kind not in options.only or any(about(line) == piece for line in lines):
                continue
            work = work or Work(options)
            began = time.monotonic()
            if began + work.longest.get(piece.kind, 0.0) > end:
                print("time is used up; run again to go on", file=sys.stderr)
                return 3
            found = [vars(piece) | line for line in work.lines(piece)]
            work.longest[piece.kind] = max(
                work.longest.get(piece.kind, 0.0), time.monotonic() - began
            )
            lines += found
            if options.out:
                append(options.out, *found)
            print(f"{piece} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(markdown(options, lines), end="")
    return 0


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--target", default="~/.cache/draftproof/models/qwen2.5-coder-1.5b-instruct.gguf"
    )
    parser.add_argument(
        "--draft", default="~/.cache/draftproof/models/qwen2.5-coder-0.5b-instruct.gguf"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="tiny random models instead of real ones"
    )
    parser.add_argument(
        "--shapes", action="store_true", help="random weights in real shapes; acceptance by chance"
    )
    parser.add_argument(
        "--synthetic-alpha",
        type=float,
        default=0.8,
        help="with --shapes and --tiny: acceptance by chance",
    )
    parser.add_argument("--prompts", type=int, default=20, help="answers a workload, at most 20")
    parser.add_argument(
        "--measured",
        type=int,
        help="prompts a workload that are run; default: all, 2 with random weights",
    )
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(K), help="draft lengths")
    parser.add_argument("--temperature", type=float, nargs="+", default=list(TEMPERATURES))
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--only", nargs="+", choices=KINDS, default=list(KINDS), help="only these kinds of work"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="begin nothing that would not end within these",
    )
    parser.add_argument("--report", action="store_true", help="only print the table")
    parser.add_argument("--out", type=Path, help="JSON lines, gone on with")
    options = parser.parse_args(argv)
    options.synthetic = options.synthetic_alpha if options.tiny or options.shapes else None
    options.measured = min(
        options.prompts, options.measured or (options.prompts if options.synthetic is None else 2)
    )
    return options


def pieces(options: argparse.Namespace) -> Iterator[Piece]:
    """Texts, single steps, then the runs with the visits of timing spread among them. Acceptance by
    chance needs no text."""
    if options.synthetic is None:
        for first in range(0, options.prompts, TOGETHER):
            for temperature in options.temperature:
                for place in range(len(WORKLOADS)):
                    yield Piece("text", temperature, place * options.prompts + first)
    yield Piece("steps", 0.0, 0)
    runs = [
        Piece("run", temperature, place * options.prompts + number)
        for number in range(options.measured)
        for temperature in options.temperature
        for place in range(len(WORKLOADS))
    ]
    for place, piece in enumerate(runs):
        if place % -(-len(runs) // VISITS) == 0:
            yield Piece("costs", options.temperature[0], place)
        yield piece


def about(line: Line) -> Piece:
    return Piece(line["kind"], line["temperature"], line["number"])


class Work:
    """Both models, loaded once, and what is done with them. longest: seconds of the longest piece
    of each kind."""

    def __init__(self, options: argparse.Namespace) -> None:
        from draftproof.decode.config import SpeculativeConfig
        from draftproof.plan.candidate import Candidate
        from draftproof.report.provenance import provenance

        self.options = options
        self.target, self.draft = models(options)
        self.prompts = prompts_of(options, self.target)
        self.candidate = Candidate(
            SpeculativeConfig.from_dict({"method": "draft_model", "model": "draft"}), self.draft
        )
        where = provenance(self.target, seed=1)
        kept = (
            "torch",
            "transformers",
            "processor",
            "gpu",
            "cpus",
            "threads",
            "dtype",
            "commit",
            "target",
        )
        self.where = {key: where[key] for key in kept} | {"target": Path(where["target"]).name}
        self.longest: dict[str, float] = {}
        self.warm = False

    def params(self, temperature: float, seed: int, tokens: int | None = None) -> Any:
        from draftproof import SamplingParams

        return SamplingParams(
            temperature=temperature,
            max_tokens=tokens or self.options.tokens,
            ignore_eos=True,
            seed=seed,
        )

    def lines(self, piece: Piece) -> list[Line]:
        made = {"text": self.texts, "steps": self.steps, "costs": self.costs, "run": self.runs}[
            piece.kind
        ]
        return made(piece)

    def texts(self, piece: Piece) -> list[Line]:
        """Answers of a few prompts, read by both models: overlap and chance of acceptance by
        position."""
        from draftproof.plan.acceptance import Judge
        from draftproof.plan.forcing import force, write_texts

        params = self.params(piece.temperature, 1001 + piece.number)
        last = (piece.number // self.options.prompts + 1) * self.options.prompts
        chosen = self.prompts[piece.number : min(piece.number + TOGETHER, last)]
        texts = write_texts(self.target, chosen, params)
        forced = force(
            self.target, self.draft, texts, params, [Judge("token", fixed=piece.temperature == 0)]
        )
        numbers = range(piece.number, piece.number + len(chosen))
        return [
            {
                "prompt": n,
                "answer": list(text.answer),
                "overlaps": f.overlaps,
                "coins": [row[0] for row in f.chances],
            }
            for n, text, f in zip(numbers, texts, forced, strict=True)
        ]

    def steps(self, piece: Piece) -> list[Line]:
        """Seconds of 100 cached single-token steps of each model."""
        from draftproof.costs.pass_timer import PassTimer

        found = {}
        for role, model in (("target", self.target), ("draft", self.draft)):
            timer = PassTimer(model, self.prompts[0], [1])
            found[role] = list(timer.visit(turns=STEPS).target[1])
            timer.close()
        return [found | {"provenance": self.where}]

    def costs(self, piece: Piece) -> list[Line]:
        """One visit: passes of every length the drafts lead to, and what real rounds spend outside
        forwards."""
        from draftproof.costs.pass_timer import PassTimer, pass_lengths
        from draftproof.plan.candidate import time_outside

        longest = max(self.options.lengths)
        context = (self.prompts[0] * 100)[
            : int(median(map(len, self.prompts))) + self.options.tokens // 2
        ]
        timer = PassTimer(self.target, context, pass_lengths(longest + 1), self.draft)
        passes = timer.visit()
        timer.close()
        decoder = self.candidate.decoder(self.target)
        tries = sorted({min(self.options.lengths), longest})
        outside = time_outside(
            decoder, self.prompts[0], self.params(piece.temperature, 1), tries, tokens=8
        )
        times = {str(n): list(t) for n, t in passes.target.items()}
        pairs = {"draft": list(passes.draft[1]), "draft_pairs": list(passes.draft[2])}
        return [
            {
                "context": passes.context,
                "target": times,
                "outside": vars(outside),
                "provenance": self.where,
            }
            | pairs
        ]

    def runs(self, piece: Piece) -> list[Line]:
        """One prompt through plain decoding, ours and transformers' assisted generation at every
        length."""
        from draftproof.bench.run import order_of

        arms = self.arms(piece.temperature)
        if not self.warm:
            self.warm = True
            for arm, _ in arms:
                arm.run(self.prompts[piece.number], self.params(piece.temperature, 1, 4))
        params, found = self.params(piece.temperature, 1 + piece.number), []
        for arm, k in order_of(arms, piece.number % self.options.prompts):
            run = arm.run(self.prompts[piece.number], params)
            chunks = [[c.seconds, c.num_tokens] for c in run.chunks]
            found.append(
                {
                    "arm": arm.name.split(" ")[0],
                    "k": k,
                    "chunks": chunks,
                    "num_rounds": run.num_rounds,
                }
            )
        return [line | {"provenance": self.where} for line in found]

    def arms(self, temperature: float) -> list[Any]:
        """(arm, draft length)"""
        from draftproof import SpeculativeDecoder
        from draftproof.bench.arms import PLAIN, OurArm
        from draftproof.bench.hf_arms import HFArm
        from draftproof.bench.synthetic import make_synthetic

        synthetic = self.options.synthetic
        made: list[Any] = [
            (OurArm(PLAIN, SpeculativeDecoder(None, self.target, self.target.tokenizer).plain), 0)
        ]
        for k in self.options.lengths:
            config = {"num_speculative_tokens": k}
            decoder = SpeculativeDecoder(
                self.draft, self.target, self.target.tokenizer, speculative_config=config
            )
            if synthetic is None:
                made += [
                    (OurArm("ours", decoder), k),
                    (HFArm("assisted", self.target, draft=self.draft, length=k), k),
                ]
            else:
                made.append(
                    (OurArm("ours", make_synthetic(decoder, (synthetic,), temperature == 0)), k)
                )
        return made


def models(options: argparse.Namespace) -> tuple[Any, Any]:
    """Target and draft model: loaded, or made from shapes with random weights."""
    import torch

    from draftproof.models.load import load_model

    if options.threads:
        torch.set_num_threads(options.threads)
    if options.tiny:
        return random_model("tiny", "cpu", "float32", 512), random_model(
            "tinier", "cpu", "float32", 512
        )
    if options.shapes:
        device = "cuda" if options.device == "auto" else options.device
        return random_model("1.5B", device, "bfloat16", 151936), random_model(
            "0.5B", device, "bfloat16", 151936
        )
    target, draft = (
        str(Path(n).expanduser()) if n.startswith("~") else n
        for n in (options.target, options.draft)
    )
    return tuple(load_model(n, dtype=options.dtype, device=options.device) for n in (target, draft))  # type: ignore[return-value]


def random_model(shape: str, device: str, dtype: str, vocab_size: int) -> Any:
    """A Qwen2 model with random weights: for costs, which do not depend on them."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from draftproof.models.hf import HFModel

    special: dict[str, Any] = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
    config = Qwen2Config(
        vocab_size=vocab_size, max_position_embeddings=4096, **special, **SHAPES[shape]
    )
    torch.manual_seed(0)
    with torch.device(device):
        module = Qwen2ForCausalLM(config).to(getattr(torch, dtype))
    return HFModel(module, name=f"random {shape}")


def prompts_of(options: argparse.Namespace, target: Any) -> list[tuple[int, ...]]:
    """Token ids of so many prompts of code, then of chat. Random models read numbers instead of
    words."""
    from draftproof.decode.prompts import prompt_ids

    if target.tokenizer is None:
        count = len(WORKLOADS) * options.prompts
        return [
            tuple((i * 37 + j * 11) % target.vocab_size for j in range(24)) for i in range(count)
        ]
    asked = [
        (ASKED[name][0], what)
        for name in WORKLOADS
        for what in ASKED[name][1 : 1 + options.prompts]
    ]
    chats = [[{"role": "user", "content": form.format(what)}] for form, what in asked]
    return [prompt_ids(chat, target.tokenizer, target.vocab_size) for chat in chats]


if __name__ == "__main__":
    sys.exit(main())
