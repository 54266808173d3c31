"""Tokens per round of drafters by replay of one recording: no timing; no model needed for methods
that draft from tokens alone.

    python benchmarks/drafters_by_replay.py record --target MODEL --out recording.jsonl
    python benchmarks/drafters_by_replay.py read recording.jsonl --target MODEL --out read.jsonl
        --config JSON --config JSON ...
    python benchmarks/drafters_by_replay.py report recording.jsonl [read.jsonl]
    python benchmarks/drafters_by_replay.py costs --target MODEL --config JSON --out costs.json
    python benchmarks/drafters_by_replay.py choose recording.jsonl --target MODEL --costs costs.json
        --config NAME=JSON ...

`record` lets the target write the answers, greedy and at T = 0.7, with its best ids at every
position, one JSON line an answer (a run goes on with the tasks its file lacks). `report` replays
every method over the answers through the drafters' own code. A fixed draft is accepted exactly
where it is the text, whatever the temperature, because `match` emits the text of plain decoding for
the seed. `read` has drafters that run a model read the answers, as `draftproof plan` does, and
writes the expected rounds at each draft length, a line for every answer and configuration (a run
goes on with what its file lacks). `costs` measures the table that `choose` reckons times with; run
it with nothing else on the machine.

A cell holds tokens a round (the round that reads the prompt included) with a bootstrap interval
over prompts (10,000 resamples, fixed seed, 90%), and drafted tokens a round, which the target has
to read. Three prompts a cell say little, and it shows."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from raw_lines import append, read, read_if_there

PROMPTS = Path(__file__).parent / "prompts" / "four_tasks.jsonl"
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "T=0.7": {"temperature": 0.7},
}
NEW_TOKENS = 48
TOP_IDS = 8


def record(args: argparse.Namespace) -> None:
    """Write the answers that `args.out` does not have yet, one task at a time, in both settings
    side by side."""
    import torch

    from draftproof import SamplingParams, SpeculativeDecoder
    from draftproof.models.load import load_model
    from draftproof.workloads.prompt_files import choose, encode, read_items

    torch.set_num_threads(args.threads)
    settings = args.setting or list(SETTINGS)
    done = {line["task"] for line in read_if_there(args.out)}
    target = load_model(args.target, dtype=args.dtype)
    plain = SpeculativeDecoder(None, target, target.tokenizer).plain
    items = encode(
        choose(read_items(args.prompts), args.per_workload),
        target.tokenizer,
        target.vocab_size,
        target.max_length,
        args.tokens,
    )
    for task in dict.fromkeys(item.item.workload for item in items):
        if task in done:
            continue
        began = time.monotonic()
        asked = [
            (number, item.ids, name)
            for number, item in enumerate(_of(items, task), start=1)
            for name in settings
        ]
        params = [
            SamplingParams(max_tokens=args.tokens, seed=number, logprobs=TOP_IDS, **SETTINGS[name])
            for number, _, name in asked
        ]
        results = plain.generate([list(ids) for _, ids, _ in asked], params, batch_size=len(asked))
        lines = []
        for (number, ids, name), result in zip(asked, results, strict=True):
            top = [[token for token, _ in entry.top] for entry in result.logprobs]
            texts = {"prompt": list(ids), "answer": list(result.token_ids), "top_ids": top}
            about = {
                "task": task,
                "number": number,
                "setting": name,
                "target": Path(args.target).name,
                "dtype": args.dtype,
            }
            lines.append(about | texts)
        append(args.out, *lines)
        print(
            (
                f"{task}: {sum(len(line['answer']) for line in lines)} tokens in "
                f"{time.monotonic() - began:.0f} s"
            ),
            flush=True,
        )


def _of(items: Any, task: str) -> list[Any]:
    return [item for item in items if item.item.workload == task]


def report(args: argparse.Namespace) -> None:
    """A table of tokens a round (and tokens the target reads a round) by method, task and
    setting."""
    lines = read(args.recording)
    cells = [
        (task, setting)
        for task in dict.fromkeys(line["task"] for line in lines)
        for setting in SETTINGS
    ]
    print("| method | " + " | ".join(f"{task}, {setting}" for task, setting in cells) + " |")
    print("|---" * (len(cells) + 1) + "|")
    for method in (*replayable_methods(), "recycling"):
        shown = []
        for task, setting in cells:
            own = [line for line in lines if (line["task"], line["setting"]) == (task, setting)]
            played = [
                recycled(line) if method == "recycling" else replayed(method, line) for line in own
            ]
            drafted = sum(nodes for *_, nodes in played) / sum(rounds for _, rounds, _ in played)
            shown.append(
                f"{_cell([(tokens, rounds) for tokens, rounds, _ in played])}, {drafted:.1f}"
            )
        print(f"| {method} | " + " | ".join(shown) + " |")
    for (name, length), found in of_models(args.read).items():
        shown = []
        for task, setting in cells:
            own = [line for line in found if (line["task"], line["setting"]) == (task, setting)]
            shown.append(_cell([(line["tokens"], line["rounds"]) for line in own]) if own else "")
        print(f"| {name}, {length} | " + " | ".join(shown) + " |")


def _cell(pairs: list[tuple[int, float]]) -> str:
    """Tokens a round with its interval over prompts."""
    import numpy as np

    tokens, rounds = np.asarray(pairs, float).T
    picks = np.random.default_rng(0).integers(0, len(tokens), (10_000, len(tokens)))
    low, high = np.quantile(tokens[picks].sum(1) / rounds[picks].sum(1), [0.05, 0.95])
    return f"{tokens.sum() / rounds.sum():.2f} ({low:.2f} to {high:.2f})"


def of_models(path: Path | None) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Lines that `read` wrote, by configuration and draft length, one of them for each length."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in [] if path is None else read(path):
        for length, rounds in line["rounds"].items():
            found.setdefault((line["name"], int(length)), []).append(line | {"rounds": rounds})
    return found


def read_by_models(args: argparse.Namespace) -> None:
    """Have every configuration read the answers that `args.out` does not have of it yet."""
    import torch

    from draftproof.core.params import SamplingParams
    from draftproof.decode.config import SpeculativeConfig
    from draftproof.models.load import load_model
    from draftproof.plan.candidate import Candidate
    from draftproof.plan.forcing import Text
    from draftproof.plan.rounds import expect

    torch.set_num_threads(args.threads)
    lines = read(args.recording)
    target = load_model(args.target, dtype=lines[0]["dtype"])
    done = {
        (line["name"], line["task"], line["setting"], line["number"])
        for line in read_if_there(args.out)
    }
    for name, given in (one.split("=", 1) for one in args.config):
        config = SpeculativeConfig.from_dict(json.loads(given))
        draft = (
            load_model(config.model, dtype=lines[0]["dtype"])
            if config.spec.model == "draft"
            else None
        )
        candidate = Candidate(config, draft)
        for line in lines:
            about = {key: line[key] for key in ("task", "setting", "number")}
            if (name, *about.values()) in done:
                continue
            text = Text(tuple(line["prompt"]), tuple(line["answer"]))
            params = SamplingParams(**SETTINGS[line["setting"]])
            readings = candidate.read(
                target, [text], params, max(args.length), lambda what, at, total: None
            )
            rounds = {
                length: expect(readings.chains(length)[0], length).num_rounds
                for length in args.length
            }
            append(
                args.out, {"name": name} | about | {"tokens": len(text.answer), "rounds": rounds}
            )
            print(name, *about.values(), flush=True)


def costs(args: argparse.Namespace) -> None:
    """Measure passes and drafters of a configuration on this machine, and write the table."""
    import torch

    from draftproof import SpeculativeDecoder
    from draftproof.decode.measured_costs import measured_costs

    torch.set_num_threads(args.threads)
    decoder = SpeculativeDecoder.from_pretrained(
        args.target,
        dtype=args.dtype,
        engine=args.engine,
        speculative_config=json.loads(args.config),
    )
    found = measured_costs(decoder.target, decoder.drafter, decoder.config.num_speculative_tokens)
    table = {name: cost.as_dict() for name, cost in found.items()}
    args.out.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def choose(args: argparse.Namespace) -> None:
    """Times over plain decoding's of every configuration on the greedy answers, by task, all on one
    table of costs."""
    import torch

    from draftproof.core.params import SamplingParams
    from draftproof.decode.build import make_drafter
    from draftproof.decode.controllers import length_controller
    from draftproof.models.load import load_model
    from draftproof.plan.choosing import walk
    from draftproof.plan.forcing import Text

    torch.set_num_threads(args.threads)
    lines = [line for line in read(args.recording) if line["setting"] == "greedy"]
    target = load_model(args.target, dtype=lines[0]["dtype"])
    costs = json.loads(args.costs.read_text(encoding="utf-8"))
    params = SamplingParams(temperature=0)
    for name, given in (one.split("=", 1) for one in args.config):
        settings = {"adaptive": "survival", "auto_off": True, "costs": costs} | json.loads(given)
        config, drafter = make_drafter(None, settings, target, target.tokenizer, None)
        assert drafter is not None
        spent: dict[str, list[float]] = {}
        for line in lines:
            controller = length_controller(config, drafter)
            assert controller is not None
            text = Text(tuple(line["prompt"]), tuple(line["answer"]))
            walked = walk(
                drafter,
                controller,
                target,
                text,
                params,
                config.num_speculative_tokens,
                args.tokens,
            )
            times = spent.setdefault(line["task"], [0.0, 0.0])
            times[0] += len(text.answer)
            times[1] += sum(walked.times)
        print(
            name,
            {task: round(tokens / time, 3) for task, (tokens, time) in spent.items()},
            flush=True,
        )


def replayable_methods() -> list[str]:
    """Every method of the list that drafts from tokens alone and needs no file."""
    from draftproof.drafters.registry import METHODS

    return [name for name, method in METHODS.items() if method.replayable and not method.requires]


def replayed(method: str, line: dict[str, Any]) -> tuple[int, int, int]:
    """(tokens, rounds, drafted tokens) of one answer, round by round as decoding would go through
    it."""
    from draftproof.core.params import SamplingParams
    from draftproof.decode.build import make_drafter
    from draftproof.models.table import TableModel
    from draftproof.plan.forcing import Text
    from draftproof.plan.replay import replay

    size = 1 + max(*line["prompt"], *line["answer"])
    target = TableModel(lambda prefix: [1.0], vocab_size=size, name="recorded")
    config, drafter = make_drafter(None, {"method": method}, target, None, None)
    assert drafter is not None
    longest = config.num_speculative_tokens
    trace = replay(
        drafter,
        target,
        Text(tuple(line["prompt"]), tuple(line["answer"])),
        SamplingParams(),
        longest,
    )
    at = rounds = nodes = 0
    while at < len(line["answer"]):
        nodes += int(trace.drafted[at])
        at += 1 + int(trace.accept[at].sum())
        rounds += 1
    return len(line["answer"]), rounds, nodes


def recycled(line: dict[str, Any]) -> tuple[int, int, int]:
    """The same for `recycling`, whose table is fed with the recorded best ids after every token of
    the text. In a real run the rows of rejected drafts feed it too, so this is a little less than
    it would reach."""
    import numpy as np

    from draftproof.core.chance import KeyedChance
    from draftproof.core.params import SamplingParams
    from draftproof.core.pipeline import LawPipeline
    from draftproof.core.records import ROOT, Observation
    from draftproof.drafters.builder import DraftBuilder
    from draftproof.drafters.protocol import Request
    from draftproof.drafters.recycling import Recycling
    from draftproof.models.table import TableModel

    prompt, answer, top = line["prompt"], line["answer"], line["top_ids"]
    size = 1 + max(*prompt, *answer, *(token for row in top for token in row))
    params = SamplingParams()
    laws = LawPipeline(params, num_prompt_tokens=len(prompt), vocab_size=size)
    drafter = Recycling()
    session = drafter.open(
        Request(tuple(prompt), params, laws, TableModel(lambda prefix: [1.0], vocab_size=size))
    )
    at = rounds = nodes = 0
    while at < len(answer):
        context = [*prompt, *answer[:at]]
        draft = DraftBuilder(
            KeyedChance((0, 0), len(context)),
            depth=len(answer) - at - 1,
            vocab_size=size,
            max_nodes=len(drafter.tree),
        )
        if draft.room > 0:
            session.propose(context, draft)
        built, node, hits = draft.build(), ROOT, 0
        while (
            hits < len(answer) - at and (child := built.child(node, answer[at + hits])) is not None
        ):
            node, hits = child, hits + 1
        read = [context[-1], *answer[at : at + hits]]
        session.observe(
            Observation(
                len(context) - 1,
                read,
                row_tokens=read,
                top_ids=np.asarray(top[at : at + len(read)]),
            )
        )
        nodes, rounds, at = nodes + len(built), rounds + 1, at + hits + 1
    return len(answer), rounds, nodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="let the target write the answers")
    recording.add_argument("--target", required=True)
    recording.add_argument("--out", type=Path, required=True)
    recording.add_argument("--prompts", type=Path, default=PROMPTS)
    recording.add_argument("--tokens", type=int, default=NEW_TOKENS)
    recording.add_argument("--dtype", default="bfloat16")
    recording.add_argument("--threads", type=int, default=1)
    recording.add_argument(
        "--setting", action="append", choices=list(SETTINGS), help="both by default"
    )
    recording.add_argument("--per-workload", type=int)
    reporting = verbs.add_parser("report", help="replay every method over the answers")
    reporting.add_argument("recording", type=Path)
    reporting.add_argument("read", type=Path, nargs="?")
    reading = verbs.add_parser("read", help="have drafters that run a model read the answers")
    reading.add_argument("recording", type=Path)
    reading.add_argument("--target", required=True)
    reading.add_argument("--out", type=Path, required=True)
    reading.add_argument("--config", metavar="NAME=JSON", action="append", required=True)
    reading.add_argument("--length", type=int, action="append", default=None)
    reading.add_argument("--threads", type=int, default=1)
    timing = verbs.add_parser("costs", help="measure the table of costs of a configuration")
    timing.add_argument("--target", required=True)
    timing.add_argument("--config", metavar="JSON", required=True)
    timing.add_argument("--out", type=Path, required=True)
    timing.add_argument("--dtype", default="bfloat16")
    timing.add_argument("--engine", default="torch")
    timing.add_argument("--threads", type=int, default=2)
    choosing = verbs.add_parser(
        "choose", help="lengths that adapt and drafters that are chosen, on one table of costs"
    )
    choosing.add_argument("recording", type=Path)
    choosing.add_argument("--target", required=True)
    choosing.add_argument(
        "--costs",
        type=Path,
        required=True,
        help="JSON: a table by drafter, as speculative_config has it",
    )
    choosing.add_argument("--config", metavar="NAME=JSON", action="append", required=True)
    choosing.add_argument(
        "--tokens", type=int, default=NEW_TOKENS, help="the limit the answers were written under"
    )
    choosing.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.verb == "read":
        args.length = args.length or [1, 2, 4, 8]
    {"record": record, "read": read_by_models, "report": report, "costs": costs, "choose": choose}[
        args.verb
    ](args)


if __name__ == "__main__":
    main()
