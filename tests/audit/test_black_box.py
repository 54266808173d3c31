"""Texts of engines, scored by a local copy: exact ones pass, faulty ones do not, rounding is no
fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.black_box.copies import LocalCopy
from draftproof.audit.black_box.run import Plan, audit_black_box
from draftproof.audit.black_box.samples import Folder
from draftproof.audit.black_box.self_test import evidence_of
from draftproof.audit.black_box.toys import EXACT, FAULTY, Engine, thousand_tokens, three_tokens
from draftproof.audit.engines.callables import CallableEngine
from draftproof.audit.mutants import with_parts
from draftproof.core.chance import Purpose
from draftproof.core.records import Verdict
from draftproof.core.rules import RULES
from draftproof.errors import UsageError

PARAMS = SamplingParams(max_tokens=50, seed=0)
PLAN = Plan(num_texts=40, wanted=0.1)
CHAIN = thousand_tokens()


def models():
    return (
        TableModel(lambda prefix, law=law: law(prefix), vocab_size=1000)
        for law in (CHAIN.target, CHAIN.draft)
    )


def played(engine: Engine, chain=CHAIN, tokens: int = 50) -> CallableEngine:
    """The engine as a callable; every text has a generator of its own."""
    return CallableEngine(
        lambda prompt, seed: engine.stream(chain, tokens, np.random.default_rng(seed))[1:], "toy"
    )


def audited(engine, *, plan=PLAN, knows_draft=True, control=None, params=PARAMS):
    target, draft = models()
    copy = LocalCopy(target, params, draft if knows_draft else None)
    return audit_black_box(engine, [(0,)], params, copy=copy, control=control, plan=plan)


def test_an_exact_engine_is_exact_and_the_size_of_what_would_have_shown_is_stated():
    """False alarm: 1e-3. 2,000 tokens show 0.09 a token."""
    found = audited(played(EXACT["token"]))
    assert found.verdict.outcome == "exact"
    assert 0.05 < found.verdict.detectable < 0.1
    assert found.num_tokens == 2000


def test_too_few_tokens_are_no_proof_and_how_many_are_missing_is_said():
    few = audited(played(EXACT["token"]), plan=replace(PLAN, num_texts=10))
    assert few.verdict.outcome == "cannot tell"
    enough = replace(PLAN, num_texts=10 + -(-few.verdict.more_tokens // 50))
    assert audited(played(EXACT["token"]), plan=enough).verdict.outcome == "exact"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("no residual", "no residual"),
        ("inverted ratio", "ratio inverted"),
        ("arg max check", "arg max"),
        ("draft T=.7, ratio T=1", "temperature"),
    ],
)
def test_a_fault_is_found_and_named(name, cause):
    """Power above 0.999 each: the median needs 500 tokens at most, 2,000 are given."""
    found = audited(played(FAULTY[name]))
    assert found.verdict.outcome == "not exact" and found.verdict.exit_code == 1
    assert found.verdict.cause.startswith(cause)
    assert "under the target" in found.verdict.example


def test_bets_that_are_won_end_the_audit_early():
    found = audited(played(FAULTY["inverted ratio"]), plan=replace(PLAN, until_sure=True))
    assert found.verdict.outcome == "not exact" and found.num_tokens < 500
    assert [one.test for one in found.verdict.findings] == ["bets on faults"]


def test_a_missing_bonus_token_is_slow_and_no_fault_of_the_text():
    assert audited(played(EXACT["no bonus"])).verdict.outcome == "exact"


def test_without_a_draft_a_temperature_is_still_seen():
    warm = CallableEngine(lambda prompt, seed: warmed(seed), "warm")
    found = audited(warm, knows_draft=False)
    assert found.verdict.outcome == "not exact" and found.verdict.cause.startswith("temperature")
    assert any("no draft is known" in note for note in found.notes)


@pytest.mark.parametrize("given", [{"top_k": 50}, {"top_k": 100}, {"top_p": 0.95}, {"min_p": 0.02}])
def test_a_cut_that_was_left_on_is_named_as_one(given):
    """Whatever cut it is: the nearest cut that is bet on fits better than a temperature. Power
    above 0.99 at 2,000 tokens."""
    target, _ = models()
    cut = SpeculativeDecoder(None, target)
    engine = CallableEngine(
        lambda prompt, seed: cut.generate(prompt, replace(PARAMS, seed=seed, **given)).token_ids,
        "cut",
    )
    found = audited(engine, knows_draft=False)
    assert found.verdict.outcome == "not exact" and found.verdict.cause.startswith("a cut tail")


def warmed(seed: int) -> list[int]:
    target, _ = models()
    tempered = TableModel(
        lambda prefix: target.law(prefix) ** 0.7 / (target.law(prefix) ** 0.7).sum(),
        vocab_size=1000,
    )
    return list(
        SpeculativeDecoder(None, tempered).generate((0,), replace(PARAMS, seed=seed)).token_ids
    )


def test_rounding_of_the_engine_is_its_plain_texts_rounding_and_no_fault_of_speculation():
    """The engine's kernels shrink logits by an eighth and add noise to them, far more than bf16
    does: without the control that is a fault, with it none. Power without: above 0.999; level:
    1e-3."""
    rng = np.random.default_rng(5)
    rough = CHAIN.targets**0.875 * np.exp(0.1 * rng.normal(size=CHAIN.targets.shape))
    coarse = type(CHAIN)(rough / rough.sum(axis=1, keepdims=True), CHAIN.drafts)
    speculative, plain = played(EXACT["token"], coarse), played(EXACT["match"], coarse)
    plan = replace(PLAN, num_texts=70, wanted=0.12)
    assert audited(speculative, plan=plan).verdict.outcome == "not exact"
    found = audited(speculative, control=plain, plan=plan)
    assert found.verdict.outcome == "exact"
    assert found.rounding[1] > 0
    wrong = audited(played(FAULTY["inverted ratio"], coarse), control=plain, plan=plan)
    assert wrong.verdict.outcome == "not exact"


def test_without_a_copy_texts_are_held_against_the_control():
    chain = three_tokens()
    plan = replace(PLAN, num_texts=200)
    plain, params = played(EXACT["match"], chain, 4), replace(PARAMS, max_tokens=4)
    same = audit_black_box(
        played(EXACT["token"], chain, 4), [(0,)], params, control=plain, plan=plan
    )
    other = audit_black_box(
        played(FAULTY["inverted ratio"], chain, 4), [(0,)], params, control=plain, plan=plan
    )
    assert same.verdict.outcome == "cannot tell" and same.verdict.detectable is None
    assert other.verdict.outcome == "not exact"


def test_an_interrupted_audit_goes_on_where_it_was(tmp_path):
    asked = {"engine": "toy"}
    calls = []

    def stops(prompt, seed):
        calls.append(seed)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return EXACT["token"].stream(CHAIN, 50, np.random.default_rng(seed))[1:]

    plan = replace(PLAN, num_texts=8, folder=Folder(tmp_path / "kept", asked))
    with pytest.raises(KeyboardInterrupt):
        audited(CallableEngine(stops, "toy"), plan=plan)
    kept = (tmp_path / "kept" / "samples.jsonl").read_text()
    # a line that was cut off
    (tmp_path / "kept" / "samples.jsonl").write_text(kept + '{"number": 4, "pro')
    resumed = audited(
        CallableEngine(stops, "toy"), plan=replace(plan, folder=Folder(tmp_path / "kept", asked))
    )
    assert calls == [0, 1, 2, 3, 4, 4, 5, 6, 7]
    whole = audited(played(EXACT["token"]), plan=replace(plan, folder=None))
    assert resumed.verdict == whole.verdict
    with pytest.raises(UsageError, match="holds an audit with engine 'toy'"):
        Folder(tmp_path / "kept", {"engine": "another"})


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda prompt, seed: [1, 5000], "holds token 5000, and .* has ids from 0 to 999"),
        (lambda prompt, seed: [], "is empty"),
        (lambda prompt, seed: "text", "no list of token ids"),
        (lambda prompt, seed: [1] * 51, "returned 51 tokens, and max_tokens is 50"),
        (
            lambda prompt, seed: np.random.default_rng(seed).permutation(
                CHAIN.targets[0].argsort()[:50]
            ),
            "are not table.s: a token costs",
        ),
    ],
)
def test_texts_that_cannot_be_the_targets_are_refused_in_one_sentence(answer, sentence):
    with pytest.raises(UsageError, match=sentence):
        audited(CallableEngine(answer, "odd"))


def test_an_engine_far_off_is_not_taken_for_another_model_where_its_plain_texts_are_right():
    """Tokens that cost more than blind ones, beside a control that is exact."""
    rarest = [int(law.argmin()) for law in CHAIN.targets]

    def rare(prompt, seed):
        text = [*prompt]
        while len(text) <= 50:
            text.append(rarest[text[-1] % len(rarest)])
        return text[1:]

    with pytest.raises(UsageError, match="or it is far from exact"):
        audited(CallableEngine(rare, "rare"))
    plan = replace(PLAN, num_texts=4)
    found = audited(CallableEngine(rare, "rare"), control=played(EXACT["match"]), plan=plan)
    assert found.verdict.outcome == "not exact"


def test_greedy_and_no_reference_are_refused():
    target, _ = models()
    greedy = SamplingParams(temperature=0, max_tokens=5)
    with pytest.raises(UsageError, match="nothing to test"):
        LocalCopy(target, greedy)
    with pytest.raises(UsageError, match="needs a local copy"):
        audit_black_box(played(EXACT["token"]), [(0,)], PARAMS)


def residual_only_at_the_draft(draft, laws, chance):
    """After a rejection the target's law with nothing changed but the drafted token's own mass."""
    for node, token in enumerate(draft.tokens):
        p, q = laws.row(node - 1), draft.laws[node - 1]
        if not chance.bernoulli(min(1.0, p[token] / q[token]), Purpose.ACCEPT, node):
            left = p.copy()
            left[token] = max(p[token] - q[token], 0.0)
            return Verdict(
                tuple(range(node)), int(chance.draw(left / left.sum(), Purpose.REPLACEMENT, 0))
            )
    return Verdict(
        tuple(range(len(draft))), int(chance.draw(laws.row(len(draft) - 1), Purpose.REPLACEMENT, 0))
    )


PUBLIC_FAULTS = {
    "arg-max draft with its soft law": Engine(RULES["token"].verify, temper=0.02),
    "acceptance against another token": Engine(
        with_parts(accept=lambda p, q, x: min(1.0, p[(x + 1) % len(p)] / q[(x + 1) % len(q)]))
    ),
    "residual only at the drafted token": Engine(residual_only_at_the_draft),
}


@pytest.mark.parametrize("name", PUBLIC_FAULTS)
def test_faults_of_public_decoders_rebuilt_as_functions_are_caught(name):
    """At most 2,000 tokens; power above 0.99."""
    assert audited(played(PUBLIC_FAULTS[name])).verdict.outcome == "not exact"


def test_serial_scores_are_bounded():
    """Products of normal scores have a fourth moment of 9 and cost false alarms; these have 3.24,
    next to a normal's 3."""
    evidence = evidence_of(EXACT["token"], CHAIN, 2000, np.random.default_rng(0))
    serial = next(scores for name, scores, _ in evidence.scores() if name == "serial")
    assert len(serial) == 1999 and abs(serial).max() <= 3.0
    # five standard errors of 2,000 products
    assert np.mean(serial**4) == pytest.approx(3.24, abs=0.9)


def test_a_function_that_raises_is_told_of_in_a_sentence():
    """And not by an exit code that means `not exact`."""

    def boom(prompt, seed):
        raise ValueError("no model there")

    params = SamplingParams(max_tokens=4)
    with pytest.raises(
        UsageError, match="raised ValueError on a prompt of 1 tokens: no model there"
    ):
        CallableEngine(boom, "boom").sample((0,), params, 0)


def test_prompts_may_be_lists():
    target = TableModel([[0.5, 0.5]] * 2)
    params = SamplingParams(max_tokens=4)
    engine = CallableEngine(
        lambda prompt, seed: [(seed + place) % 2 for place in range(4)], "alternating"
    )
    copy, plan = LocalCopy(target, params), Plan(num_texts=4)
    listed = audit_black_box(engine, [[0], [1]], params, copy=copy, plan=plan)
    assert (
        listed.verdict
        == audit_black_box(engine, [(0,), (1,)], params, copy=copy, plan=plan).verdict
    )
