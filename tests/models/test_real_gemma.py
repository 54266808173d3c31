"""Gemma 3 270M, whose layers are sliding windows of 512 and full attention mixed: greedy text is
transformers' own, in fp32.

Run with `-m real`, once `gemma-3-270m.gguf` lies in the models folder of draftproof's cache."""

from __future__ import annotations

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.models.convert import cache_folder
from draftproof.models.hf import HFModel

FILE = cache_folder() / "models" / "gemma-3-270m.gguf"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not FILE.is_file(), reason="gemma-3-270m.gguf is not in the cache"),
]

CODE = '''def area(shape):
    """The area of a shape."""
    if shape.kind == "circle":
        return 3.14159 * shape.radius ** 2
    if shape.kind == "square":
        return shape.side ** 2
    raise ValueError(f"unknown shape {shape.kind}")


'''
PROMPTS = {"short": "The capital of France is", "code": CODE, "past the window": CODE * 9}
NEW = 48


@pytest.fixture(scope="module")
def model():
    return HFModel.from_pretrained(str(FILE), dtype="float32", device="cpu")


@pytest.mark.parametrize("name", PROMPTS)
def test_greedy_text_is_transformers_own(model, name, capsys):
    kinds = [str(kind) for kind in model.layer_kinds]
    assert set(kinds) == {"sliding window of 512", "full attention"}
    ids = model.tokenizer(PROMPTS[name]).input_ids
    given = torch.tensor([ids])
    limits = dict(max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=0)
    expected = model.module.generate(given, attention_mask=torch.ones_like(given), **limits)[
        0, len(ids) :
    ].tolist()
    params = SamplingParams(temperature=0, max_tokens=NEW, min_tokens=NEW)
    for config in ({"num_speculative_tokens": 5}, {"num_speculative_tokens": 3, "tree": "2,2,1"}):
        decoder = SpeculativeDecoder(
            None, model, model.tokenizer, speculative_config={"method": "ngram", **config}
        )
        result = decoder.generate(ids, params)
        assert list(result.token_ids) == expected
        stats = result.stats
        with capsys.disabled():
            print(
                f"\n{name} ({len(ids)} tokens), {config}: {stats.tokens_per_round:.2f} "
                "tokens a round,"
                f" acceptance {stats.draft_acceptance_rate:.2f} over "
                f"{stats.num_draft_tokens} drafts"
            )
    assert list(SpeculativeDecoder(None, model).plain.generate(ids, params).token_ids) == expected
