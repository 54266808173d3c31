"""`draftproof generate`: what is asked is what is done, seen in the text, the statistics and the
JSON document."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from draftproof import SamplingParams, SpeculativeDecoder, __version__
from draftproof.cli import main as cli
from draftproof.decode.record import read_rounds

PROMPT = "the cat sat on the mat and the cat sat on the"
Document = Callable[..., dict[str, Any]]


def common(target: Path, *more: object) -> tuple[object, ...]:
    return (
        "generate",
        PROMPT,
        "--target",
        target,
        "--dtype",
        "float32",
        "--temperature",
        0,
        "--max-tokens",
        24,
        *more,
    )


def test_text_is_streamed_and_a_line_of_figures_goes_to_standard_error(
    target: Path, capsys: pytest.CaptureFixture[str], document: Document
) -> None:
    whole = document(*common(target))
    assert cli.run([str(a) for a in common(target)]) == 0
    captured = capsys.readouterr()
    assert captured.out.rstrip("\n") == whole["text"].rstrip("\n")
    summary = captured.err.strip().splitlines()[-1]
    for part in (
        "24 tokens (length)",
        "tok/s",
        "tokens a round",
        "drafts accepted",
        "method ngram",
        "seed",
    ):
        assert part in summary


def test_the_document_says_what_was_asked_and_what_came_out(
    target: Path, document: Document
) -> None:
    got = document(*common(target, "--seed", 3, "--logprobs", 2))
    assert got["prompt"] == PROMPT
    assert len(got["token_ids"]) == len(got["origins"]) == len(got["logprobs"]) == 24
    assert got["finish_reason"] == "length"
    assert got["tokens_per_second"] > 0 and got["decode_tokens_per_second"] > 0
    assert got["config"]["method"] == got["stats"]["method"] == "ngram"
    assert got["params"]["temperature"] == 0 and got["params"]["seed"] == 3
    assert [len(entry["top"]) for entry in got["logprobs"]] == [2] * 24
    provenance = got["provenance"]
    assert provenance["draftproof"] == __version__
    assert (provenance["dtype"], provenance["device"], provenance["seed"]) == ("float32", "cpu", 3)
    assert provenance["threads"] >= 1 and provenance["torch"] and provenance["transformers"]


@pytest.mark.parametrize(
    "speculation", [(), ("--method", "none"), ("-k", 0), ("-k", 5), ("--rule", "token")]
)
def test_greedy_text_is_the_targets_whatever_the_speculation(
    target: Path,
    tokenizer: PreTrainedTokenizerFast,
    document: Document,
    speculation: tuple[object, ...],
) -> None:
    module = AutoModelForCausalLM.from_pretrained(target)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT}], tokenize=False, add_generation_prompt=True
    )
    inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    expected = module.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        do_sample=False,
        max_new_tokens=24,
    )
    got = document(*common(target, *speculation))
    assert got["token_ids"] == expected[0, inputs["input_ids"].shape[1] :].tolist()


# A flag that is parsed must reach the run (a public report tells of drafter flags that were
# dropped, so that plain decoding was measured as speculation).


@pytest.mark.parametrize(
    ("flags", "method"),
    [
        ((), "ngram"),
        (("--method", "ngram"), "ngram"),
        (("--draft", "DRAFT"), "draft_model"),
        (("--method", "draft_model", "--draft", "DRAFT"), "draft_model"),
        (
            (
                "--speculative-config",
                '{"method": "ngram", "prompt_lookup_max": 2, "prompt_lookup_min": 1}',
            ),
            "ngram",
        ),
        (("--speculative-config", '{"method": "draft_model", "model": "DRAFT"}'), "draft_model"),
    ],
)
def test_every_drafter_that_is_asked_for_drafts(
    target: Path, draft: Path, document: Document, flags: tuple[str, ...], method: str
) -> None:
    got = document(*common(target, *(flag.replace("DRAFT", str(draft)) for flag in flags)))
    assert got["stats"]["method"] == method
    assert got["stats"]["num_draft_tokens"] > 0


def test_the_draft_length_reaches_the_drafter(
    target: Path, draft: Path, document: Document, tmp_path: Path
) -> None:
    for length in (1, 2, 6):
        path = tmp_path / f"{length}.jsonl"
        document(*common(target, "--draft", draft, "-k", length, "--record", path))
        assert max(len(record.draft_tokens) for record in read_rounds(path)[1]) == length
    for off in (("-k", 0), ("--method", "none")):
        assert document(*common(target, *off))["stats"]["num_draft_tokens"] == 0


@pytest.mark.parametrize(
    ("flag", "value", "field", "kept"),
    [
        ("--temperature", 0.5, "temperature", 0.5),
        ("--top-k", 7, "top_k", 7),
        ("--top-p", 0.9, "top_p", 0.9),
        ("--min-p", 0.1, "min_p", 0.1),
        ("--repetition-penalty", 1.2, "repetition_penalty", 1.2),
        ("--presence-penalty", 0.5, "presence_penalty", 0.5),
        ("--frequency-penalty", 0.5, "frequency_penalty", 0.5),
        ("--logit-bias", '{"9": -100}', "logit_bias", {"9": -100}),
        ("--bad-words", "dog", "bad_words", ["dog"]),
        ("--min-tokens", 3, "min_tokens", 3),
        ("--max-tokens", 5, "max_tokens", 5),
        ("--stop", "zzz", "stop", ["zzz"]),
        ("--stop-token-ids", 11, "stop_token_ids", [11]),
        ("--include-stop-str-in-output", None, "include_stop_str_in_output", True),
        ("--ignore-eos", None, "ignore_eos", True),
        ("--no-skip-special-tokens", None, "skip_special_tokens", False),
        ("--seed", 5, "seed", 5),
        ("--n", 2, "n", 2),
        ("--logprobs", 1, "logprobs", 1),
    ],
)
def test_every_sampling_flag_reaches_the_parameters(
    target: Path, document: Document, flag: str, value: object, field: str, kept: object
) -> None:
    base = {"--temperature": 0.8, "--max-tokens": 8}
    flags = [
        part
        for name, given in (base | {flag: value}).items()
        for part in ((name,) if given is None else (name, given))
    ]
    got = document("generate", PROMPT, "--target", target, *flags)
    assert got["params"][field] == kept
    assert len(got["outputs"]) == (2 if field == "n" else 1)


def test_repeated_flags_add_up(target: Path, document: Document) -> None:
    got = document(
        *common(
            target,
            "--stop",
            "a",
            "--stop",
            "b",
            "--stop-token-ids",
            4,
            "--stop-token-ids",
            5,
            "--bad-words",
            "x",
        )
    )
    assert (got["params"]["stop"], got["params"]["stop_token_ids"]) == (["a", "b"], [4, 5])


def test_without_sampling_flags_the_models_own_configuration_counts(
    target: Path, tokenizer: PreTrainedTokenizerFast, document: Document, tmp_path: Path
) -> None:
    module = AutoModelForCausalLM.from_pretrained(target)
    module.generation_config.update(
        do_sample=True, temperature=0.6, top_k=9, min_length=30, begin_suppress_tokens=[5]
    )
    module.save_pretrained(tmp_path / "sampling")
    tokenizer.save_pretrained(tmp_path / "sampling")
    got = document("generate", PROMPT, "--target", tmp_path / "sampling", "--max-tokens", 20)
    assert (got["params"]["temperature"], got["params"]["top_k"]) == (0.6, 9)
    assert got["params"]["min_tokens"] == 30 - len(got["prompt_token_ids"])
    assert (
        document("generate", PROMPT, "--target", target, "--max-tokens", 4)["params"]["temperature"]
        == 0
    )


def test_the_same_seed_gives_the_same_text_and_a_fresh_one_is_reported(
    target: Path, document: Document
) -> None:
    sampling = ("generate", PROMPT, "--target", target, "--temperature", 2, "--max-tokens", 24)
    first = document(*sampling)
    seed = first["provenance"]["seed"]
    assert document(*sampling, "--seed", seed)["token_ids"] == first["token_ids"]
    assert document(*sampling, "--seed", seed + 1)["token_ids"] != first["token_ids"]


def test_the_prompt_comes_from_the_argument_a_file_or_standard_input(
    target: Path, document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT + "\n")
    rest = ("--target", target, "--max-tokens", 2)
    ids = document("generate", PROMPT, *rest)["prompt_token_ids"]
    assert document("generate", "--file", file, *rest)["prompt_token_ids"] == ids
    for argument in ((), ("-",)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
        assert document("generate", *argument, *rest)["prompt_token_ids"] == ids


def test_chat_template_system_message_and_raw(
    target: Path, tokenizer: PreTrainedTokenizerFast, document: Document
) -> None:
    rest = ("--target", target, "--max-tokens", 2)
    chat = document("generate", "hi", *rest)["prompt_token_ids"]
    assert tokenizer.decode(chat) == "<|user|>hi<|end|><|assistant|>"
    system = document("generate", "hi", "--system", "be brief", *rest)["prompt_token_ids"]
    assert tokenizer.decode(system) == "<|system|>be brief<|end|><|user|>hi<|end|><|assistant|>"
    assert tokenizer.decode(document("generate", "hi", "--raw", *rest)["prompt_token_ids"]) == "hi"


def test_rounds_are_recorded(target: Path, document: Document, tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    got = document(*common(target, "--record", path, "--seed", 1))
    header, rounds = read_rounds(path)
    assert (header.target, header.method, header.rule) == (str(target), "ngram", "match")
    assert list(header.prompt_token_ids) == got["prompt_token_ids"]
    assert header.params["seed"] == 1
    assert [token for record in rounds for token in record.tokens] == got["token_ids"]
    assert sum(len(record.draft_tokens) for record in rounds) == got["stats"]["num_draft_tokens"]


def test_several_samples_are_told_apart(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = (
        "generate",
        PROMPT,
        "--target",
        target,
        "--temperature",
        1,
        "--max-tokens",
        6,
        "--n",
        3,
        "--seed",
        1,
    )
    assert cli.run([str(flag) for flag in flags]) == 0
    captured = capsys.readouterr()
    assert [captured.out.count(f"[sample {number}]") for number in (1, 2, 3)] == [0, 1, 1]
    assert captured.err.count("tok/s") == 3


def test_show_marks_every_origin_and_says_what_the_marks_mean(
    target: Path, draft: Path, capsys: pytest.CaptureFixture[str], document: Document
) -> None:
    plain = document(*common(target, "--draft", target, "-k", 3))
    assert set(plain["origins"]) == {"draft", "bonus"}
    assert cli.run([str(a) for a in common(target, "--draft", target, "-k", 3, "--show")]) == 0
    legend, _, text = capsys.readouterr().out.partition("\n\n")
    assert legend == "[accepted draft]  <replacement after a rejection>  (bonus)  plain"
    assert text.count("[") >= plain["origins"].count("bonus") and "(" in text
    assert cli.run([str(a) for a in common(target, "--draft", draft, "-k", 3, "--show")]) == 0
    assert "<" in capsys.readouterr().out.partition("\n\n")[2]


def test_show_colours_on_a_terminal(
    target: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    document: Document,
) -> None:
    whole = document(*common(target))["text"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert cli.run([str(a) for a in common(target, "--show")]) == 0
    legend, _, text = capsys.readouterr().out.partition("\n\n")
    assert "\x1b[32maccepted draft\x1b[0m" in legend
    for code in ("\x1b[0m", "\x1b[32m", "\x1b[1;31m", "\x1b[1;34m", "\x1b[2m"):
        text = text.replace(code, "")
    assert text.rstrip("\n") == whole.rstrip("\n")


def test_threads_are_set(target: Path, document: Document) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        assert document(*common(target, "--threads", 1))["provenance"]["threads"] == 1
    finally:
        torch.set_num_threads(before)


def test_the_command_and_the_library_give_the_same_tokens(target: Path, document: Document) -> None:
    got = document(
        "generate",
        PROMPT,
        "--raw",
        "--target",
        target,
        "--temperature",
        1,
        "--seed",
        9,
        "--max-tokens",
        20,
    )
    decoder = SpeculativeDecoder.from_pretrained(
        str(target), speculative_config={"method": "ngram"}
    )
    result = decoder.generate(PROMPT, SamplingParams(temperature=1, seed=9, max_tokens=20))
    assert got["token_ids"] == list(result.token_ids)
    assert (
        json.loads(json.dumps(result.stats.as_dict()))["num_draft_tokens"]
        == got["stats"]["num_draft_tokens"]
    )


@pytest.mark.parametrize("verb", ["generate", "pull"])
def test_help_loads_no_model_library(verb: str) -> None:
    code = (
        "import sys; from draftproof.cli import main as cli; "
        f"code = cli.run(['{verb}', '--help']); "
        "print(code, sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_the_templates_options_are_flags(
    document: Callable[..., dict[str, Any]], thinking: Path, tools: Path
) -> None:
    words = AutoTokenizer.from_pretrained(thinking)
    asked = ("generate", "the cat", "--target", thinking, "--temperature", 0, "--max-tokens", 3)
    flags = ("--tools", tools, "--chat-template-kwargs", '{"enable_thinking": false}')
    for more, text in (
        ((), "<|user|>the cat<|end|><|assistant|>"),
        (flags, "[sit]<|user|>the cat<|end|><|assistant|>(no)"),
        (("--prefill", "It sat"), "<|user|>the cat<|end|><|assistant|>It sat"),
    ):
        got = document(*asked, *more)
        assert got["prompt_token_ids"] == words.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--tools", "/nowhere.json"), "--tools /nowhere.json cannot be read"),
        (("--chat-template-kwargs", "{"), "--chat-template-kwargs is not JSON"),
        (("--chat-template-kwargs", '{"a": 1}'), "reads no variable 'a'"),
        (("--system", "Be brief."), "refuses this chat: System role not supported"),
        (("--raw", "--prefill", "x"), "--prefill is of the chat that --raw switches off"),
    ],
)
def test_what_the_template_cannot_take_is_one_sentence(
    refused: Callable[..., str], thinking: Path, more: tuple[object, ...], sentence: str
) -> None:
    assert sentence in refused("generate", "the cat", "--target", thinking, *more)


def test_the_monitor_is_in_the_statistics_and_in_the_line_of_figures(
    target: Path, draft: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """False alarm: 1e-3."""
    command = [
        "generate",
        "the cat",
        "--target",
        str(target),
        "--draft",
        str(draft),
        "--max-tokens",
        "40",
        "--monitor",
        "--json",
    ]
    assert cli.run([*command, "--temperature", "1", "--seed", "0"]) == 0
    captured = capsys.readouterr()
    seen = json.loads(captured.out.splitlines()[-1])["stats"]["monitor"]
    assert seen["exact"] is True and seen["num_tokens"] >= 20
    assert "monitor: nothing against exactness in" in captured.err
    assert cli.run([*command, "--temperature", "0"]) == 0
    assert "monitor: nothing to test: at temperature 0" in capsys.readouterr().err
