"""The commands of `draftproof train`, and the recipe of the default head in small: from prompts to
a head that drafts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.cli import main as cli
from tiny import llama, word_tokenizer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model with a tokenizer and a chat template, in a folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    llama(num_hidden_layers=4, max_position_embeddings=1024).save_pretrained(folder)
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "w2 {% for m in messages %}{{ m['content'] }} {% endfor %}"
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [
        json.dumps({"prompt": " ".join(f"w{(i * 7 + j) % 64}" for j in range(6))})
        for i in range(64)
    ]
    lines += [json.dumps({"prompt": f"w1 w{i} w3 w5 w{i}"}) for i in range(64)]
    file.write_text("\n".join(lines))
    return file


def test_the_recipe_of_the_default_head_in_small(model, prompts, tmp_path):
    environment = os.environ | {
        "DRAFTPROOF": f"{sys.executable} -m draftproof",
        "TARGET": str(model),
        "PROMPTS": str(prompts),
        "LIMIT": "130",
        "INVENTED": "6",
        "MAX_TOKENS": "12",
        "STEPS": "4",
        "EVALUATE_EVERY": "2",
        "DRAFT_VOCAB_SIZE": "48",
    }
    script = [str(ROOT / "benchmarks" / "train_default_head.sh"), str(tmp_path)]
    done = subprocess.run(
        script, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert (tmp_path / "head" / "model.safetensors").exists(), done.stderr
    assert (tmp_path / "invented.jsonl").exists() and "questions" in done.stderr
    assert "hidden states of" in done.stderr and "few: below" in done.stderr
    looks = [line for line in done.stderr.splitlines() if line.startswith("step ")]
    assert len(looks) == 10 and "tokens a round" in looks[0]
    assert "plain at" in looks[0], "the speedup a plan would give at this moment"
    config = {"method": "eagle3", "model": str(tmp_path / "head"), "num_speculative_tokens": 2}
    decoder = SpeculativeDecoder.from_pretrained(
        str(model), speculative_config=config, dtype="float32"
    )
    params = SamplingParams(max_tokens=12, temperature=0)
    assert (
        decoder.generate([1, 2, 3], params).token_ids
        == decoder.plain.generate([1, 2, 3], params).token_ids
    )
    facts = json.loads((tmp_path / "head" / "config.json").read_text())["draftproof"]["card"]
    assert facts["steps"] == 4 and facts["recipe"]["draft_vocab_size"] == 48


def test_a_draft_model_from_prompts(model, prompts, tmp_path, capsys):
    written = [
        "--target",
        str(model),
        "--data",
        str(prompts),
        "--max-tokens",
        "12",
        "--dtype",
        "float32",
    ]
    assert cli.run(["train", "data", *written, "--out", str(tmp_path / "texts")]) == 0
    words = [
        "--target",
        str(model),
        "--data",
        str(tmp_path / "texts"),
        "--out",
        str(tmp_path / "draft"),
    ]
    cli.run(
        [
            "train",
            "draft",
            *words,
            "--layers",
            "2",
            "--steps",
            "2",
            "--evaluate-every",
            "2",
            "--length",
            "2",
        ]
    )
    assert "the draft model is in" in capsys.readouterr().out
    config = {
        "method": "draft_model",
        "model": str(tmp_path / "draft"),
        "num_speculative_tokens": 2,
    }
    decoder = SpeculativeDecoder.from_pretrained(
        str(model), speculative_config=config, dtype="float32"
    )
    params = SamplingParams(max_tokens=8, temperature=0)
    assert (
        decoder.generate([1, 2, 3], params).token_ids
        == decoder.plain.generate([1, 2, 3], params).token_ids
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--loss", "squares"], "loss 'squares' is unknown"),
        (["--begin", "middle"], "begin is 'middle'"),
    ],
)
def test_wrong_settings_are_refused(model, prompts, tmp_path, refused, words, sentence):
    texts = ["--data", prompts, "--limit", "40", "--out", tmp_path]
    assert sentence in refused("train", "eagle3", "--target", model, *texts, *words)


@pytest.mark.parametrize(
    ("method", "words", "sentence"),
    [
        ("eagle", ["--num-heads", "3"], "--num-heads is for medusa; train eagle has no such thing"),
        ("medusa", ["--draft-vocab-size", "64"], "--draft-vocab-size is for eagle3"),
        ("medusa", ["--intermediate-size", "64"], "--intermediate-size is for eagle and eagle3"),
        ("eagle3", ["--begin", "target", "--start", "there"], "leave out --begin or --start"),
        (
            "eagle3",
            ["--average-start"],
            "--average-start takes the mean with the head that training begins with: add --start",
        ),
        (
            "eagle3",
            ["--loss-temperature", "warm"],
            "--loss-temperature is 'warm'; allowed: a number above 0, or own",
        ),
        (
            "draft",
            ["--loss-temperature", "0"],
            "the loss's temperature is 0.0; allowed: a number above 0",
        ),
        (
            "eagle3",
            ["--loss-temperature", "0.7", "--cache", "there"],
            "--cache keeps laws at temperature 1 and at each",
        ),
        ("eagle3", ["--cache-gb", "5"], "--cache-gb is the limit of the folder of --cache"),
        (
            "eagle3",
            ["--unroll", "3", "--early-unroll", "3"],
            "--early-unroll 3 is no less than --unroll, which is 3",
        ),
        ("medusa", ["--early-unroll", "4"], "no less than --unroll, which is 4"),
        (
            "medusa",
            ["--num-heads", "3", "--unroll", "4"],
            "medusa drafts one token a head, and there are 3",
        ),
        ("draft", ["--layers", "2", "--start", "there"], "leave one of them out"),
        ("draft", ["--start", "./there"], "there is no file or folder ./there"),
        ("medusa", ["--data", "no.jsonl"], "the prompt file no.jsonl cannot be read"),
    ],
)
def test_what_does_not_shape_this_head_is_refused(tmp_path, refused, method, words, sentence):
    assert sentence in refused("train", method, "--target", "nowhere", "--out", tmp_path, *words)


def test_places_that_cannot_be_written_are_refused_before_a_model_is_loaded(tmp_path, refused):
    file = tmp_path / "file"
    file.write_text("")
    for words in (["data"], ["eagle3"], ["draft"]):
        assert f"{file} is a file" in refused(
            "train", *words, "--target", "./nowhere", "--out", file / "texts"
        )
    assert "cannot be a folder" in refused(
        "train", "eagle3", "--target", "./nowhere", "--out", tmp_path, "--cache", file
    )
    assert "there is no folder" in refused(
        "train", "prompts", "--target", "./nowhere", "--out", tmp_path / "no" / "file"
    )


def test_texts_that_are_all_too_long_are_told(model, prompts, tmp_path, refused):
    written = [
        "--target",
        str(model),
        "--data",
        str(prompts),
        "--limit",
        "4",
        "--max-tokens",
        "4",
        "--dtype",
        "float32",
    ]
    assert cli.run(["train", "data", *written, "--out", str(tmp_path / "texts")]) == 0
    flags = (
        "--target",
        model,
        "--data",
        tmp_path / "texts",
        "--out",
        tmp_path / "head",
        "--max-length",
        4,
    )
    assert "of the 4 texts has 3 tokens or more: raise --max-length" in refused(
        "train", "medusa", *flags
    )


def test_prompts_are_answered_first_with_a_sign_of_life(model, tmp_path, capsys):
    """Told as they are answered; with a smaller --limit only those that are asked for are trained
    on."""
    asked = [
        {"prompt": f"w{i % 64} w{i // 8} w3", "answer": "w4 w5 w6 w7 w8 w9"} for i in range(80)
    ]
    asked[7].pop("answer")
    file = tmp_path / "prompts.jsonl"
    common = ["--target", str(model), "--data", str(tmp_path / "prompts.jsonl")]
    file.write_text("\n".join(map(json.dumps, asked)))
    for limit in ("80", "60"):
        cli.run(
            [
                "train",
                "medusa",
                *common,
                "--out",
                str(tmp_path),
                "--steps",
                limit[0],
                "--num-heads",
                "2",
                "--limit",
                limit,
            ]
        )
        (tmp_path / "checkpoint.pt").unlink()
    captured = capsys.readouterr()
    assert "of 80: answers, " in captured.err and "the head is in" in captured.out
    facts = json.loads((tmp_path / "config.json").read_text())["draftproof"]["card"]
    counted = facts["texts"]["train"]["texts"] + facts["texts"]["held_out"]["texts"]
    assert (
        counted == 60
        and facts["texts"]["written"]["max_tokens"] == 256
        and facts["settings"]["unroll"] == 2
    )
