"""Tie or fault: the gap between two tokens against what longer passes of this very model move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from draftproof import SamplingParams, TableModel
from draftproof.decode.ties import judge
from draftproof.models.hf import HFModel
from draftproof.models.protocol import LanguageModel, Output, Step
from tiny import llama

GREEDY = SamplingParams(temperature=0)
PROMPT, COMMON = [5, 9, 2, 40], [7, 7, 31, 8, 19, 3]


def target(dtype: torch.dtype, apart: float, scale: float = 1.0) -> tuple[LanguageModel, int, int]:
    """A model whose best token after the text and another one have logits that differ by
    `apart`."""
    module = llama(dtype=torch.float64)
    with torch.no_grad():
        module.lm_head.weight *= scale
        seen = module.model(input_ids=torch.tensor([PROMPT + COMMON])).last_hidden_state[0, -1]
        best = int((module.lm_head.weight @ seen).argmax())
        other = (best + 1) % 64
        module.lm_head.weight[other] = module.lm_head.weight[best] - apart * seen / (seen @ seen)
    return HFModel(module.to(dtype)), best, other


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gap_that_rounding_can_close_is_a_tie(dtype: torch.dtype) -> None:
    """In float32 too: 1e-6 is less than what passes of several rows move there."""
    model, best, other = target(dtype, 1e-7 if dtype == torch.float32 else 1e-3, scale=30)
    found = judge(model, PROMPT, COMMON, best, other, GREEDY)
    assert found.verdict == "tie" and found.gap is not None and found.gap <= 2 * found.noise
    assert "A tie: the two tokens are" in found.why and f"{found.noise:.2g}" in found.why


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_nine_nats_are_a_fault_in_every_dtype(dtype: torch.dtype) -> None:
    model, best, other = target(dtype, 9.0, scale=4)
    found = judge(model, PROMPT, COMMON, best, other, GREEDY)
    assert found.verdict == "fault" and found.gap == pytest.approx(9.0, abs=0.5) and found.noise < 2
    assert found.why.startswith("A fault, not rounding: the two tokens are 9")


def test_the_gap_is_between_the_two_tokens_not_the_best_two() -> None:
    """Two tokens tie at the top, and a third one came out."""
    model, best, _ = target(torch.float32, 0.0, scale=30)
    third = (best + 2) % 64
    assert judge(model, PROMPT, COMMON, best, third, GREEDY).verdict == "fault"


def test_a_model_that_computes_something_else_in_longer_passes_is_no_tie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one whose position encoding follows the highest position of the pass: 0.49 in float32 is
    no rounding."""
    model, best, other = target(torch.float32, 0.2)
    honest = type(model).extend_many

    def switched(self: Any, steps: Sequence[Step]) -> list[Output]:
        outputs = honest(self, steps)
        for step, output in zip(steps, outputs, strict=True):
            if len(step.tokens) > 1 and len(output.logits):
                output.logits[:, best] += 0.49
        return outputs

    monkeypatch.setattr(type(model), "extend_many", switched)
    found = judge(model, PROMPT, COMMON, best, other, GREEDY)
    assert found.noise == pytest.approx(0.49, abs=1e-3)
    assert found.verdict == "fault" and "0.49 nats, which no rounding of float32 does" in found.why


def test_without_any_noise_every_gap_is_a_fault() -> None:
    table = TableModel([[0.3, 0.3 + 1e-7, 0.4 - 1e-7]] * 3)
    found = judge(table, [0], [], 1, 0, GREEDY)
    assert (found.verdict, found.noise) == ("fault", 0.0) and found.gap == pytest.approx(
        1e-7 / 0.3, rel=1e-3
    )
    assert judge(TableModel([[0.3, 0.3, 0.4]] * 3), [0], [], 1, 0, GREEDY).verdict == "tie"


def test_what_processors_do_to_the_two_tokens_counts() -> None:
    table = TableModel([[0.25, 0.5, 0.25]] * 3)
    assert judge(table, [0], [], 0, 2, GREEDY).verdict == "tie"
    assert judge(
        table, [0], [], 0, 2, SamplingParams(temperature=0, logit_bias={2: 3.0})
    ).gap == pytest.approx(3.0)


def test_a_text_that_ended_and_texts_that_are_drawn() -> None:
    table = TableModel([[0.25, 0.5, 0.25]] * 3)
    ended = judge(table, [0], [], 1, None, GREEDY)
    assert (ended.verdict, ended.gap) == ("fault", None)
    assert judge(table, [0], [], 0, 2, SamplingParams(temperature=1)).verdict == "drawn"


def test_a_token_that_is_impossible_is_a_fault() -> None:
    """And no infinity stands in a document."""
    table = TableModel([[0.5, 0.5, 0.0]] * 3)
    found = judge(table, [0], [1, 1, 0, 1], 1, 2, GREEDY)
    assert (found.verdict, found.gap, found.noise) == (
        "fault",
        None,
        0.0,
    ) and "never gives" in found.why
