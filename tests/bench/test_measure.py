"""Arms interleaved in alternating order, figures paired by prompt, flags for what makes a run
doubtful. No real clock."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.bench.arms import OurArm
from draftproof.bench.hygiene import load_flags, memory_flag
from draftproof.bench.run import measure, order_of
from draftproof.bench.runs import Chunk, Run, round_parts
from draftproof.bench.summary import document
from draftproof.bench.table import acceptance_result, bench_result, row, task_result
from draftproof.core.records import Round, Seconds
from draftproof.errors import UsageError
from draftproof.workloads.prompt_files import Encoded, Item

RING = [[1.0 if j == (i + 1) % 4 else 0.0 for j in range(4)] for i in range(4)]
PARAMS = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, seed=0)
PROMPTS = [
    Encoded(Item("x", workload, f"line {n}"), (n, n + 1))
    for n, workload in enumerate(("qa", "writing", "stem"))
]


class FakeArm:
    """Takes `seconds` for `tokens`; the first time of a prompt `first` times as long."""

    remembers = False
    rule: str | None = None
    lossless = True

    def __init__(
        self,
        name: str,
        seconds: float,
        *,
        tokens: int = 8,
        first: float = 1.0,
        method: str = "none",
    ) -> None:
        self.name, self.seconds, self.tokens, self.first = name, seconds, tokens, first
        self.method = method
        self.calls: list[tuple[int, ...]] = []

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        seconds = self.seconds * (1 if ids in self.calls[1:] else self.first)
        self.calls.append(ids)
        return Run(
            (1,) * self.tokens,
            "",
            seconds,
            (Chunk(seconds / 4, 1), Chunk(seconds, self.tokens - 1)),
        )

    def must_equal_plain(self, params: SamplingParams) -> bool:
        return False


def decoder() -> SpeculativeDecoder:
    return SpeculativeDecoder(None, TableModel(RING))


def measured(*arms: Any, repeats: int = 2, calibrate: Any = lambda: 0.01) -> dict[str, Any]:
    measurement = measure(arms, PROMPTS, PARAMS, repeats, calibrate=calibrate)
    return document(measurement, decoder(), {"dtype": "float32", "target": "t", "device": "cpu"})


def kinds(result: dict[str, Any]) -> list[str]:
    return [flag["kind"] for flag in result["flags"]]


def test_the_order_alternates_and_every_arm_is_first_as_often() -> None:
    arms: list[Any] = [FakeArm(name, 1) for name in "abc"]
    orders = ["".join(arm.name for arm in order_of(arms, turn)) for turn in range(6)]
    assert orders == ["abc", "cba", "bca", "acb", "cab", "bac"]
    assert sorted(order[0] for order in orders) == list("aabbcc")


def test_arms_are_interleaved_prompt_by_prompt_after_a_warm_up_that_does_not_count() -> None:
    plain, other = FakeArm("plain", 1.0), FakeArm("other", 1.0)
    told: list[str] = []
    measurement = measure(
        [plain, other],
        PROMPTS,
        PARAMS,
        2,
        progress=lambda what, *_: told.append(what),
        calibrate=lambda: 1,
    )
    assert [(m.arm, m.prompt) for m in measurement.runs[:4]] == [
        ("plain", 0),
        ("other", 0),
        ("other", 1),
        ("plain", 1),
    ]
    assert len(plain.calls) == 1 + 2 * len(PROMPTS) and len(measurement.of("plain")) == 2 * len(
        PROMPTS
    )
    assert told[:2] == ["warm-up, plain", "warm-up, other"] and told[-1] == "done"
    assert len(measurement.calibrations) == 2 * len(PROMPTS)


def test_ratios_are_paired_by_prompt_and_rates_are_per_token() -> None:
    result = measured(FakeArm("plain", 2.0), FakeArm("fast", 1.0), FakeArm("slow", 4.0))
    ratios = {arm["name"]: arm["ratio_to_plain"] for arm in result["arms"]}
    assert ratios["fast"] == pytest.approx({"median": 2, "low": 2, "high": 2})
    assert ratios["slow"]["median"] == pytest.approx(0.5)
    assert result["arms"][1]["tokens_per_second"] == pytest.approx(8)
    assert result["arms"][1]["decode_ratio_of_totals"] == pytest.approx(2)
    assert result["flags"] == []
    assert set(result["arms"][0]["tasks"]) == {"qa", "writing", "stem"}
    assert len(result["arms"][0]["runs"]) == 6 and result["arms"][0]["runs"][0]["chunks"]
    table = task_result(result)
    assert table is not None and len(table.rows) == 9


def test_a_repeated_prompt_that_is_faster_without_a_memory_is_flagged() -> None:
    """Spec-Bench#29: later runs of one prompt looked three times faster, because the first run's
    state was reused."""
    result = measured(FakeArm("plain", 1.0), FakeArm("reuses", 1.0, first=3.0), repeats=5)
    assert kinds(result) == ["repeats faster"] and result["flags"][0]["arm"] == "reuses"
    steady = measured(FakeArm("plain", 1.0), FakeArm("steady", 1.0, first=1.05), repeats=5)
    assert kinds(steady) == []
    # the machine itself became faster
    assert memory_flag("a", {0: [3.0, 1.0, 1.0]}, {0: [3.0, 1.0, 1.0]}) is None


def test_a_drafter_that_may_remember_is_not_flagged() -> None:
    store = FakeArm("store", 1.0, first=3.0)
    store.remembers = True
    assert kinds(measured(FakeArm("plain", 1.0), store, repeats=3)) == []


def test_load_that_moved_is_flagged() -> None:
    times = iter([1.0, 1.0, 1.0, 1.6, 1.7, 1.0])
    assert kinds(measured(FakeArm("plain", 1.0), calibrate=lambda: next(times))) == ["load moved"]
    assert load_flags([1.0] * 19 + [2.0]) == [] and load_flags([1.0, 9.0]) == []


def test_unequal_lengths_are_reported() -> None:
    result = measured(FakeArm("plain", 1.0), FakeArm("short", 1.0, tokens=6))
    assert (
        kinds(result) == ["unequal lengths"] and "plain 8, short 6" in result["flags"][0]["message"]
    )


class Wrong(OurArm):
    """Says it is exact, and changes a token."""

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        run = super().run(ids, params)
        return Run(
            (*run.token_ids[:3], (run.token_ids[3] + 1) % 4, *run.token_ids[4:]),
            "",
            run.seconds,
            run.chunks,
            run.rounds,
        )


def test_text_that_differs_where_it_should_not_is_flagged_with_its_gap() -> None:
    result = measured(
        OurArm("plain", decoder().plain), Wrong("wrong", decoder()), OurArm("right", decoder())
    )
    assert [flag["arm"] for flag in result["flags"] if flag["kind"] == "text differs"] == ["wrong"]
    assert {d["arm"] for d in result["differences"]} == {"wrong"}
    assert result["differences"][0]["position"] == 3 and result["differences"][0]["top2_gap"] > 0
    (message,) = [flag["message"] for flag in result["flags"] if flag["kind"] == "text differs"]
    assert (
        "on 3 prompts; the widest of them: A fault, not rounding: the target never gives" in message
    )


def slow_round(start: int, drafted: int, accepted: int) -> Round:
    parents = tuple(range(-1, drafted - 1))
    origins = ("draft",) * accepted + ("replacement",)
    seconds = Seconds(draft=0.5, draft_forward=0.45, verify=0.08, rest=0.02)
    return Round(
        start,
        (0,) * drafted,
        parents,
        (0,) * (accepted + 1),
        origins,
        accepted,
        min(accepted + 1, drafted),
        seconds=seconds,
    )


class RoundsArm(FakeArm):
    """Rounds of 10 drafts from a drafter as deep as the target, one of which is kept."""

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        rounds = tuple(slow_round(s, self.drafted, self.accepted) for s in range(4))
        total = 0.6 * 4
        return Run(
            (0,) * 8, "", total, (Chunk(0.6, 2), Chunk(total, 6)), rounds, 4, round_parts(rounds)
        )

    drafted, accepted = 10, 1


def test_a_slow_arm_shows_where_its_rounds_go_and_names_the_largest_term() -> None:
    """Slower than plain at every length: the report must say so, in which part, and what lies
    outside the forwards."""
    result = measured(FakeArm("plain", 0.8), RoundsArm("deep k=10", 0, method="draft_model"))
    arm = result["arms"][1]
    assert arm["milliseconds_per_round"] == pytest.approx(
        {"draft": 500, "verify": 80, "rest": 20, "outside_forwards": 70}
    )
    assert arm["largest_term"] == "draft" and arm["ratio_to_plain"]["median"] < 1
    shown = bench_result(result)
    assert any(
        "slower than plain decoding; the largest term of its rounds is draft" in note
        for note in shown.notes
    )
    assert row(arm)["tokens_per_round"] == 2.0
    assert arm["stats"]["acceptance_per_position"]["marginal"][0] == 1.0
    table = acceptance_result(result)
    assert table.rows[0]["drafted"] is None and table.rows[0]["first_ms"] > 0
    assert table.rows[1] == {
        "name": "deep k=10",
        "first_ms": 600.0,
        "token_ms": 300.0,
        "drafted": 10.0,
        "rate": 0.1,
        "memory": None,
        "by_position": "1.0 .00",
    }


def test_acceptance_of_100_percent_with_few_drafts_is_not_shown_alone() -> None:
    """A confidence cut-off that only proposes sure tokens: the share of rounds with a draft stands
    beside the rate."""

    class Sure(RoundsArm):
        def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
            rounds = (slow_round(0, 1, 1), *(slow_round(s, 0, 0) for s in range(9)))
            return Run(
                (0,) * 11, "", 1.0, (Chunk(0.1, 2), Chunk(1.0, 9)), rounds, 10, round_parts(rounds)
            )

    result = measured(FakeArm("plain", 1.0), Sure("cut-off", 0, method="draft_model"))
    stats = result["arms"][1]["stats"]
    assert stats["draft_acceptance_rate"] == 1.0 and stats[
        "share_of_rounds_with_draft"
    ] == pytest.approx(0.1)
    assert stats["tokens_per_round"] == pytest.approx(1.1)
    assert any(
        "only 10% of rounds had a draft, 100% of drafts accepted" in note
        for note in bench_result(result).notes
    )


class Interrupted(FakeArm):
    """The keyboard interrupts it in its `last` call."""

    def __init__(self, name: str, last: int) -> None:
        super().__init__(name, 1.0)
        self.last = last

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        if len(self.calls) + 1 == self.last:
            raise KeyboardInterrupt
        return super().run(ids, params)


def test_an_interrupted_measurement_keeps_the_prompts_that_every_arm_finished() -> None:
    """The first call is the warm-up, so the fifth is the first prompt's second repetition."""
    result = measured(FakeArm("plain", 1.0), Interrupted("cut", 5))
    assert kinds(result) == ["interrupted"] and "3 of 6" in result["flags"][0]["message"]
    assert [len(arm["runs"]) for arm in result["arms"]] == [3, 3]
    assert result["arms"][1]["ratio_to_plain"]["median"] == 1.0
    early = measured(FakeArm("plain", 1.0), Interrupted("cut", 3))
    assert "1 of 6" in early["flags"][0]["message"] and list(early["arms"][1]["tasks"]) == ["qa"]
    assert task_result(early) is None
    with pytest.raises(KeyboardInterrupt):
        measured(FakeArm("plain", 1.0), Interrupted("cut", 2))


class Failing(FakeArm):
    """Its fifth call fails."""

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        if len(self.calls) == 4:
            raise UsageError("the server broke off")
        return super().run(ids, params)


def test_an_arm_that_fails_ends_the_measurement_and_not_what_was_measured() -> None:
    measurement = measure(
        [FakeArm("plain", 1.0), Failing("bad", 1.0)], PROMPTS, PARAMS, 2, calibrate=lambda: 0.01
    )
    assert str(measurement.ended_by) == "the server broke off" and len(measurement.runs) == 2 * 3
    result = document(measurement, decoder(), {"dtype": "float32", "target": "t", "device": "cpu"})
    assert kinds(result) == ["interrupted"]
    assert (
        "because an arm failed (the server broke off): every arm ran 3 of 6"
        in result["flags"][0]["message"]
    )
    with pytest.raises(UsageError, match="broke off"):
        measure([FakeArm("plain", 1.0)], PROMPTS, PARAMS, calibrate=failing)


def failing() -> float:
    raise UsageError("it broke off at once")


class Silent(FakeArm):
    """Brings no token."""

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        return Run((), "", 1.0, ())


def test_an_arm_that_brings_no_token_has_no_ratio() -> None:
    result = measured(FakeArm("plain", 1.0), Silent("silent", 1.0))
    assert (
        result["arms"][1]["ratio_to_plain"] is None and result["arms"][1]["tokens_per_second"] == 0
    )
    assert kinds(result) == ["unequal lengths"] and bench_result(result).rows[1]["ratio"] == ""


def test_what_cannot_be_measured_is_refused_before_anything_runs() -> None:
    arm = FakeArm("plain", 1.0)
    for arms, prompts, params, said in (
        ([arm, arm], PROMPTS, PARAMS, "two arms"),
        ([arm], [], PARAMS, "no prompt"),
        ([arm], PROMPTS, SamplingParams(n=2, seed=0), "one text"),
        ([arm], PROMPTS, SamplingParams(), "needs a seed"),
    ):
        with pytest.raises(UsageError, match=said):
            measure(arms, prompts, params)
    assert arm.calls == []
