"""The roofline model: its shape on an H100, mixtures of experts, and every piece by hand."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.core.formulas import expected_speedup
from draftproof.errors import UsageError
from draftproof.simulate.batch import BatchModel, distinct_experts, pass_seconds
from draftproof.simulate.curves import batch_result
from draftproof.simulate.presets import CARDS, MODELS, card, model

H100 = CARDS["H100-SXM"]
LLAMA = BatchModel(H100, MODELS["Llama-3.1-8B"], MODELS["Llama-3.2-1B"])
MIXTURE = BatchModel(H100, MODELS["Qwen3-30B-A3B"], MODELS["Qwen3-0.6B"], overhead_seconds=0)


def test_speed_over_the_batch_on_an_h100_with_short_and_long_context() -> None:
    """alpha 0.8, best length: near 2x at batch 1, near 1.25x at 256 with 1k of context, still near
    1.65x with 32k."""
    short = [LLAMA.row(0.8, b, 1024)["speedup"] for b in (1, 32, 128, 256)]
    long = [LLAMA.row(0.8, b, 32768)["speedup"] for b in (1, 32, 128, 256)]
    assert short == pytest.approx([1.97, 1.90, 1.56, 1.25], abs=0.03)
    assert long == pytest.approx([1.90, 1.71, 1.67, 1.66], abs=0.03)


def test_with_long_context_a_self_draft_of_short_memory_gains_with_the_batch() -> None:
    """The model drafts for itself over 512 tokens of cache, alpha 0.85: 1.03x at batch 1, 2.6x at
    32, above 3.5x at 128."""
    own = BatchModel(H100, LLAMA.target, LLAMA.target, draft_context=512)
    assert own.row(0.85, 1, 32768)["speedup"] == pytest.approx(1.03, abs=0.02)
    assert own.row(0.85, 32, 32768)["speedup"] == pytest.approx(2.6, abs=0.06)
    assert own.row(0.85, 128, 32768)["speedup"] > 3.5
    assert own.row(0.85, 256, 1024)["speedup"] < 1.1
    assert (
        own.memory_bytes(1, 1024)
        == LLAMA.target.weight_bytes + 1024 * LLAMA.target.cache_bytes_per_token
    )


def test_experts_reached_by_some_tokens() -> None:
    """E = 128, k = 8: 1.94 times as many at 2 tokens, 3.6 at 4, 6.5 at 8, close to the 16-fold
    ceiling at 64."""
    assert distinct_experts(128, 8, [1, 2, 4, 8]) / 8 == pytest.approx(
        [1, 1.94, 3.64, 6.45], abs=0.005
    )
    assert 15.7 < distinct_experts(128, 8, 64) / 8 < 16
    assert distinct_experts(1, 1, [1, 50]) == pytest.approx([1, 1])


def test_verifying_with_a_mixture_is_dearest_at_small_batches() -> None:
    """Four tokens against one: 2.4 at batch 1, 2.5 at 4, 1.5 at 16, 1.02 at 64."""
    assert MIXTURE.verify_ratio([1, 4, 16, 64], 1, 4) == pytest.approx(
        [2.4, 2.5, 1.5, 1.02], abs=0.05
    )
    gains = [MIXTURE.row(0.8, b, 1024)["speedup"] for b in (1, 4, 32, 512)]
    assert gains[0] < 1.3 and gains[1] < 1.3 and gains[2] > 2 and gains[3] < gains[2]


def test_where_linear_layers_become_compute_bound() -> None:
    ridges = {
        name: CARDS[name].peak_flops / CARDS[name].memory_bandwidth
        for name in ("A100-SXM-80GB", "H100-SXM", "H200-SXM")
    }
    assert ridges == pytest.approx({"A100-SXM-80GB": 153, "H100-SXM": 295, "H200-SXM": 206}, abs=1)


def test_a_pass_by_hand() -> None:
    target = LLAMA.target
    one = pass_seconds(target, H100, 1, 1, 1, 0.0)
    assert one == pytest.approx(
        (target.weight_bytes + target.cache_bytes_per_token) / H100.memory_bandwidth
    )
    assert pass_seconds(target, H100, 1, 1, 1, 0.5) == pytest.approx(one + 0.5)
    many = pass_seconds(target, H100, 4096, 1, 1, 0.0)
    cache = 4096 * target.cache_bytes_per_token / H100.memory_bandwidth
    assert many == pytest.approx(2 * target.num_parameters * 4096 / H100.peak_flops + cache)
    wide = (
        pass_seconds(target, H100, 1, 10**6, 256, 0.0) - target.weight_bytes / H100.memory_bandwidth
    )
    assert wide == pytest.approx(4 * 32 * 4096 * 1e6 * 256 / H100.peak_flops)


def test_attention_of_grouped_heads_stays_free_to_verify_up_to_74_tokens() -> None:
    target = LLAMA.target
    limit = H100.peak_flops * target.cache_bytes_per_token / (4 * 32 * 4096 * H100.memory_bandwidth)
    assert limit == pytest.approx(74, abs=1)


def test_row_and_formula_agree() -> None:
    row = LLAMA.row(0.8, 64, 1024, 4)
    assert row["num_speculative_tokens"] == 4 and row["tokens_per_round"] == pytest.approx(3.3616)
    assert row["speedup"] == pytest.approx(
        expected_speedup(0.8, 4, row["cost_ratio"], row["verify_ratio"])
    )
    assert row["fits_card"] is True and LLAMA.row(0.8, 256, 32768)["fits_card"] is False


def test_the_best_length_is_no_worse_than_any_and_zero_when_nothing_pays() -> None:
    for batch in (1, 64, 512):
        best = LLAMA.row(0.8, batch, 1024)["speedup"]
        assert all(LLAMA.row(0.8, batch, 1024, k)["speedup"] <= best + 1e-12 for k in range(9))
    assert LLAMA.row(0.1, 512, 1024)["num_speculative_tokens"] == 0
    assert LLAMA.row(0.1, 512, 1024)["speedup"] == 1


def test_the_table_has_a_row_for_every_combination() -> None:
    rows = LLAMA.table([0.7, 0.8], [1, 2, 4], [1024, 4096])
    assert len(rows) == 12 and {row["alpha"] for row in rows} == {0.7, 0.8}
    assert {"alpha", "num_speculative_tokens", "batch", "tokens_per_round", "speedup"} <= rows[
        0
    ].keys()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((0, 1, 1), "batch must be at least 1"),
        ((1, 0, 1), "context must be at least 1"),
        ((1, 1, np.nan), "tokens must be"),
    ],
)
def test_sizes_that_cannot_be(arguments: tuple[float, float, float], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        pass_seconds(LLAMA.target, H100, *arguments)


def test_unknown_presets_and_negative_overhead_are_refused() -> None:
    with pytest.raises(UsageError, match="no preset card 'H900'; choose from H200-SXM"):
        card("H900")
    with pytest.raises(UsageError, match="no preset model 'gpt-9'; choose from Llama"):
        model("gpt-9")
    with pytest.raises(UsageError, match="overhead_seconds must be at least 0"):
        BatchModel(H100, LLAMA.target, LLAMA.draft, -1.0)


def test_every_curve_of_many_is_drawn() -> None:
    from matplotlib.figure import Figure

    found = batch_result(
        LLAMA, alphas=(0.5, 0.6, 0.7, 0.8), batches=(1, 8), contexts=(1024, 32768), length=4
    )
    drawn = Figure()
    found.draw(drawn)
    for axes in drawn.axes:
        curves = [
            line
            for line in axes.lines
            if len(line.get_xdata()) == 2 and str(line.get_label()).startswith("context")
        ]
        assert len({(line.get_color(), line.get_marker()) for line in curves}) == len(curves) == 8
