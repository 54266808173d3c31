"""Predicted against measured speedup, cell by cell: three pairs x two workloads x two temperatures
x four draft lengths.

    python benchmarks/predicted_vs_measured.py --out raw.jsonl --only text    untimed
    python benchmarks/predicted_vs_measured.py --out raw.jsonl --seconds 240  alone; again to go on
    python benchmarks/predicted_table.py raw.jsonl --out table.md           predict, and compare

Every line of --out is one finished piece of work, and a run goes on after the pieces its file has.
Kinds: `text` (an answer of the target and how a drafter would have done on it), `costs` (timed
passes and rounds) and `run` (one prompt through one arm). All arms of a prompt are run in one
piece, plain decoding among them, in an order that alternates. Planned answers have other seeds than
measured ones. Groups whose interval came out wide have a second wave, set down before any of it was
run (MORE in predicted_work.py): further prompts, further planned answers, and visits of timing in
between.

The weak draft is the target's own first layers with its norm and output layer, untrained: there the
right answer is "don't"."""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from predicted_work import PAIRS, WORKLOADS, Budget, K, Line, Log, Piece, pieces, planned

TRIED = {("code-editing", 0.0), ("chat", 0.7)}
"""Groups in which rounds of the slow pair are tried; those of the quick ones are tried in every
group."""
TOKENS = 48
PLAN_SEED, RUN_SEED = 1001, 1
EDITS = (
    "Add a comment above every loop",
    "Rename the function to `work`",
    "Put an empty line before every `return`",
    "Raise a TypeError when the first parameter is None",
    "Print the name of the function when it is called",
    "Return a tuple of the result and the number of parameters",
)
"""What is asked of the built-in functions once every built-in prompt of code was used."""
QUESTIONS = (
    "What should I think about before I adopt a dog?",
    "Explain how vaccines work to a ten-year-old.",
    "Give me a plan for learning the guitar in three months.",
    "Why do some countries drive on the left side of the road?",
)
"""What is asked once every built-in question of chat was used."""
WEAK_LAYERS = 8


def main() -> int:
    options = arguments()
    log = Log(options.out)
    budget = Budget(options.seconds)
    for pair in options.pair or PAIRS:
        todo = [
            piece for piece in pieces(pair) if piece.kind in options.only and not log.has(piece)
        ]
        if not todo:
            continue
        bench = Bench(pair, options)
        for piece in todo:
            if not budget.fits(piece):
                print("time is used up; run again to go on", file=sys.stderr)
                return 3
            began = time.monotonic()
            log.add(*bench.lines(piece, log))
            budget.took(piece, time.monotonic() - began)
            print(f"{piece} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, gone on with")
    parser.add_argument(
        "--only", nargs="*", choices=("text", "costs", "run"), default=("text", "costs", "run")
    )
    parser.add_argument("--pair", action="append", choices=tuple(PAIRS))
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="begin nothing that would not end within these",
    )
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--smollm2", default="smollm2-135m-instruct")
    parser.add_argument(
        "--qwen-target", default="~/.cache/draftproof/models/qwen2.5-coder-1.5b-instruct.gguf"
    )
    parser.add_argument(
        "--qwen-draft", default="~/.cache/draftproof/models/qwen2.5-coder-0.5b-instruct.gguf"
    )
    return parser.parse_args()


class Bench:
    """A pair, loaded once."""

    def __init__(self, pair: str, options: argparse.Namespace) -> None:
        from draftproof import SpeculativeDecoder
        from draftproof.bench.arms import PLAIN, OurArm
        from draftproof.report.provenance import provenance

        self.pair = pair
        self.target, self.draft, self.config = load(pair, options)
        decoders = {
            k: SpeculativeDecoder(
                self.draft,
                self.target,
                self.target.tokenizer,
                speculative_config=self.config | {"num_speculative_tokens": k},
            )
            for k in K
        }
        self.decoders = decoders
        plain: Any = OurArm(PLAIN, decoders[K[0]].plain)
        self.arms = [plain, *(OurArm(f"k={k}", decoder) for k, decoder in decoders.items())]
        where = provenance(self.target, seed=RUN_SEED)
        kept = ("torch", "transformers", "processor", "cpus", "threads", "dtype", "commit")
        self.where = {key: where[key] for key in kept}
        self._prompts: dict[str, list[tuple[int, ...]]] = {}
        self.warm = False

    def prompts(self, workload: str) -> list[tuple[int, ...]]:
        """All prompts there are of a workload; the first wave uses the first few."""
        from draftproof.workloads.prompt_files import encode

        if workload not in self._prompts:
            items = prompt_items(workload)
            target = self.target
            found = encode(items, target.tokenizer, target.vocab_size, target.max_length, TOKENS)
            self._prompts[workload] = [encoded.ids for encoded in found]
        return self._prompts[workload]

    def lines(self, piece: Piece, log: Log) -> Iterator[Line]:
        """The raw lines of one piece."""
        if piece.kind != "text" and not self.warm:
            self.warm_up()
        made = {"text": self.texts, "costs": self.costs, "run": self.runs}[piece.kind]
        for line in made(piece, log):
            yield vars(piece) | line

    def warm_up(self) -> None:
        self.warm = True
        for arm in (self.arms[0], self.arms[-1]):
            arm.run(self.prompts(WORKLOADS[0])[0][:24], parameters(0.7, 10))

    def texts(self, piece: Piece, log: Log) -> Iterator[Line]:
        """All planned answers of a group, and what the drafter would have done on each."""
        from draftproof.plan.acceptance import Judge
        from draftproof.plan.forcing import force, write_texts
        from draftproof.plan.replay import replay

        params = replace(parameters(piece.temperature), seed=PLAN_SEED)
        if piece.prompt >= 0:  # of the second wave: seeds that no other text has
            params = replace(params, seed=PLAN_SEED + 1000 * (1 + piece.prompt))
        prompts, (chosen, each) = self.prompts(piece.workload), planned(piece)
        ids = [prompts[number] for number in chosen for _ in range(each)]
        texts = self.known_texts(piece, log, ids) or write_texts(self.target, ids, params)
        if self.draft is not None:
            forced = force(
                self.target,
                self.draft,
                texts,
                params,
                [Judge("token", fixed=piece.temperature == 0)],
            )
            drafted = [
                {"coins": [row[0] for row in f.chances], "overlaps": f.overlaps} for f in forced
            ]
        else:
            drafter = self.decoders[max(K)].drafter
            traces = [replay(drafter, self.target, text, params, max(K)) for text in texts]
            drafted = [
                {"hits": t.accept.sum(axis=1).astype(int).tolist(), "drafted": t.drafted.tolist()}
                for t in traces
            ]
        there = {line["number"] for line in log.of(piece)}  # of a piece that had fewer prompts then
        for number, (text, found) in enumerate(zip(texts, drafted, strict=True)):
            if number in there:
                continue
            yield {
                "number": number,
                "of_prompt": chosen[number // each],
                "answer": list(text.answer),
            } | found

    def known_texts(self, piece: Piece, log: Log, ids: list[tuple[int, ...]]) -> Any:
        """The answers of the same target that another pair's planning wrote; None when there are
        none."""
        from draftproof.plan.forcing import Text

        if "smollm2" not in self.pair or piece.prompt >= 0:
            return None
        other = next(name for name in PAIRS if "smollm2" in name and name != self.pair)
        found = sorted(log.of(replace(piece, pair=other)), key=lambda line: line["number"])
        if len(found) < len(ids):
            return None
        return [
            Text(prompt, tuple(line["answer"])) for prompt, line in zip(ids, found, strict=True)
        ]

    def costs(self, piece: Piece, log: Log) -> Iterator[Line]:
        """One visit of timed passes at the median context, and real rounds on one prompt."""
        from draftproof.costs.pass_timer import PassTimer, pass_lengths

        prompts = self.prompts(piece.workload)[: PAIRS[self.pair]]
        nearest = sorted(prompts, key=len)[len(prompts) // 2]
        texts = log.of(replace(piece, kind="text", prompt=-1))
        answer = next(line["answer"] for line in texts if prompts[line["of_prompt"]] == nearest)
        context = (*nearest, *answer[: TOKENS // 2])
        timer = PassTimer(self.target, context, pass_lengths(max(K) + 1), self.draft)
        passes = timer.visit(turns=7)
        timer.close()
        params = replace(parameters(piece.temperature), seed=PLAN_SEED)
        tries = not self.pair.startswith("qwen") or (piece.workload, piece.temperature) in TRIED
        tried = {"plain": (self.arms[0].decoder, 12)} | {
            str(k): (self.decoders[k], max(12, 2 * k + 2)) for k in (1, 4, 8)
        }
        rounds = {
            name: [
                round_line(r)
                for r in decoder.generate(nearest, replace(params, max_tokens=tokens)).rounds
            ]
            for name, (decoder, tokens) in tried.items()
            if tries
        }
        yield {
            "context": passes.context,
            "target": {str(n): list(times) for n, times in passes.target.items()},
            "draft": list(passes.draft[1]),
            "draft_pairs": list(passes.draft[2]),
            "rounds": rounds,
            "provenance": self.where,
        }

    def runs(self, piece: Piece, log: Log) -> Iterator[Line]:
        """One prompt through every arm."""
        from draftproof.bench.hygiene import calibration_pass
        from draftproof.bench.run import order_of

        params = replace(parameters(piece.temperature), seed=RUN_SEED + piece.prompt)
        found = []
        calibration = calibration_pass()
        for order, arm in enumerate(order_of(self.arms, piece.prompt)):
            run = arm.run(self.prompts(piece.workload)[piece.prompt], params)
            found.append(
                {
                    "arm": arm.name,
                    "order": order,
                    "seconds": run.seconds,
                    "chunks": [[c.seconds, c.num_tokens] for c in run.chunks],
                    "rounds": [round_line(r) for r in run.rounds],
                    "token_ids": list(run.token_ids),
                    "calibration": calibration,
                    "provenance": self.where,
                }
            )
        yield from found


def prompt_items(workload: str) -> list[Any]:
    """The built-in prompts and further questions, or for code the built-in functions with other
    instructions."""
    from draftproof.workloads.prompt_files import builtin_items

    items = builtin_items([workload])
    if workload != "code-editing":
        return items + [
            replace(items[0], prompt=[{"role": "user", "content": question}])
            for question in QUESTIONS
        ]
    texts = [item.prompt[0]["content"] for item in items]
    rest = [text[text.index(" in the function below.") :] for text in texts]
    return items + [
        replace(items[0], prompt=[{"role": "user", "content": edit + end}])
        for edit in EDITS
        for end in rest
    ]


def round_line(record: Any) -> list[Any]:
    """[drafts, accepted, emitted, draft s, draft forwards s, verify s, rest s, whether it read the
    prompt]."""
    s = record.seconds
    counts = [len(record.draft_tokens), record.num_accepted_tokens, len(record.tokens)]
    return [*counts, s.draft, s.draft_forward, s.verify, s.rest, record.reads_prompt]


def parameters(temperature: float, tokens: int = TOKENS) -> Any:
    from draftproof import SamplingParams

    return SamplingParams(temperature=temperature, max_tokens=tokens, ignore_eos=True, seed=0)


def load(pair: str, options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """The target, the draft model (None for ngram), and the drafter's config."""
    import torch

    from draftproof.models.hf import HFModel
    from draftproof.models.load import load_model

    torch.set_num_threads(options.threads)
    if pair.startswith("qwen"):
        names = options.qwen_target, options.qwen_draft
        target, draft = (
            load_model(str(Path(name).expanduser()), dtype=options.dtype) for name in names
        )
        return target, draft, {"method": "draft_model", "model": "0.5B"}
    target = load_model(options.smollm2, dtype=options.dtype)
    if pair == "smollm2+ngram":
        return target, None, {"method": "ngram"}
    draft = HFModel(first_layers(target.module, WEAK_LAYERS), target.tokenizer)
    return target, draft, {"method": "draft_model", "model": f"first {WEAK_LAYERS} layers"}


def first_layers(module: Any, count: int) -> Any:
    """The same model with its first `count` layers only; weights are shared, nothing is copied."""
    config = copy.deepcopy(module.config)
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    import torch

    with torch.device("meta"):
        small = type(module)(config)
    state = {
        name: tensor
        for name, tensor in module.state_dict(keep_vars=True).items()
        if name in small.state_dict()
    }
    small.load_state_dict(state, assign=True)
    small.model.rotary_emb = module.model.rotary_emb
    small.generation_config = copy.deepcopy(module.generation_config)
    return small.eval()


if __name__ == "__main__":
    sys.exit(main())
