"""A drafter that always proposes its favourite, under sampled verification: exact with the right
law, biased with its softmax.

The draft law is the law the draft was drawn from. A favourite was drawn from a one-hot law:
acceptance is then the target's own probability of it, and the replacement is the target without it.
Putting the drafter's softmax into the ratio instead accepts too often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftproof.core.records import Array
from draftproof.experiments.exact import (
    empirical_law,
    exact_law,
    exact_round_length,
    sampled_tokens,
    tv,
)
from draftproof.experiments.rounds import one_hot, play_round, wrong
from draftproof.experiments.toy import PREFIX, chain_draft, chain_law, chain_target
from draftproof.report.figures import BLACK, BLUE, RED, panels
from draftproof.report.result import Column, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_TOKENS, DRAFTS = 2, 2
PROGRAMS = {
    "one-hot law in the ratio": wrong(draft_draw=one_hot, ratio_law=one_hot),
    "softmax in the ratio": wrong(draft_draw=one_hot),
    "sampled drafter, for comparison": play_round,
}


def greedy_drafter(*, seed: int = 0, runs: int = 30_000) -> Result:
    """runs: sampled pairs of tokens a program."""
    rng = np.random.default_rng(seed)
    models = (chain_target, chain_draft, PREFIX)
    exact = {name: exact_law(play, *models, NUM_TOKENS, DRAFTS) for name, play in PROGRAMS.items()}
    sampled = {
        name: empirical_law(sampled_tokens(play, *models, NUM_TOKENS, DRAFTS, runs, rng), 3)
        for name, play in PROGRAMS.items()
    }
    rows = [
        {
            "program": name,
            "tv_sampled": tv(sampled[name], chain_law()),
            "tv_exact": tv(exact[name], chain_law()),
            "tokens_per_round": exact_round_length(play, *models, DRAFTS),
        }
        for name, play in PROGRAMS.items()
    ]
    biased = rows[1]["tv_exact"]
    return Result(
        "greedy-drafter",
        "A drafter that proposes its favourite, verified while sampling",
        (
            Column("draft law used", "program"),
            Column(f"TV, {runs:,} runs", "tv_sampled", ".4f"),
            Column("TV, exact", "tv_exact", ".4f"),
            Column("tokens per\nround after 0", "tokens_per_round", ".3f"),
        ),
        rows,
        (
            "With the one-hot law the output is the target's, exactly.",
            (
                "With the softmax the favourite is accepted too often and the output is off "
                f"by TV {biased:.3f}."
            ),
        ),
        lambda figure: _draw(figure, exact),
        {
            "laws": {name: np.asarray(law).ravel().tolist() for name, law in exact.items()},
            "seed": seed,
        },
    )


def _draw(figure: Figure, exact: dict[str, NDArray[np.float64]]) -> None:
    axes = panels(figure, 1)[0]
    places = np.arange(chain_law().size)
    bars: list[tuple[str, Array, str]] = [
        ("target", chain_law(), BLACK),
        ("greedy drafter, one-hot law", exact["one-hot law in the ratio"], BLUE),
        ("greedy drafter, its softmax", exact["softmax in the ratio"], RED),
    ]
    for offset, (label, law, color) in zip((-0.28, 0.0, 0.28), bars, strict=True):
        axes.bar(places + offset, np.ravel(law), width=0.26, color=color, label=label)
    axes.set(
        xlabel="the two tokens after prefix (0,)",
        ylabel="probability",
        title="The draft law must be the law the draft was drawn from",
        ylim=(0, 0.42),
    )
    axes.set_xticks(places, [f"{a} {b}" for a in range(3) for b in range(3)])
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper right")
