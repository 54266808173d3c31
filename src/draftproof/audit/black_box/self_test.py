"""The audit audited: engines that are known to be exact or faulty, over small models, and how often
it says so.

Error rates are measured at a size that is fixed before: false alarms over many short runs of exact
engines, misses over runs of each fault at 1.5 times the tokens that the best single test is known
to need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from draftproof.audit.black_box.evidence import Evidence
from draftproof.audit.black_box.toys import (
    EXACT,
    FAULTY,
    Chain,
    Engine,
    thousand_tokens,
    three_tokens,
)
from draftproof.audit.verdict import significant
from draftproof.report.result import Column, Result

NEEDED: Mapping[str, Mapping[str, int]] = {
    "3 tokens": {
        "no residual": 200,
        "keep verifying": 252,
        "inverted ratio": 50,
        "arg max check": 1007,
        "draft T=.7, ratio T=1": 6397,
        "off by one": 79,
        "match, fresh redraw": 1269,
        "draft noise reused": 200,
    },
    "1,000 tokens": {
        "no residual": 399,
        "keep verifying": 100,
        "inverted ratio": 63,
        "arg max check": 159,
        "draft T=.7, ratio T=1": 126,
        "off by one": 50,
        "match, fresh redraw": 4030,
        "bonus at T=.7": 2539,
    },
}
"""Tokens that the best single test on texts alone needed, at level 1e-3 with power 0.8, over
comparable models. Without an entry none of them saw the fault in 20,000."""
ALLOWED = 1.5
LEVEL = 1e-3
EASY_LEVEL = 0.05
"""A level at which false alarms are frequent enough to be counted."""


def chains() -> dict[str, Chain]:
    """The two models, by name."""
    return {"3 tokens": three_tokens(), "1,000 tokens": thousand_tokens()}


@dataclass(frozen=True)
class Tried:
    """One engine over one model. tokens: of a run. found, found_easily: runs called not exact at
    `LEVEL`, at `EASY_LEVEL`."""

    engine: str
    model: str
    exact: bool
    tokens: int
    runs: int
    found: int
    found_easily: int

    @property
    def as_it_should(self) -> bool:
        """Exact: no more alarms than the level makes likely (99.9%). Faulty: found in half of the
        runs at least."""
        if not self.exact:
            return 2 * self.found >= self.runs
        pairs = ((self.found, LEVEL), (self.found_easily, EASY_LEVEL))
        return all(count <= stats.binom.isf(1e-3, self.runs, level) for count, level in pairs)


def try_engine(
    name: str, engine: Engine, model: str, chain: Chain, tokens: int, runs: int, seed: int = 0
) -> Tried:
    """`runs` audits of `tokens` tokens each."""
    found = easily = 0
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        findings = evidence_of(engine, chain, tokens, rng).findings()
        found += bool(significant(findings, LEVEL))
        easily += bool(significant(findings, EASY_LEVEL))
    return Tried(name, model, name in EXACT, tokens, runs, found, easily)


def evidence_of(engine: Engine, chain: Chain, tokens: int, rng: np.random.Generator) -> Evidence:
    """One text, scored."""
    evidence = Evidence()
    evidence.begin_text()
    for mark in chain.marks(engine.stream(chain, tokens, rng), rng):
        evidence.see(mark)
    return evidence


def self_test(
    exact_runs: int = 60,
    exact_tokens: int = 300,
    faulty_runs: int = 6,
    tell: Callable[[str, int, int], None] | None = None,
) -> list[Tried]:
    """Every exact engine and every fault over both models; under a minute with the numbers
    given."""
    plan: list[tuple[str, Engine, str, int, int]] = []
    for model, needed in NEEDED.items():
        runs = exact_runs if model == "3 tokens" else exact_runs // 4
        plan += [(name, engine, model, exact_tokens, runs) for name, engine in EXACT.items()]
        plan += [
            (name, FAULTY[name], model, int(ALLOWED * tokens), faulty_runs)
            for name, tokens in needed.items()
        ]
    models, found = chains(), []
    for number, (name, engine, model, tokens, runs) in enumerate(plan):
        if tell is not None:
            tell(f"{name}, {model}", number, len(plan))
        found.append(try_engine(name, engine, model, models[model], tokens, runs))
    return found


def result_of(tried: list[Tried]) -> Result:
    """For a terminal and for JSON."""
    columns = (
        Column("engine", "engine"),
        Column("model", "model"),
        Column("tokens", "tokens", "d"),
        Column("runs", "runs", "d"),
        Column("not exact\nat 1e-3", "found", "d"),
        Column("not exact\nat 0.05", "found_easily", "d"),
        Column("as it should", "word"),
    )
    rows: list[dict[str, Any]] = [
        vars(one) | {"word": "yes" if one.as_it_should else "NO"} for one in tried
    ]
    exact = [one for one in tried if one.exact]
    faulty = [one for one in tried if not one.exact]
    alarms, runs = sum(one.found for one in exact), sum(one.runs for one in exact)
    easily = sum(one.found_easily for one in exact)
    misses, shots = sum(one.runs - one.found for one in faulty), sum(one.runs for one in faulty)
    notes = (
        f"exact engines: {alarms} of {runs} runs called not exact at level {LEVEL:g}, "
        f"{easily} at level {EASY_LEVEL:g}; at most {LEVEL * runs:.2g} and "
        f"{EASY_LEVEL * runs:.2g} are to be expected, and so many at the first have a chance of "
        f"{stats.binom.sf(alarms - 1, runs, LEVEL):.2g} where the level is kept",
        (
            f"faulty engines: {misses} of {shots} runs missed at {ALLOWED} times the tokens "
            "that the best single test needs"
        ),
    )
    data = {"exact": all(one.as_it_should for one in tried)}
    return Result(
        "self_test",
        "The audit of texts, tried on engines that are known",
        columns,
        rows,
        notes,
        lambda _: None,
        data,
    )
