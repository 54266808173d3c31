"""Acceptance that is not independent: tokens per round in a Markov chain, against the formula at
the average alpha.

Two chains: the lab's, whose overlap hardly depends on the last token, and one of long easy and hard
stretches. Simulated, exact (core/markov.py), and the closed formula with alpha averaged over the
target's own text, as teacher forcing measures it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from draftproof.core.formulas import acceptance_rate, expected_tokens
from draftproof.core.markov import round_starts, stationary, tokens_per_round
from draftproof.experiments.exact import QuickChance
from draftproof.experiments.rounds import play_round
from draftproof.experiments.toy import DRAFT_CHAIN, TARGET_CHAIN
from draftproof.report.figures import BLACK, BLUE, ORANGE, panels
from draftproof.report.result import Column, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = range(1, 7)
STRETCHES_TARGET = np.array(
    [
        [0.56, 0.40, 0.02, 0.02],
        [0.40, 0.56, 0.02, 0.02],
        [0.02, 0.02, 0.66, 0.30],
        [0.02, 0.02, 0.30, 0.66],
    ]
)
STRETCHES_DRAFT = np.array(
    [
        [0.54, 0.42, 0.02, 0.02],
        [0.42, 0.54, 0.02, 0.02],
        [0.34, 0.34, 0.16, 0.16],
        [0.34, 0.34, 0.16, 0.16],
    ]
)
HARD = [2, 3]
CHAINS = {
    "lab's chain": (TARGET_CHAIN, DRAFT_CHAIN),
    "easy and hard stretches": (STRETCHES_TARGET, STRETCHES_DRAFT),
}


def markov(*, seed: int = 0, runs: int = 20_000) -> Result:
    """runs: simulated rounds for each chain and draft length."""
    rng = np.random.default_rng(seed)
    rows = [
        row
        for name, (target, draft) in CHAINS.items()
        for row in _rows(name, target, draft, runs, rng)
    ]
    alphas = {name: average_alpha(target, draft) for name, (target, draft) in CHAINS.items()}
    last = rows[-1]
    return Result(
        "markov",
        "Tokens per round when acceptance depends on the text",
        (
            Column("chain", "chain"),
            Column("drafts", "num_speculative_tokens", "d"),
            Column("simulated", "simulated", ".3f"),
            Column("exact", "exact", ".3f"),
            Column("formula at the\naverage alpha", "formula", ".3f"),
            Column("formula\nis off by", "error", "+.1%"),
        ),
        rows,
        (
            "Average alpha over the target's text: "
            + ", ".join(f"{name} {alpha:.3f}" for name, alpha in alphas.items())
            + ".",
            "Where alpha hardly changes along the text, the formula is as good as exact.",
            f"With stretches it promises too much: {last['formula']:.2f} tokens at "
            f"{last['num_speculative_tokens']} drafts "
            f"where {last['exact']:.2f} come. Hard text takes more rounds: it is "
            f"{_hard_tokens():.0%} of the tokens and "
            f"{_hard_starts(last['num_speculative_tokens']):.0%} of the places where a "
            "round begins.",
        ),
        lambda figure: _draw(figure, rows, alphas),
        {"average_alpha": alphas, "seed": seed, "rounds": runs},
    )


def exact_tokens_per_round(
    target: NDArray[np.float64], draft: NDArray[np.float64], k: int
) -> float:
    """Long-run tokens per round of the token rule on two tables of laws [vocab, vocab]."""
    return tokens_per_round(np.minimum(target, draft), np.maximum(target - draft, 0), target, k)


def simulated_tokens_per_round(
    target: NDArray[np.float64],
    draft: NDArray[np.float64],
    k: int,
    rounds: int,
    rng: np.random.Generator,
) -> float:
    """Mean over `rounds` consecutive rounds, from token 0."""
    chance, context, total = QuickChance(rng), (0,), 0
    for _ in range(rounds):
        tokens = play_round(lambda p: target[p[-1]], lambda p: draft[p[-1]], context, k, chance)
        context, total = (tokens[-1],), total + len(tokens)
    return total / rounds


def average_alpha(target: NDArray[np.float64], draft: NDArray[np.float64]) -> float:
    """Mean overlap over the text the target writes by itself."""
    return float(stationary(target) @ acceptance_rate(target, draft))


def _hard_tokens() -> float:
    return float(stationary(STRETCHES_TARGET)[HARD].sum())


def _hard_starts(k: int) -> float:
    target, draft = STRETCHES_TARGET, STRETCHES_DRAFT
    return float(
        round_starts(np.minimum(target, draft), np.maximum(target - draft, 0), target, k)[
            HARD
        ].sum()
    )


def _rows(
    name: str,
    target: NDArray[np.float64],
    draft: NDArray[np.float64],
    rounds: int,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    rows = []
    for k in LENGTHS:
        exact = exact_tokens_per_round(target, draft, k)
        formula = float(expected_tokens(average_alpha(target, draft), k))
        simulated = simulated_tokens_per_round(target, draft, k, rounds, rng)
        numbers = {
            "simulated": simulated,
            "exact": exact,
            "formula": formula,
            "error": formula / exact - 1,
        }
        rows.append({"chain": name, "num_speculative_tokens": k, **numbers})
    return rows


def _draw(figure: Figure, rows: list[dict[str, Any]], alphas: dict[str, float]) -> None:
    figure.suptitle("The formula wants one alpha; where text has stretches it promises too much")
    for axes, (name, alpha) in zip(panels(figure, 2), alphas.items(), strict=True):
        here = [row for row in rows if row["chain"] == name]
        drafts = [row["num_speculative_tokens"] for row in here]
        axes.plot(drafts, [row["exact"] for row in here], "-", color=BLUE, label="exact")
        axes.plot(drafts, [row["simulated"] for row in here], "o", color=BLACK, label="simulated")
        axes.plot(
            drafts,
            [row["formula"] for row in here],
            "--",
            color=ORANGE,
            label=f"formula at α = {alpha:.2f}",
        )
        axes.set(
            xlabel="drafts per round",
            ylabel="tokens per round",
            title=name,
            ylim=(1, None),
            xticks=drafts,
        )
        axes.legend(loc="lower right")
