"""The published scripts run: the lab's scale-up on tiny models, and the table of predicted against
measured."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark_scripts import script
from draftproof import TableModel
from draftproof.models.hf import HFModel
from draftproof.train.store import Text, TextWriter
from tiny import llama, word_tokenizer


def test_the_labs_scale_up_on_tiny_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Acceptance by chance: no texts; single steps, visits of timing, and the runs of every length
    at both temperatures."""
    module, out = script("lab_scale_up"), tmp_path / "lab.jsonl"
    few = [
        "--tiny",
        "--prompts",
        "2",
        "--measured",
        "1",
        "--tokens",
        "12",
        "--lengths",
        "2",
        "4",
        "--out",
        str(out),
    ]
    assert module.main([*few, "--seconds", "0"]) == 3 and not out.exists()
    assert module.main([*few, "--only", "steps"]) == 0
    assert module.main(few) == 0
    lines = module.read_if_there(out)
    assert [line["kind"] for line in lines].count("steps") == 1 and len(lines[0]["target"]) == 100
    runs = [
        (line["temperature"], line["number"], line["arm"], line["k"])
        for line in lines
        if line["kind"] == "run"
    ]
    arms = [("plain", 0), ("ours", 2), ("ours", 4)]
    assert sorted(runs) == sorted((t, n, *arm) for t in (0.0, 0.7) for n in (0, 2) for arm in arms)
    # a visit before every other of four pieces of runs
    assert sum(line["kind"] == "costs" for line in lines) == 2
    capsys.readouterr()
    assert module.main([*few, "--report"]) == 0
    rows = [line for line in capsys.readouterr().out.split("\n") if line.startswith("| 0")]
    assert len(rows) == 8 and all("| 1 | 0.80 (0.80-0.80) |" in row for row in rows)
    assert (
        module.main(["--tiny", "--report"]) == 0 and "No step is timed" in capsys.readouterr().out
    )


def test_the_labs_scale_up_reads_answers_and_runs_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way of real models, on tiny ones: answers of both workloads with overlaps, and assisted
    generation as an arm."""
    module, out = script("lab_scale_up"), tmp_path / "lab.jsonl"
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}w1 w2 w3 {% endfor %}"
    pair = [HFModel(llama(), tokenizer), HFModel(llama(num_hidden_layers=1), tokenizer)]
    monkeypatch.setattr(module, "models", lambda options: pair)
    few = [
        "--prompts",
        "2",
        "--measured",
        "1",
        "--tokens",
        "8",
        "--lengths",
        "2",
        "--temperature",
        "0",
        "--out",
        str(out),
    ]
    assert module.main(few) == 0
    lines = module.read_if_there(out)
    texts = [line for line in lines if line["kind"] == "text"]
    assert [line["prompt"] for line in texts] == [0, 1, 2, 3] and all(
        len(line["coins"]) == 8 for line in texts
    )
    assert {line["arm"] for line in lines if line["kind"] == "run"} == {
        "plain",
        "ours",
        "transformers",
    }
    table = module.markdown(module.arguments(few), lines)
    assert table.count("| 0 | code |") == table.count("| 0 | chat |") == 1


def test_drafters_are_replayed_over_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that goes round and round: from its second turn on every drafter has seen it."""
    answer = [3, 4, 5, 6] * 8
    top = [[token, 9, 8, 7, 2, 1, 0, 10] for token in answer]
    about = {"prompt": [1, 2], "answer": answer, "top_ids": top, "target": "t", "task": "round"}
    recording = tmp_path / "recording.jsonl"
    more = {"number": 1, "dtype": "float32"}
    recording.write_text(
        "".join(json.dumps(about | more | {"setting": s}) + "\n" for s in ("greedy", "T=0.7"))
    )
    replay = script("drafters_by_replay")
    round_trip = TableModel(
        [[0.9 if j == 3 + (i - 2) % 4 else 0.1 / 11 for j in range(12)] for i in range(12)]
    )
    monkeypatch.setattr("draftproof.models.load.load_model", lambda name, dtype: round_trip)
    words = [
        "read",
        str(recording),
        "--target",
        "T",
        "--out",
        str(tmp_path / "read"),
        "--length",
        "2",
    ]
    config = 'same={"method": "draft_model", "model": "D"}'
    for _ in range(2):  # the second run has nothing left to do
        monkeypatch.setattr("sys.argv", ["replay", *words, "--config", config])
        replay.main()
        assert len(replay.read(tmp_path / "read")) == 2
    capsys.readouterr()
    replay.report(argparse.Namespace(recording=recording, read=tmp_path / "read"))
    rows = {
        line.split(" | ")[0].strip("| "): line for line in capsys.readouterr().out.splitlines()[2:]
    }
    assert set(rows) == {*replay.replayable_methods(), "recycling", "same, 2"}
    for row in rows.values():
        assert float(row.split(" | ")[1].split()[0]) > 2
    tokens, rounds, nodes = replay.recycled(about)
    assert tokens == 32 and rounds < 16 and nodes > rounds


def test_a_linear_layer_learns_the_token_after_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that counts on, whatever it read: one map of its states says what comes two tokens
    on."""
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}w1 w2 {% endfor %}"
    module = llama(tie_word_embeddings=False)
    with torch.no_grad():
        for layer in module.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        module.lm_head.weight.copy_(module.model.embed_tokens.weight.roll(1, 0) * 40)
    target = HFModel(module, tokenizer)
    writer = TextWriter(tmp_path / "texts", {}, 64)
    counted = [tuple((first + i) % 60 + 4 for i in range(24)) for first in range(40)]
    for number, tokens in enumerate(counted):
        writer.append(Text(f"{number:016x}", "count", tokens, 2))
    recording = tmp_path / "recording.jsonl"
    line = {"prompt": list(counted[0][:4]), "answer": list(counted[0][4:])}
    recording.write_text(
        "".join(json.dumps(line | {"setting": s}) + "\n" for s in ("greedy", "T=0.7"))
    )
    head = script("linear_head")
    monkeypatch.setattr("draftproof.models.load.load_model", lambda name, dtype="auto": target)
    monkeypatch.setattr(head, "RATE", 1e-2)
    monkeypatch.setattr(head, "ROWS", 64)
    monkeypatch.setattr(head, "EPOCHS", 40)
    about = {
        "target": "T",
        "dtype": "float32",
        "threads": 1,
        "out": tmp_path / "head",
        "tokenizer": "T",
        "tokens": 600,
    }
    args = argparse.Namespace(**about, texts=tmp_path / "texts", recording=recording)
    head.train(args)
    found = head.measure(args)
    assert (
        found["identity, greedy"]["acceptance"] < 0.2 < 0.9 < found["trained, greedy"]["acceptance"]
    )
    args.tokens, args.prompts = 20, 1
    drafted = head.live(args)
    assert drafted["T=0.0"]["acceptance"] > 0.9 and drafted["T=0.0"]["tokens_per_round"] > 1.8
    assert drafted["T=0.0"]["equal_texts"] == 1


def test_the_first_layers_are_a_draft_of_the_same_weights() -> None:
    module = llama(num_hidden_layers=3)
    small = script("predicted_vs_measured").first_layers(module, 1)
    assert small.config.num_hidden_layers == 1 and module.config.num_hidden_layers == 3
    assert small.model.embed_tokens.weight.data_ptr() == module.model.embed_tokens.weight.data_ptr()
    draft = HFModel(small, word_tokenizer())
    assert draft.num_layers == 1


RECORDS = [[k, 0, 1, 0.0, 0.0, 0.03, 0.001, False] for k in (1, 1)]


def raw_lines(measured: float) -> list[dict[str, Any]]:
    """One prompt of one group: a drafter that is always right about one token; `measured` is what
    runs show."""
    group = dict(pair="smollm2+ngram", workload="chat", temperature=0.0)
    text = group | {
        "kind": "text",
        "number": 0,
        "of_prompt": 0,
        "drafted": [1] * 40,
        "hits": [1] * 40,
    }
    rounds = {"plain": [[0, 0, 1, 0, 0, 0.01, 0.0, False]] * 3, "1": RECORDS}
    where = {"processor": "p", "threads": 2, "dtype": "bfloat16", "torch": "2"}
    costs = [
        group
        | {
            "kind": "costs",
            "prompt": -1,
            "context": 9,
            "draft": [],
            "rounds": rounds,
            "provenance": where,
        }
        | {"target": {"1": [0.01] * 3, "2": [drift] * 3}}
        for drift in (0.0149, 0.0151)
    ]
    runs = [
        group | {"kind": "run", "prompt": 0, "arm": arm, "rounds": [[1, 1, 2, 0, 0, 0, 0, False]]}
        | {"chunks": [[0.0, 1], [40 * seconds, 40]]}
        for arm, seconds in (("plain", 0.01), ("k=1", 0.01 / measured))
    ]  # fmt: skip
    return [text, *costs, *runs]


def test_the_table_foretells_from_texts_and_costs_alone(tmp_path: Path) -> None:
    module = script("predicted_table")
    right, wrong = (module.cells(raw_lines(measured)) for measured in (1.25, 0.9))
    for (cell,) in (right, wrong):
        # two tokens a round of 15 ms and 1 ms around it
        assert cell["predicted"] == pytest.approx(2 / 1.6, rel=0.02)
        assert cell["k"] == 1 and cell["recommended"] and cell["predicted_tokens_per_round"] == 2
    assert right[0]["measured"] == pytest.approx(1.25) and wrong[0]["measured"] == pytest.approx(
        0.9
    )
    text = module.markdown(right + wrong)
    assert "2 of 48 cells" in text and "in 1 of 2 cells" in text and "within 10% in 1 of 2" in text
    assert (
        "slower than plain decoding: 1" in text
        and module.markdown([]) == "No cell is measured yet.\n"
    )
    file = tmp_path / "raw.jsonl"
    file.write_text("\n".join(map(json.dumps, raw_lines(1.25))) + '\n{"kind": "ru')
    assert module.main([str(file), "--out", str(tmp_path / "t.md")]) == 0
    assert "| smollm2+ngram | chat | 0 | 1 |" in (tmp_path / "t.md").read_text()


def test_an_interrupted_measurement_goes_on_after_its_finished_pieces(tmp_path: Path) -> None:
    module = script("predicted_vs_measured")
    whole = list(module.pieces("qwen 0.5B -> 1.5B"))
    assert [piece.kind for piece in whole].count("costs") == 4 and [
        piece.kind for piece in whole
    ].count("run") == 24
    run = next(piece for piece in whole if piece.kind == "run")
    log = module.Log(tmp_path / "raw.jsonl")
    for arm in ("plain", "k=1", "k=2", "k=4"):
        log.add(vars(run) | {"arm": arm})
    assert not log.has(run)
    log.add(vars(run) | {"arm": "k=8"})
    (tmp_path / "raw.jsonl").write_text((tmp_path / "raw.jsonl").read_text() + '{"kind": "ru')
    again = module.Log(tmp_path / "raw.jsonl")
    assert again.has(run) and not log.has(whole[0])
    again.add({"kind": "text"}, {"kind": "run"})
    lines = (tmp_path / "raw.jsonl").read_text().splitlines()
    assert len(lines) == 5 + 2 and lines[5] == '{"kind": "text"}', (
        "a torn line is cut off, not gone on with"
    )
    budget = module.Budget(20)
    assert not budget.fits(run)
    budget.took(run, 1.0)
    assert budget.fits(run)


def test_raw_lines_survive_an_interruption(tmp_path: Path) -> None:
    lines = script("raw_lines")
    file = tmp_path / "new" / "raw.jsonl"
    assert lines.read_if_there(file) == []
    lines.append(file, {"a": 1}, {"b": 2})
    for torn, kept in (('{"c": ', []), ('{"c": 3}', [{"c": 3}]), ("", [])):
        file.write_text('{"a": 1}\n{"b": 2}\n' + torn)
        assert lines.read(file) == [{"a": 1}, {"b": 2}, *kept]
        lines.append(file, {"d": 4})
        assert lines.read(file) == [
            {"a": 1},
            {"b": 2},
            *kept,
            {"d": 4},
        ] and file.read_text().endswith("\n")
    file.write_text('{"a"')
    lines.append(file, {"d": 4})
    assert file.read_text() == '{"d": 4}\n'


def test_the_report_of_real_models_leaves_out_what_was_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of one arm, of one kind of prompt, without greedy runs, or empty has a report all the
    same."""
    module = script("real_models")
    about = {
        "pair": "qwen",
        "prompt": "code 1",
        "setting": "T=0.7",
        "repetition": 0,
        "target_forwards": 5,
    }
    times = {
        "forward_seconds": 0.9,
        "first_target_forward_seconds": 0.5,
        "outside_ms_per_target_forward": 2.0,
    }
    plain = about | times | {"arm": "plain", "tokens_per_second": 10.0}
    counts = {
        "num_emitted_tokens": 8,
        "num_rounds": 4,
        "num_accepted_tokens": 4,
        "num_draft_tokens": 8,
    }
    stats = counts | {f"{part}_seconds": 0.1 for part in ("draft", "verify", "rest")}
    ours = about | times | {"arm": "speculative", "tokens_per_second": 15.0, "stats": stats}
    for runs, said in (
        ([plain, ours], "| qwen, code, T=0.7 | 10.0 | 1.50 (1.50 to 1.50) |  | 2.00 | 0.50 |"),
        ([ours], "| qwen, code, T=0.7 |  |  |  | 2.00 | 0.50 |"),
        ([plain], "| qwen, code, T=0.7 | 10.0 |  |  |  |  |"),
        ([], "greedy texts that part"),
    ):
        (tmp_path / "runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
        module.report([tmp_path / "runs.jsonl"])
        out = capsys.readouterr().out
        assert said in out and "chat" not in out and ("not measured" in out) == bool(runs)


def test_a_second_wave_has_its_own_texts_and_goes_on_after_them(tmp_path: Path) -> None:
    """Texts of a few further prompts a piece, their runs a piece each; visits of timing are spread
    among the runs."""
    module = script("predicted_vs_measured")
    whole = list(module.pieces("smollm2+ngram"))
    wave = whole[4 + 4 + 4 * 6 :]
    texts = [piece for piece in wave if piece.kind == "text"]
    assert len(texts) == 9 + 4 and module.planned(whole[1]) == (range(6), 3)
    assert module.planned(texts[0]) == (range(6, 10), 2) and module.planned(texts[8]) == (
        range(38, 40),
        2,
    )
    assert module.planned(texts[9]) == (range(40, 44), 2)
    assert [piece.prompt for piece in wave if piece.kind == "run"] == list(range(6, 56))
    visits = [piece.prompt for piece in wave if piece.kind == "costs"]
    assert visits[:4] == [-2, -11, -20, -29] and len(set(visits)) == 4 + 2 and max(visits) < -1
    log = module.Log(tmp_path / "raw.jsonl")
    log.add(vars(texts[0]) | {"number": 0})
    assert not log.has(texts[0])
    items = module.prompt_items("code-editing")
    assert len({item.prompt[0]["content"] for item in items}) == len(items) >= 56


@pytest.mark.parametrize("name", ["predicted_vs_measured", "predicted_table"])
def test_scripts_say_how_they_are_run(name: str) -> None:
    assert f"python benchmarks/{name}.py" in str(script(name).__doc__)
