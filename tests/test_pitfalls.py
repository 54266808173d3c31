"""Pitfalls that no other test guards, and the promise of docs/pitfalls.md that every test it names
exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.decode.passes import drive
from draftproof.models.hf import HFModel
from generations import generation_of
from tiny import fresh_logits, llama

ROOT = Path(__file__).resolve().parent.parent
PROMPT = (1, 2, 3, 1, 2)
DRAFTING: dict[str, dict[str, Any]] = {
    "draft_model": {"num_speculative_tokens": 4},
    "ngram": {"method": "ngram", "num_speculative_tokens": 4},
}


def counted(model: HFModel) -> list[int]:
    """How many tokens the module reads in each of its passes from now on; the adapter's own
    bookkeeping is not asked."""
    passes: list[int] = []
    model.module.register_forward_pre_hook(
        lambda module, args, kwargs: passes.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    return passes


@pytest.mark.parametrize("temperature", [0, 1.3])
@pytest.mark.parametrize("method", DRAFTING)
def test_the_target_reads_every_token_once(method: str, temperature: float) -> None:
    """Prompt and emitted tokens, all but the last, which nobody has to read; and besides them the
    rejected drafts."""
    target = HFModel(llama(torch.float64))
    draft = HFModel(llama(torch.float64, seed=3)) if method == "draft_model" else None
    made = SpeculativeDecoder(draft, target, speculative_config=DRAFTING[method])
    passes = counted(target)
    stats = made.generate(
        PROMPT, SamplingParams(temperature=temperature, max_tokens=60, seed=2)
    ).stats
    rejected = stats.num_draft_tokens - stats.num_accepted_tokens
    assert len(passes) == stats.num_rounds
    assert sum(passes) == len(PROMPT) + stats.num_emitted_tokens - 1 + rejected
    assert rejected > 0


@pytest.mark.parametrize("temperature", [0, 1.3])
@pytest.mark.parametrize("draft_seed", [0, 3])
def test_the_draft_model_takes_one_step_for_each_draft(draft_seed: int, temperature: float) -> None:
    """And reads no token twice, except that a rejected one may have been read in vain."""
    draft = HFModel(llama(torch.float64, seed=draft_seed))
    made = SpeculativeDecoder(
        draft, llama(torch.float64), speculative_config=DRAFTING["draft_model"]
    )
    passes = counted(draft)
    stats = made.generate(
        PROMPT, SamplingParams(temperature=temperature, max_tokens=60, seed=2)
    ).stats
    assert len(passes) == stats.num_draft_tokens > 40
    assert (
        sum(passes)
        <= len(PROMPT)
        + stats.num_emitted_tokens
        + stats.num_draft_tokens
        - stats.num_accepted_tokens
    )


def test_after_a_perfect_round_the_draft_has_read_all_of_it() -> None:
    """The law of the next round's first draft is that of a fresh pass over the whole text."""
    module = llama(torch.float64)
    made = SpeculativeDecoder(
        HFModel(module), HFModel(module), speculative_config=DRAFTING["draft_model"]
    )
    session = made.target.open()
    generation = generation_of(made, session, PROMPT, SamplingParams(max_tokens=40, seed=1))
    laws: list[Any] = []
    verify = generation.rule.verify

    class Watched(type(generation.rule)):  # type: ignore[misc]
        def verify(self, draft: Any, target_laws: Any, chance: Any) -> Any:
            laws.append(draft.laws[-1])
            return verify(draft, target_laws, chance)

    generation.rule = Watched()
    for _ in range(3):
        text = list(generation.context)
        record = drive(generation.round())
        assert record.num_accepted_tokens == len(record.draft_tokens) == 4
        expected = torch.softmax(fresh_logits(module, text)[-1], -1)
        torch.testing.assert_close(torch.as_tensor(laws[-1]).double(), expected, rtol=0, atol=1e-6)
    session.close()


NAMED = re.findall(
    r"\[`(tests/[\w/]+\.py)::(\w+)`\]\(\.\./(tests/[\w/]+\.py)\)",
    (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8"),
)


@pytest.mark.parametrize(("file", "name", "link"), NAMED)
def test_every_test_that_the_page_names_exists(file: str, name: str, link: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name.startswith("test_") and file == link
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_pitfall_on_the_page_names_its_test() -> None:
    page = (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8")
    pitfalls = re.split(r"^- ", page, flags=re.MULTILINE)[1:]
    assert len(pitfalls) > 30 and len(set(NAMED)) > 25
    for pitfall in pitfalls:
        assert "::test_" in pitfall and pitfall.startswith("**"), pitfall
    assert len(re.findall("::test_", page)) == len(NAMED)
