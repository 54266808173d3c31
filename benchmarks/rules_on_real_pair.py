"""Every verification rule on the same drafts of a real pair, scored by its exact expectation.

    python benchmarks/rules_on_real_pair.py record --target TARGET --draft DRAFT --rows FOLDER
    python benchmarks/rules_on_real_pair.py score --rows FOLDER --out
        benchmarks/results/rules_qwen.jsonl
    python benchmarks/rules_on_real_pair.py report benchmarks/results/rules_qwen.jsonl
    python benchmarks/rules_on_real_pair.py confirm --rows FOLDER
    python benchmarks/rules_on_real_pair.py best benchmarks/results/rules_times.json --rows FOLDER

`record` drafts chains and trees at the places where rounds begin and keeps every row of logits of
draft and target, about 20 MB a round: FOLDER is best outside the repository; a round that is there
already is not repeated. All drafts of a round share what they can: the first child of a node is one
draw, whatever the shape; the further ones differ by how siblings come about. The text goes on with
what the rule `token` makes of the sampled chain: rounds begin where they really would.

`score` hands every rule the recorded drafts and rows, walks every outcome of its coins, and writes
the expected number of emitted tokens: no coin of a rule is ever tossed. Rules are therefore
compared on equal terms, round by round. `gumbel` draws drafts by noise that the target shares:
given the drafts, the chance that the target picks a drafted token is a closed form for a chain and
a mean over NOISE_DRAWS arrival times for siblings. `confirm` tosses the coins of one cell after
all. `best` looks for the fastest tree by the acceptance vector at the beginnings of rounds and the
times of passes that rules_times.py took."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from raw_lines import append, read, read_if_there
from real_models import chat_ids
from rules_scoring import (
    ARMS,
    CHAIN,
    TREES,
    Held,
    acceptance_by_place,
    expected_tokens,
    held_draft,
    row_laws,
    score_round,
    siblings,
)
from rules_texts import texts

from draftproof import SamplingParams
from draftproof.core.best_tree import BestTree, best_tree, expected_tokens_of_shape
from draftproof.core.chance import KeyedChance, stream_key
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Draft
from draftproof.core.rules import RULES
from draftproof.core.tree import TreeShape, tree_text
from draftproof.costs.verify_curve import VerifyCurve
from draftproof.models.load import load_model
from draftproof.models.protocol import Step, extend
from draftproof.models.vocabulary import align_logits
from draftproof.report.bootstrap import resampled

TEMPERATURES = (0.7, 1.0)
SAMPLES = 200
WIDTH = 3
"""Most siblings of the best tree that is looked for."""
Path_ = tuple[int, ...]


def params(temperature: float) -> SamplingParams:
    """End tokens are banned, so that every round has room for a whole draft."""
    return SamplingParams(temperature=temperature, max_tokens=10_000, min_tokens=10_000)


def pipeline(temperature: float, vocab_size: int, ends: tuple[int, ...]) -> LawPipeline:
    return LawPipeline(
        params(temperature), num_prompt_tokens=1, vocab_size=vocab_size, eos_token_ids=ends
    )


class Recorder:
    """Drafts and rows of one round."""

    def __init__(self, laws: LawPipeline, key: tuple[int, ...]) -> None:
        self.laws, self.key = laws, key
        self.rows: dict[Path_, Any] = {}
        self._law: dict[Path_, Any] = {}

    def law(self, context: list[int], path: Path_) -> Any:
        if path not in self._law:
            law = np.asarray(
                self.laws.law(align_logits(self.rows[path], self.laws.vocab_size), context, path)
            )
            self._law[path] = law / law.sum()
        return self._law[path]

    def grow(self, context: list[int], session: Any) -> dict[str, Draft]:
        """All drafts, level by level: a level's rows come from one pass over what lies above it."""
        read_up_to(session, context[:-1])
        self.rows[()] = read_up_to(session, context)
        grown: dict[str, tuple[list[int], list[int], dict[int, Path_]]] = {
            name: ([], [], {ROOT: ()}) for name in ARMS
        }
        for depth in range(CHAIN):
            wanted = {
                places[node]
                for name, (_, _, places) in grown.items()
                for node in _level(ARMS[name][0], depth)
                if node in ARMS[name][0].children
            }
            self._read(
                sorted(path for path in wanted if path not in self.rows), session, len(context)
            )
            for name, (tokens, parents, places) in grown.items():
                shape, selection = ARMS[name]
                for parent in _level(shape, depth):
                    children, path = shape.children.get(parent, ()), places[parent]
                    if children:
                        uniforms = np.random.default_rng([*self.key, len(path), *path]).random(4)
                        drawn = siblings(
                            self.law(context, path), len(children), selection, uniforms
                        )
                        for child, token in zip(children, drawn, strict=True):
                            tokens.append(token)
                            parents.append(parent)
                            places[child] = (*path, token)
        return {
            name: Draft(tuple(t), tuple(p), {}, ARMS[name][1]) for name, (t, p, _) in grown.items()
        }  # type: ignore[arg-type]

    def _read(self, paths: list[Path_], session: Any, length: int) -> None:
        """Rows of the draft after `paths`, in one pass."""
        if paths:
            for path, row in tree_rows(session, length, paths).items():
                self.rows[path] = row


def _level(shape: TreeShape, depth: int) -> tuple[int, ...]:
    """The nodes `depth` levels below the root, the root at depth 0."""
    return (ROOT,) if depth == 0 else shape.levels[depth - 1] if depth <= shape.depth else ()


def tree_rows(
    session: Any, length: int, paths: list[Path_], before: tuple[int, ...] = ()
) -> dict[Path_, Any]:
    """Logits after each of `paths` below the first `length` tokens, read as one tree behind the
    unread tokens `before`; with `before` also the row after its last token, as path (). The session
    is rolled back to `length`."""
    nodes = sorted(
        {path[: n + 1] for path in paths for n in range(len(path))},
        key=lambda path: (len(path), path),
    )
    first = len(before)
    index = {path: first + i for i, path in enumerate(nodes)} | {(): first - 1}
    parents = (*range(-1, first - 1), *(index[path[:-1]] for path in nodes))
    wanted = [*([()] if before else []), *paths]
    tokens = (*before, *(path[-1] for path in nodes))
    output = extend(Step(session, tokens, parents, rows=tuple(index[path] for path in wanted)))
    session.rollback(length)
    return dict(zip(wanted, output.logits, strict=True))


def record(args: argparse.Namespace) -> None:
    target = load_model(args.target, dtype=args.dtype)
    draft = load_model(args.draft, dtype=args.dtype)
    for place, (name, text) in list(enumerate(texts().items()))[slice(*args.prompts)]:
        prompt = list(chat_ids(target.tokenizer, text))
        sessions = target.open(), draft.open()
        for temperature in TEMPERATURES:
            context = prompt
            for number in range(args.rounds):
                file = round_file(args.rows, temperature, name, number)
                if not file.exists():
                    key = (round(10 * temperature), place, number)
                    one_round(
                        sessions,
                        pipeline(temperature, target.vocab_size, target.eos_token_ids),
                        context,
                        key,
                        file,
                    )
                    print(file, flush=True)
                context = after(file)
        for session in sessions:
            session.close()


def round_file(folder: Path, temperature: float, prompt: str, number: int) -> Path:
    return folder / f"T{temperature}" / prompt.replace(" ", "_") / f"{number:03d}.npz"


def after(file: Path) -> list[int]:
    """The context of the round after the recorded one."""
    with np.load(file) as held:
        return [*held["context"].tolist(), *held["emitted"].tolist()]


def one_round(
    sessions: Any, laws: LawPipeline, context: list[int], key: tuple[int, ...], file: Path
) -> None:
    session, drafting = sessions
    recorder = Recorder(laws, key)
    drafts = recorder.grow(context, drafting)
    paths = sorted({d.tokens_to(node) for d in drafts.values() for node in range(len(d))})
    read_up_to(session, context[:-1])
    rows = tree_rows(session, len(context) - 1, paths, (context[-1],))
    chain = drafts["sampled chain"]
    emitted = go_on(chain, rows, recorder, laws, context, key)
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {
        name: {"tokens": d.tokens, "parents": d.parents, "selection": d.selection}
        for name, d in drafts.items()
    }
    partial = file.with_suffix(".part")
    with partial.open("wb") as sink:
        np.savez(
            sink,
            context=np.array(context),
            emitted=np.array(emitted),
            drafts=json.dumps(document),
            target_paths=json.dumps([list(path) for path in rows]),
            target_rows=_stored(list(rows.values())),
            draft_paths=json.dumps([list(path) for path in recorder.rows]),
            draft_rows=_stored(list(recorder.rows.values())),
        )
    partial.rename(file)


def read_up_to(session: Any, context: list[int]) -> Any:
    """Make the session hold exactly `context`; the row after it, None when there was nothing to
    read."""
    common = next(
        (i for i, (a, b) in enumerate(zip(session.tokens, context, strict=False)) if a != b),
        session.length,
    )
    session.rollback(min(common, len(context)))
    unread = context[session.length :]
    return extend(Step(session, unread, rows=(len(unread) - 1,))).logits[0] if unread else None


def go_on(
    chain: Draft,
    rows: dict[Path_, Any],
    recorder: Recorder,
    laws: LawPipeline,
    context: list[int],
    key: tuple[int, ...],
) -> list[int]:
    """The tokens that the rule `token` makes of the sampled chain: the text that the next round
    begins after."""
    drawn_from = {
        node - 1: recorder.law(context, chain.tokens_to(node - 1)) for node in range(len(chain))
    }
    held = Draft(chain.tokens, chain.parents, drawn_from, "iid")
    chance = KeyedChance(stream_key(sum(n * 1000**i for i, n in enumerate(key)), 0), len(context))

    class Rows:
        def row(self, node: int) -> Any:
            path = chain.tokens_to(node)
            return np.asarray(laws.law(rows[path], context, path))

        def draw(self, node: int, chance: Any) -> Any:
            return chance.draw_target(self.row(node), len(chain.tokens_to(node)))

    verdict = RULES["token"].verify(held, Rows(), chance)  # type: ignore[arg-type]
    return [*(chain.tokens[node] for node in verdict.path), verdict.token]


def _stored(rows: list[Any]) -> Any:
    """bf16 logits as the 16 bits they are, float32 as float32."""
    stacked = torch.stack(rows)
    return (
        stacked.view(torch.uint16).numpy()
        if stacked.dtype == torch.bfloat16
        else stacked.float().numpy()
    )


def score(args: argparse.Namespace) -> None:
    """Append the scores of rounds that are not in `args.out` yet."""
    done = {(run["temperature"], run["prompt"], run["round"]) for run in read_if_there(args.out)}
    for file in sorted(args.rows.rglob("*.npz"), key=lambda f: (f.stem, str(f))):
        where = (float(file.parts[-3][1:]), file.parts[-2], int(file.stem))
        if where not in done:
            laws = pipeline(where[0], args.vocab_size, tuple(args.ends))
            scores = score_round(file, laws)
            append(
                args.out, {"temperature": where[0], "prompt": where[1], "round": where[2], **scores}
            )
            print(*where, flush=True)


def confirm(args: argparse.Namespace) -> None:
    """`block` on chains of four at T = 1, SAMPLES tosses a round, beside its exact expectation on
    the same drafts."""
    exact, sampled, variance = [], [], 0.0
    laws = pipeline(1.0, args.vocab_size, tuple(args.ends))
    files = sorted((args.rows / "T1.0").rglob("*.npz"))
    for file in files:
        with np.load(file) as held:
            context = held["context"].tolist()
            target, drafted = (row_laws(held, side, laws, context) for side in ("target", "draft"))
            chain = held_draft(json.loads(str(held["drafts"]))["sampled chain"], drafted, 4)
        rows = Held(chain, target)
        exact.append(expected_tokens("block", chain, rows))
        chances = [KeyedChance(stream_key(seed, 0), len(context)) for seed in range(SAMPLES)]
        lengths = [len(RULES["block"].verify(chain, rows, chance).path) + 1 for chance in chances]
        sampled.append(np.mean(lengths))
        variance += float(np.var(lengths)) / SAMPLES / len(files) ** 2
    z = (np.mean(sampled) - np.mean(exact)) / variance**0.5
    print(
        f"{len(files)} rounds x {SAMPLES}: exact {np.mean(exact):.4f}, sampled "
        f"{np.mean(sampled):.4f}, {z:+.2f} standard errors"
    )


def best(args: argparse.Namespace) -> None:
    """For each temperature and rule the fastest chain and tree by Sequoia's programme, against
    plain decoding. A level is taken to cost one draft step, however many nodes it has: too little,
    so trees look better than they are."""
    times = json.loads(args.files[0].read_text())
    seconds = {
        side: {int(n): float(np.median(took)) for n, took in times[side].items()}
        for side in ("target", "draft")
    }
    curve = VerifyCurve.from_times(seconds["target"])
    for temperature in TEMPERATURES:
        laws = pipeline(temperature, args.vocab_size, tuple(args.ends))
        files = sorted((args.rows / f"T{temperature}").rglob("*.npz"))
        found: dict[str, list[Any]] = {}
        for number, file in enumerate(files):
            with np.load(file) as held:
                context = held["context"].tolist()
                p, q = (
                    row_laws(held, side, laws, context)(()).astype(np.float64)
                    for side in ("target", "draft")
                )
            for rule, rows in acceptance_by_place(
                p / p.sum(), q / q.sum(), WIDTH, np.random.default_rng(number)
            ).items():
                found.setdefault(rule, []).append(rows)
        for rule, held_rows in found.items():
            means = [
                [float(np.mean([rows[k][b] for rows in held_rows])) for b in range(k + 1)]
                for k in range(WIDTH)
            ]
            shown = " / ".join(" ".join(f"{a:.3f}" for a in row) for row in means)
            print(f"T = {temperature}, {len(files)} rounds, {rule}: acceptance by place {shown}")
            for what, rows in (("chain", means[:1]), ("tree", means)):
                fastest = _fastest(rows, seconds, curve)
                shape = tree_text(fastest.shape.parents) if fastest.shape else "none"
                ratio = seconds["target"][1] / fastest.seconds_per_token
                print(
                    f"    {what}: {shape}, {fastest.expected_tokens:.2f} tokens a round, "
                    f"{ratio:.2f} times plain decoding"
                )
            for name, tree in ({"2": TreeShape((-1, -1))} | TREES).items():
                tokens = expected_tokens_of_shape(means, tree)
                spent = tree.depth * seconds["draft"][1] + seconds["target"][1] * float(
                    curve(len(tree) + 1)
                )
                print(
                    f"    {name}: {tokens:.2f} tokens a round, "
                    f"{seconds['target'][1] * tokens / spent:.2f} times plain decoding"
                )


def _fastest(
    rows: list[list[float]], seconds: dict[str, dict[int, float]], curve: VerifyCurve
) -> BestTree:
    """The fastest shape, though it be slower than no draft at all."""
    most = curve.tokens[-1] - 1

    def verify(tokens: int) -> float:
        return seconds["target"][1] * float(curve(tokens)) if tokens > 1 else float("inf")

    return best_tree(rows, seconds["draft"][1], verify, max_nodes=most, max_depth=min(8, most))


def report(args: argparse.Namespace) -> None:
    """Tables in Markdown: tokens a round with 90% intervals over prompts, and each rule's ratio to
    `token` on the chain."""
    runs = [run for file in args.files for run in read(file)]
    for temperature in sorted({run["temperature"] for run in runs}):
        mine = [run for run in runs if run["temperature"] == temperature]
        names = sorted({run["prompt"] for run in mine})
        print(f"\nT = {temperature}: {len(mine)} rounds, {len(names)} prompts\n")
        print(
            "| draft | rule | tokens a round (90%) | against `token` on its chain (90%) "
            "|\n|---|---|---|---|"
        )
        for name, arm, value, ratio in rows_of(mine, names):
            print(f"| {name} | {arm} | {value} | {ratio} |")
        errors = [max(run["gumbel_error"].values(), default=0.0) for run in mine]
        print(
            "\nlargest standard error of a `gumbel` tree's mean over all rounds: "
            f"{np.mean(errors) / len(mine) ** 0.5:.4f}"
        )
        print(
            "\n| drafts at one position | "
            + " | ".join(mine[0]["one_position"]["1"])
            + " |\n|---|"
            + "---|" * 5
        )
        for k in mine[0]["one_position"]:
            cells = [
                np.mean([run["one_position"][k][rule] for run in mine])
                for rule in mine[0]["one_position"][k]
            ]
            print(f"| {k} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")


def rows_of(runs: list[dict[str, Any]], names: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """(draft, rule, tokens a round, ratio to `token` on the chain that is as long as the draft is
    deep)."""
    chosen = resampled(len(names))
    for key in runs[0]["tokens"]:
        draft, rule = key.split("|")
        depth = draft.split()[-1] if draft.startswith("chain") else str(TREES[draft].depth)
        base = f"chain {depth}|token"
        sums = {
            arm: np.array([sum(r["tokens"][arm] for r in runs if r["prompt"] == n) for n in names])
            for arm in (key, base)
        }
        counts = np.array([sum(r["prompt"] == n for r in runs) for n in names])
        means = sums[key][chosen].sum(1) / counts[chosen].sum(1)
        ratios = sums[key][chosen].sum(1) / sums[base][chosen].sum(1)
        value, ratio = sums[key].sum() / counts.sum(), sums[key].sum() / sums[base].sum()
        yield draft, rule, _shown(value, means), _shown(ratio, ratios, 3)


def _shown(value: float, resamples: Any, digits: int = 2) -> str:
    low, high = np.percentile(resamples, [5, 95])
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["record", "score", "report", "confirm", "best"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--target", default="qwen2.5-coder-1.5b-instruct.gguf")
    parser.add_argument("--draft", default="qwen2.5-coder-0.5b-instruct.gguf")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument(
        "--rounds", type=int, default=16, help="rounds of every prompt and temperature"
    )
    parser.add_argument(
        "--prompts",
        type=int,
        nargs=2,
        default=(0, None),
        metavar=("FIRST", "END"),
        help="which to `record`",
    )
    parser.add_argument("--rows", type=Path)
    parser.add_argument(
        "--vocab-size",
        type=int,
        default=151665,
        help="of the target, for `score`, which loads no model",
    )
    parser.add_argument(
        "--ends", type=int, nargs="*", default=[], help="the target's end tokens, for `score`"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/rules_qwen.jsonl"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"record": record, "score": score, "report": report, "confirm": confirm, "best": best}[
        args.what
    ](args)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
