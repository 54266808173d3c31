"""The scale-up notebook: a valid file without outputs, and cells that run in order on tiny
models."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from tiny import llama

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "lab_14_scale_up.ipynb"
BOOK: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in BOOK["cells"] if cell["cell_type"] == "code"]
SETTINGS = {
    "DTYPE": "float32",
    "DEVICE": "cpu",
    "NUM_PROMPTS": 2,
    "MAX_TOKENS": 12,
    "TIMED_STEPS": 3,
    "TEMPERATURES": (0.0, 0.7),
}


def test_the_file_is_a_notebook_of_format_4_with_nothing_stored() -> None:
    """What the format asks for, and that nobody's outputs were saved."""
    assert (BOOK["nbformat"], BOOK["nbformat_minor"]) == (4, 5) and BOOK["metadata"]["kernelspec"][
        "name"
    ] == "python3"
    ids = [cell["id"] for cell in BOOK["cells"]]
    assert len(set(ids)) == len(ids) and all(
        re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", name) for name in ids
    )
    for cell in BOOK["cells"]:
        assert cell["cell_type"] in ("markdown", "code") and isinstance(cell["metadata"], dict)
        assert all(line.endswith("\n") for line in cell["source"][:-1]) and not cell["source"][
            -1
        ].endswith("\n")
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            compile("".join(cell["source"]), cell["id"], "exec")
        else:
            assert set(cell) == {"cell_type", "id", "metadata", "source"}


def test_the_first_code_cell_holds_the_parameters_of_the_lab() -> None:
    first = next(cell for cell in BOOK["cells"] if cell["cell_type"] == "code")
    assert first["metadata"] == {"tags": ["parameters"]}
    values: dict[str, Any] = {}
    exec(CODE[0], values)
    assert (values["TARGET"], values["DRAFT"]) == (
        "Qwen/Qwen2.5-1.5B-Instruct",
        "Qwen/Qwen2.5-0.5B-Instruct",
    )
    assert (values["NUM_PROMPTS"], values["TIMED_STEPS"], values["TEMPERATURES"]) == (
        20,
        100,
        (0.0, 0.7),
    )
    assert set(SETTINGS) < set(values) and values["DTYPE"] == values["DEVICE"] == "auto"


def tiny_pair(folder: Path) -> dict[str, str]:
    """A target and, as its draft, the same weights shaken a little, both with a chat template;
    every other word is w0."""
    inner = Tokenizer(WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    inner.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} w1 {% endfor %}w2 w3"
    for name, noise in (("target", 0.0), ("draft", 0.02)):
        module = llama(max_position_embeddings=512)
        with torch.no_grad():
            for weight in module.parameters():
                weight += noise * torch.randn_like(weight)
        module.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {"TARGET": str(folder / "target"), "DRAFT": str(folder / "draft")}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The namespace after all cells, run in order with the parameters replaced, and what each cell
    printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for number, source in enumerate(CODE):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            exec(compile(source, f"cell {number}", "exec"), namespace)
        if number == 0:
            namespace |= SETTINGS | tiny_pair(tmp_path_factory.mktemp("pair"))
        printed.append(text.getvalue())
    return namespace | {"printed": printed}


def test_all_cells_run_and_all_but_the_parameters_show_something(ran: dict[str, Any]) -> None:
    assert len(ran["printed"]) == len(CODE) and all(ran["printed"][1:]) and not ran["printed"][0]


def test_there_are_twenty_prompts_of_each_kind(ran: dict[str, Any]) -> None:
    assert {name: len(contents) for name, contents in ran["CONTENTS"].items()} == {
        "code": 20,
        "chat": 20,
    }
    assert all(len(set(contents)) == 20 for contents in ran["CONTENTS"].values())
    for function in ran["FUNCTIONS"]:
        compile(function, "function", "exec")
        assert "->" not in function and function.startswith("def ")


def test_prediction_and_measurement_cover_every_workload_and_temperature(
    ran: dict[str, Any],
) -> None:
    keys = {
        (name, temperature) for name in ("code", "chat") for temperature in SETTINGS["TEMPERATURES"]
    }
    assert ran["alpha"].keys() == ran["prediction"].keys() == ran["measured"].keys() == keys
    assert (
        all(0 <= rate <= 1 for rate in ran["alpha"].values()) and ran["c"] > 0 and ran["v"][1] == 1
    )
    for key in keys:
        tokens, _ = ran["prediction"][key]
        assert tokens == pytest.approx(
            sum(ran["alpha"][key] ** i for i in range(ran["NUM_DRAFT"] + 1))
        )
        for arm in ("plain", "speculative"):
            assert [len(result.token_ids) for result in ran["measured"][key][arm]] == [12, 12]


def test_greedy_answers_are_plain_ones(ran: dict[str, Any]) -> None:
    assert "code: 2 of 2 greedy answers are the same" in "".join(ran["printed"])
    for name in ("code", "chat"):
        arms = ran["measured"][name, 0.0]
        assert sum(r.stats.num_accepted_tokens for r in arms["speculative"]) > 0
        assert [r.token_ids for r in arms["plain"]] == [r.token_ids for r in arms["speculative"]]


def test_transformers_own_decodes_the_same_greedy_text(ran: dict[str, Any]) -> None:
    prompt = ran["WORKLOADS"]["code"][0]
    theirs = ran["assisted"](prompt, ran["params"](0.0, 0))
    assert theirs.token_ids == ran["measured"]["code", 0.0]["plain"][0].token_ids


def test_a_difference_is_found_with_the_gap_behind_it(ran: dict[str, Any]) -> None:
    plain = ran["measured"]["chat", 0.0]["plain"][0]
    other = ran["Assisted"]((*plain.token_ids[:5], (plain.token_ids[5] + 1) % 64), 1.0)
    place, gap = ran["first_difference"](plain, other)
    assert place == 5 and gap > 0 and ran["first_difference"](plain, plain) is None
