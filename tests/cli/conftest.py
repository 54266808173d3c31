"""A tiny random Llama and a byte-level tokenizer trained on the spot, saved as model folders: what
the commands load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from draftproof.audit import cells, table, tree_mutants
from draftproof.cli import main as cli

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def train_tokenizer(chat: bool = True) -> PreTrainedTokenizerFast:
    """About 300 byte-level tokens; the ends of turns are special."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(
        ["the cat sat on the mat and the dog sat on the cat", "for x in values: total = total + x"],
        trainer,
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=SPECIAL[0], pad_token=SPECIAL[0]
    )
    if chat:
        tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(
    seed: int, tokenizer: PreTrainedTokenizerFast, layers: int = 2, **changes: Any
) -> LlamaForCausalLM:
    """Wide initial weights, so that the best token leads clearly."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = dict(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(LlamaConfig(**shape | changes)).eval()


def save(folder: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast | None) -> Path:
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer()


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    return save(tmp_path_factory.mktemp("target"), make_model(0, tokenizer), tokenizer)


@pytest.fixture(scope="session")
def draft(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    return save(tmp_path_factory.mktemp("draft"), make_model(1, tokenizer, layers=1), tokenizer)


@pytest.fixture(scope="session")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target's weights with a template that takes tools and a variable, and no system
    message."""
    made = train_tokenizer()
    made.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not "
        "supported') }}{% endif %}"
        "{% if tools %}[{{ tools | map(attribute='function.name') | join }}]{% endif %}"
        + TEMPLATE
        + (
            "{% if add_generation_prompt and enable_thinking is defined and not "
            "enable_thinking %}(no){% endif %}"
        )
    )
    return save(tmp_path_factory.mktemp("thinking"), make_model(0, made), made)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A file for --tools."""
    (tmp_path / "tools.json").write_text(
        json.dumps([{"type": "function", "function": {"name": "sit"}}])
    )
    return tmp_path / "tools.json"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No hub in reach, a cache of the test's own, and no word of how long loading takes."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "cache"))
    # a busy machine makes no line where one is expected
    monkeypatch.setattr("draftproof.cli.progress.QUIET_SECONDS", 600)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line that is wrong; the one sentence it got, nothing on standard output."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert code == 2, captured
        assert captured.out == ""
        lines = captured.err.strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("draftproof: "), captured.err
        return lines[0]

    return run


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Run a command line with --json; the document on the last line of standard output."""

    def run(*arguments: object) -> dict[str, Any]:
        code = cli.run([*(str(argument) for argument in arguments), "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        loaded: dict[str, Any] = json.loads(captured.out.splitlines()[-1])
        return loaded

    return run


@pytest.fixture
def few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cells of rule `token` and one planted fault, seen in NumPy's numbers alone, for all
    that `audit` proves."""
    few = table.covering(["token"])[:3]
    monkeypatch.setattr(table, "covering", lambda rules: few)
    for module, name in (
        *((table, "tree_covering"), (table, "guessed_covering"), (table, "sibling_covering")),
        *((cells, "other_covering"), (cells, "head_covering"), (cells, "length_covering")),
    ):
        monkeypatch.setattr(module, name, lambda rules: [])
    fault = next(mutant for mutant in tree_mutants.MUTANTS if mutant.name == "missing bonus")
    monkeypatch.setattr(tree_mutants, "MUTANTS", (fault,))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines = [
        {"prompt": "the cat sat on the mat and the cat sat on the", "category": c}
        for c in ("qa", "writing", "stem")
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file
