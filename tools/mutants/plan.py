"""Faults of foretelling: acceptance given a text, rounds over it, costs, and the advice made of
them."""

from __future__ import annotations

from mutants.fault import Fault

ROUNDS = ("plan/test_rounds.py",)
ACCEPTANCE = ("plan/test_acceptance.py",)
SIBLINGS = ("plan/test_siblings.py",)
COSTS = ("costs/test_timings.py",)
SCHEDULE = ("plan/test_schedule.py",)

PLAN: tuple[Fault, ...] = (
    Fault(
        "plan/acceptance.py",
        'if foretold(self.rule).chain == "draw"\n',
        "if False\n",
        "`match` is foretold as `token`",
        ACCEPTANCE,
    ),
    Fault(
        "plan/acceptance.py",
        "draft_laws[row] * (target[row] / draft[row])\n",
        "draft_laws[row]\n",
        "shared noise is foretold as if target and draft gave the token alike",
        ACCEPTANCE,
    ),
    Fault(
        "plan/acceptance.py",
        "held = count if count in self.counts else self.width",
        "held = self.width",
        "nodes of few children are judged as those of many",
        (*SIBLINGS, *ACCEPTANCE),
    ),
    Fault(
        "plan/siblings.py",
        "common = np.minimum(q, p / division_factor(p, q, count))",
        "common = np.minimum(q, p)",
        "K-SEQ is foretold with rho = 1",
        SIBLINGS,
    ),
    Fault(
        "plan/siblings.py",
        "found[:] = q[x] * (1 - q[x]) ** np.arange(count)",
        "found[:] = q[x]",
        "a sibling equal to one before it counts again",
        SIBLINGS,
    ),
    Fault(
        "plan/siblings.py",
        "tried, p = tried * remaining, left / remaining",
        "tried, p = tried * remaining, left",
        "what a rejection leaves is not normalised",
        SIBLINGS,
    ),
    Fault(
        "plan/siblings.py",
        "passed[x] = 0.0",
        "passed[x] = passed[x]",
        "a rejected token may be accepted later",
        SIBLINGS,
    ),
    Fault(
        "plan/siblings.py",
        "weights[x] = 1.0\n",
        "pass\n",
        "the token itself has no weight under shared noise",
        SIBLINGS,
    ),
    Fault(
        "plan/rounds.py",
        "if _catches_up(lengths, s, width):",
        "if width > 1:",
        "a draft model catches up where nothing more is drafted",
        ROUNDS,
    ),
    Fault(
        "plan/rounds.py",
        "first_tokens = float(moves[0] @ np.arange(1, k + 2))",
        "first_tokens = float(moves[0] @ np.arange(k + 1))",
        "the first round's bonus is left out",
        ROUNDS,
    ),
    Fault(
        "plan/rounds.py",
        "lengths = np.minimum(np.minimum(trace.drafted, k), np.arange(n - 1, -1, -1))",
        "lengths = np.minimum(trace.drafted, k)",
        "drafts reach past the end of the text",
        ROUNDS,
    ),
    Fault(
        "plan/rounds.py",
        "return float(self.by_drafts.sum()) + 1.0",
        "return float(self.by_drafts.sum())",
        "the first round is not counted",
        ROUNDS,
    ),
    Fault(
        "plan/rounds.py",
        "kept = np.minimum(1.0, np.minimum.accumulate(np.cumprod(ratios, axis=1), axis=1))",
        "kept = np.minimum(1.0, np.cumprod(ratios, axis=1))",
        "a later ratio makes up for an earlier one",
        (*ROUNDS, *ACCEPTANCE),
    ),
    Fault(
        "plan/rounds.py",
        "reached[parent] * padded[len(children)][level - 1 : level - 1 + n, place]",
        "reached[parent] * padded[len(children)][level : level + n, place]",
        "a level of a tree is judged at the next token",
        (*ROUNDS, *SIBLINGS),
    ),
    Fault(
        "plan/rounds.py",
        (
            'emitted = 1 + min(int(np.searchsorted(running[s], coins[s], side="right")), '
            "int(lengths[s]))"
        ),
        (
            'emitted = min(int(np.searchsorted(running[s], coins[s], side="right")), '
            "int(lengths[s])) or 1"
        ),
        "a played round emits no bonus",
        ROUNDS,
    ),
    Fault(
        "plan/predict.py",
        "tokens = sum(e.num_tokens - e.first_tokens for e in expected)",
        "tokens = sum(e.num_tokens for e in expected)",
        "tokens of the first round count against no time",
        ("plan/test_predict.py",),
    ),
    Fault(
        "plan/predict.py",
        "+ costs.table.read * run.catch_ups",
        "+ 0 * costs.table.read * run.catch_ups",
        "catching up costs nothing",
        ("plan/test_predict.py", "costs/test_timings.py"),
    ),
    Fault(
        "plan/predict.py",
        "return np.array([costs.plain, *drafting])",
        "return np.array([1.0 + costs.table.fixed, *drafting])",
        "a plain round costs what a drafting one does",
        (*COSTS, "plan/test_predict.py"),
    ),
    Fault(
        "costs/timings.py",
        "return self.cost_ratio * max(0.0, ratio - 1)",
        "return self.cost_ratio * ratio",
        "catching up costs a whole pass",
        COSTS,
    ),
    Fault(
        "costs/outside_passes.py",
        "if slope < 0 or fixed < 0:",
        "if fixed < 0:",
        "rounds may become cheaper by drafting more",
        COSTS,
    ),
    Fault(
        "plan/schedule.py",
        'if c["speedup"]["low"] >= 1\n',
        'if c["speedup"]["point"] >= 1\n',
        "a length is taken whose interval reaches below 1",
        SCHEDULE,
    ),
    Fault(
        "plan/schedule.py",
        "if speedup > top * (1 + least_gain):",
        "if speedup > top:",
        "a longer draft is taken for next to no gain",
        SCHEDULE,
    ),
    Fault(
        "plan/forcing.py",
        "agree: Floats = (ours == theirs).astype(np.float64)",
        "agree: Floats = (ours != theirs).astype(np.float64)",
        "at temperature 0 agreement is taken for its opposite",
        ("plan/test_alpha.py",),
    ),
    Fault(
        "plan/forcing.py",
        "context = (*text.prompt, *text.answer[: place.first])",
        "context = text.prompt",
        "penalties do not see the answer before a block",
        ("plan/test_forcing.py",),
    ),
    Fault(
        "plan/replay.py",
        "            if shown.text.own\n            else overlap(ours, theirs)\n",
        "",
        "a given answer is judged as if the target had written it",
        ("plan/test_replay.py",),
    ),
    Fault(
        "plan/replay.py",
        "        if not law[token] > 0:\n            raise _LeftTheText\n",
        "",
        "a replayed draft follows the text where its law gives it nothing",
        ("plan/test_replay.py",),
    ),
    Fault(
        "plan/advice.py",
        "pays = np.flatnonzero(gains.max(axis=1) >= 1)",
        "pays = np.flatnonzero(gains.min(axis=1) >= 1)",
        "every length must break even, not one",
        ("plan/test_advice.py",),
    ),
)
