"""The lab's stretch goal: on a frozen target, one linear layer on the last hidden state that
guesses the token after next.

    python benchmarks/linear_head.py train --target MODEL --texts FOLDER --tokenizer MODEL --tokens
        20000 --out DIR
    python benchmarks/linear_head.py measure --target MODEL --recording recording.jsonl --out DIR
    python benchmarks/linear_head.py live --target MODEL --recording recording.jsonl --out DIR

The layer maps width to width, in front of the target's own frozen output layer: 2.4 million weights
for Qwen2.5 1.5B. (A layer from the width straight to the vocabulary would have 233 million there.)
It sees h_t and not the token drawn after it, t + 1, and guesses t + 2: a draft of one token, with
no pass of its own but the output layer's.

`train` has the target read answers of a folder that `draftproof train data` wrote (decoded by the
tokenizer of the model that wrote them, encoded by the target's), keeps states and laws in DIR, a
piece at a time (a run goes on), and trains on them by cross-entropy against the target's law at
temperature 1 over the most frequent ids. `measure` takes answers the target wrote itself and
counts, row by row over the whole vocabulary, what verification would accept: the greedy guess where
the answer is greedy, else the overlap of both laws. Before training the layer is the identity; that
is measured too.
`live` lets the layer draft in the decode loop (linear_drafter.py), greedy and sampled, every prompt
of the recording in turn with plain decoding.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

IDS = 8192
PIECE = 4
"""Texts read in one pass."""
LONGEST = 400
EPOCHS, ROWS, RATE = 12, 256, 3e-4
HELD_OUT = 0.05


def collect(args: argparse.Namespace) -> None:
    """States [rows, width] and laws [rows, IDS] in float16, a file a piece, until `args.tokens`
    rows are there."""
    import torch

    from draftproof.train.states import read_texts_by
    from draftproof.train.store import Text

    target, view = _target(args)
    texts = _texts(args, target.tokenizer)
    ids = _frequent(texts, view.vocab_size)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.save(ids, args.out / "ids.pt")
    rows = 0
    for number in range(0, len(texts), PIECE):
        path = args.out / f"piece{number:05}.pt"
        if rows >= args.tokens:
            return
        if not path.exists():
            few = [
                Text(str(i), "read", tokens, prompt)
                for i, (tokens, prompt) in enumerate(texts[number : number + PIECE])
            ]
            hidden, logits = read_texts_by(target, few, [view.num_layers])
            pairs = []
            for text, states, scores in zip(few, hidden[view.num_layers], logits, strict=True):
                laws = scores.log_softmax(dim=-1)[
                    :, ids
                ].half()  # after the positions prompt .. length - 2
                pairs.append((states[text.prompt - 1 : text.prompt - 1 + len(laws)].half(), laws))
            part = path.with_suffix(".part")  # a piece is there whole or not at all
            torch.save(tuple(torch.cat(parts) for parts in zip(*pairs, strict=True)), part)
            part.rename(path)
        rows += len(torch.load(path)[0])
        print(f"{min(rows, args.tokens)} of {args.tokens} rows", flush=True)


def train(args: argparse.Namespace) -> None:
    """The layer, by AdamW from the identity, the last twentieth of the rows held out."""
    import torch

    collect(args)
    _, view = _target(args)
    ids = torch.load(args.out / "ids.pt")
    output = view.output_weight[ids].float()
    pieces = [torch.load(path) for path in sorted(args.out.glob("piece*.pt"))]
    states, laws = (torch.cat(parts)[: args.tokens] for parts in zip(*pieces, strict=True))
    kept = int(len(states) * (1 - HELD_OUT))
    layer = torch.nn.Linear(view.width, view.width, bias=False)
    torch.nn.init.eye_(layer.weight)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    steps = EPOCHS * (kept // ROWS)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def losses(rows: Any) -> Any:
        logs = (layer(states[rows].float()) @ output.T).log_softmax(dim=-1)
        return -(laws[rows].float().exp() * logs).sum(dim=-1)

    for step in range(steps):
        if step % (steps // EPOCHS) == 0:
            with torch.no_grad():
                held = float(losses(slice(kept, None)).mean())
            print(f"step {step} of {steps}: held-out loss {held:.3f}", flush=True)
        loss = losses(torch.randint(kept, (ROWS,), generator=generator)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    torch.save(layer.weight.detach(), args.out / "layer.pt")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Acceptance of the identity and of the trained layer on the recording, by setting, with an
    interval over answers."""
    import numpy as np
    import torch

    from draftproof.report.bootstrap import percentiles, resampled
    from draftproof.train.states import read_texts_by
    from draftproof.train.store import Text

    target, view = _target(args)
    layers = {"identity": torch.eye(view.width), "trained": torch.load(args.out / "layer.pt")}
    found: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for line in map(json.loads, args.recording.read_text(encoding="utf-8").splitlines()):
        text = Text("0", "own", (*line["prompt"], *line["answer"]), len(line["prompt"]))
        hidden, (scores,) = read_texts_by(target, [text], [view.num_layers])
        heat = 0.0 if line["setting"] == "greedy" else float(line["setting"].split("=")[1])
        states = hidden[view.num_layers][0][text.prompt - 1 :][: len(scores)]
        for name, weight in layers.items():
            guesses = view.output(states @ weight.T)
            if heat == 0:
                kept = (guesses.argmax(-1) == scores.argmax(-1)).float()
            else:
                kept = torch.minimum((guesses / heat).softmax(-1), (scores / heat).softmax(-1)).sum(
                    -1
                )
            found.setdefault((name, line["setting"]), []).append((float(kept.sum()), len(kept)))
    result = {}
    for (name, setting), pairs in found.items():
        sums, counts = np.asarray(pairs).T
        picks = resampled(len(pairs))
        low, high = percentiles(sums[picks].sum(1) / counts[picks].sum(1))
        result[f"{name}, {setting}"] = {
            "acceptance": sums.sum() / counts.sum(),
            "low": low,
            "high": high,
            "rows": int(counts.sum()),
        }
        print(
            f"{name}, {setting}: {sums.sum() / counts.sum():.3f} ({low:.3f} to "
            f"{high:.3f}) of {int(counts.sum())} drafts"
        )
    (args.out / "measured.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def live(args: argparse.Namespace) -> dict[str, Any]:
    """One draft a round by the trained layer, against plain decoding of the same prompt, in turn:
    tokens a round, acceptance, and the median of the ratios of time with an interval over
    prompts."""
    import numpy as np
    import torch
    from linear_drafter import LinearHead

    from draftproof import SamplingParams, SpeculativeDecoder
    from draftproof.report.bootstrap import percentiles, resampled

    target, view = _target(args)
    drafter = LinearHead(torch.load(args.out / "layer.pt"), view)
    decoder = SpeculativeDecoder(drafter, target, speculative_config={"num_speculative_tokens": 1})
    lines = list(map(json.loads, args.recording.read_text(encoding="utf-8").splitlines()))
    prompts = list(dict.fromkeys(tuple(line["prompt"]) for line in lines))[: args.prompts]
    result: dict[str, Any] = {}
    for heat in (0.0, 0.7):
        runs = []
        params = SamplingParams(temperature=heat, max_tokens=args.tokens, seed=1, ignore_eos=True)
        for number, prompt in enumerate(prompts):
            arms = {"linear": decoder, "plain": decoder.plain}
            order = list(arms) if number % 2 else list(arms)[::-1]
            run = {name: arms[name].generate(list(prompt), params) for name in order}
            runs.append(run)
            print(f"T={heat}: {number + 1} of {len(prompts)} prompts", flush=True)
        ratios = np.array([run["plain"].seconds / run["linear"].seconds for run in runs])
        low, high = percentiles(np.median(ratios[resampled(len(runs))], axis=1))
        stats = [run["linear"].stats for run in runs]
        drafts = sum(one.num_draft_tokens for one in stats)
        accepted = sum(one.num_accepted_tokens for one in stats)
        rounds = sum(one.num_rounds for one in stats)
        result[f"T={heat}"] = {
            "prompts": len(runs),
            "drafts": drafts,
            "acceptance": accepted / drafts,
            "tokens_per_round": sum(one.num_emitted_tokens for one in stats) / rounds,
            "speed_over_plain": {"median": float(np.median(ratios)), "low": low, "high": high},
            "equal_texts": sum(run["plain"].token_ids == run["linear"].token_ids for run in runs),
        }
    print(json.dumps(result, indent=1))
    (args.out / "live.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _target(args: argparse.Namespace) -> Any:
    import torch

    from draftproof.heads.target import target_view
    from draftproof.models.load import load_model

    torch.set_num_threads(args.threads)
    target = load_model(args.target, dtype=args.dtype)
    return target, target_view(target)


def _texts(args: argparse.Namespace, tokenizer: Any) -> list[tuple[tuple[int, ...], int]]:
    """(tokens, length of the prompt) of every text, encoded by the target's tokenizer in its own
    chat template."""
    from draftproof.models.load import load_model
    from draftproof.train.store import read_texts

    theirs: Any = load_model(args.tokenizer).tokenizer
    found = []
    for text in read_texts(args.texts):
        answer = theirs.decode(text.tokens[text.prompt :], skip_special_tokens=True)
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": "Go on."}], add_generation_prompt=True, tokenize=False
        )
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        whole = (*ids, *tokenizer.encode(answer, add_special_tokens=False))[:LONGEST]
        if len(whole) > len(ids) + 8:
            found.append((whole, len(ids)))
    return found


def _frequent(texts: list[tuple[tuple[int, ...], int]], vocab_size: int) -> Any:
    """The ids the answers use most."""
    import torch

    counts = torch.zeros(vocab_size, dtype=torch.long)
    for tokens, prompt in texts:
        counts += torch.bincount(torch.tensor(tokens[prompt:]), minlength=vocab_size)
    return (
        torch.sort(counts, descending=True, stable=True)
        .indices[: min(IDS, vocab_size)]
        .sort()
        .values
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, about in (
        ("train", "read texts and train the layer"),
        ("measure", "acceptance on the target's own answers"),
        ("live", "the layer in the decode loop, against plain decoding"),
    ):
        verb = verbs.add_parser(name, help=about)
        verb.add_argument("--target", required=True)
        verb.add_argument("--out", type=Path, required=True)
        verb.add_argument("--dtype", default="float32")
        verb.add_argument("--threads", type=int, default=2)
        if name == "train":
            verb.add_argument("--texts", type=Path, required=True)
            verb.add_argument("--tokenizer", required=True, help="the model that wrote the texts")
            verb.add_argument("--tokens", type=int, default=20_000)
        else:
            verb.add_argument("--recording", type=Path, required=True)
        if name == "live":
            verb.add_argument("--prompts", type=int, default=12)
            verb.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    {"train": train, "measure": measure, "live": live}[args.verb](args)


if __name__ == "__main__":
    main()
