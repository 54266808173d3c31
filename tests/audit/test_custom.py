"""The enumerated proof of anybody's rule, drafter or step function."""

from __future__ import annotations

import json

import numpy as np
import pytest

import step_functions
from draftproof.audit.custom.branching import branches
from draftproof.audit.custom.prove import prove_subject
from draftproof.audit.custom.subjects import recognised, subject_named
from draftproof.audit.exact import TOLERANCE
from draftproof.cli import main as cli
from draftproof.errors import UsageError


@pytest.mark.parametrize("step", step_functions.CORRECT, ids=lambda step: step.__name__)
def test_a_correct_step_is_exact_over_the_whole_loop(step):
    found = prove_subject(recognised(step.__name__, step))
    assert found.worst.tv <= TOLERANCE
    assert found.exact and found.shortest is None


@pytest.mark.parametrize("step", step_functions.FAULTY, ids=lambda step: step.__name__)
def test_a_faulty_step_is_caught_with_the_context_and_the_way_there(step):
    document = prove_subject(recognised(step.__name__, step)).document()
    assert document["verdict"] == "not exact" and document["max_tv"] > 1e-3
    wrong = document["first_wrong"]
    token = str(wrong["token"])
    assert wrong["loop_law"][token] > wrong["target_law"].get(token, 0.0)
    assert (
        sum(way["probability"] for way in wrong["ways"]) > 0 or step is step_functions.always_best
    )


def test_the_context_named_is_the_first_and_its_laws_are_right():
    """One wrong row, behind one text: after the prompt (0, 1, 0) and a 1."""

    def step(p, q, prefix, k, rng):
        law = p(prefix)
        return [step_functions.pick(law[::-1] if prefix == (0, 1, 0, 1) else law, rng)]

    wrong = prove_subject(recognised("step", step)).document()["first_wrong"]
    assert wrong["context"] == [0, 1, 0, 1] and wrong["models"] == "two tokens"
    assert wrong["target_law"] == pytest.approx({"0": 0.2, "1": 0.8})
    assert wrong["loop_law"] == pytest.approx({"0": 0.8, "1": 0.2})
    (way,) = wrong["ways"]
    assert way["probability"] == pytest.approx(0.3 * 0.8)
    assert [choice["probability"] for choice in way["choices"]] == pytest.approx([0.3, 0.8])


def test_all_ways_to_the_token_that_comes_too_often_are_told():
    """Without the residual a rejected token comes back: the draft's way is right by itself, the
    replacement's is not."""

    def step(p, q, prefix, k, rng):
        token = step_functions.pick(q(prefix), rng)
        if rng.random() < p(prefix)[token] / q(prefix)[token]:
            return [token]
        return [step_functions.pick(p(prefix), rng)]

    wrong = prove_subject(recognised("step", step)).document()["first_wrong"]
    assert wrong["context"] == [0, 1, 0] and wrong["token"] == 1
    assert [way["probability"] for way in wrong["ways"]] == pytest.approx(
        [0.5 * 0.6, 0.5 * 0.4 * 0.3]
    )
    assert sum(way["probability"] for way in wrong["ways"]) == pytest.approx(wrong["loop_law"]["1"])


def test_a_wrong_step_that_fails_later_is_still_called_wrong():
    """It draws from the draft law, and raises on models over three tokens."""

    def step(p, q, prefix, k, rng):
        a, b = q(prefix)
        return [int(rng.random() < b)]

    document = prove_subject(recognised("step", step)).document()
    assert document["verdict"] == "not exact" and document["cases"] == 3


@pytest.mark.parametrize(
    ("step", "said"), step_functions.REFUSED.items(), ids=lambda one: getattr(one, "__name__", "")
)
def test_what_cannot_be_followed_is_refused_in_a_sentence(step, said):
    with pytest.raises(
        UsageError, match=said.replace("(", r"\(").replace(")", r"\)").replace("+", r"\+")
    ):
        prove_subject(recognised(step.__name__, step))


def test_uniform_numbers_are_cut_where_they_are_compared():
    """Every operation a threshold may pass through, held against its probability."""
    asked = {
        "below": (lambda u: u < 0.3, 0.3),
        "above": (lambda u: u > 0.3, 0.7),
        "shifted": (lambda u: u + 0.1 < 0.3, 0.2),
        "less": (lambda u: 0.9 - u <= 0.3, 0.4),
        "scaled": (lambda u: -2 * u < -0.5, 0.75),
        "divided": (lambda u: u / 4 >= 0.1, 0.6),
        "logarithm": (lambda u: np.log(u) < np.log(0.25), 0.25),
        "numpy's own scalar": (lambda u: np.float64(0.5) * u < np.float64(0.2), 0.4),
        "both": (lambda u: 0.2 <= u < 0.5, 0.3),
        "twice": (lambda u: u < 0.5 and u < 0.2, 0.2),
    }
    for name, (question, expected) in asked.items():
        found = sum(
            mass for mass, yes, _ in branches(lambda rng, q=question: bool(q(rng.random()))) if yes
        )
        assert found == pytest.approx(expected, abs=1e-15), name


def test_the_generators_draws_have_their_laws():
    def law(run):
        masses = {}
        for mass, result, _ in branches(run):
            masses[result] = masses.get(result, 0.0) + mass
        return masses

    assert law(lambda rng: int(rng.integers(2, 5))) == pytest.approx({2: 1 / 3, 3: 1 / 3, 4: 1 / 3})
    assert law(lambda rng: tuple(rng.multinomial(1, [0.25, 0.75]))) == pytest.approx(
        {(1, 0): 0.25, (0, 1): 0.75}
    )
    assert law(lambda rng: int(rng.binomial(2, 0.5))) == pytest.approx({0: 0.25, 1: 0.5, 2: 0.25})
    without = law(
        lambda rng: tuple(int(x) for x in rng.choice(3, 2, replace=False, p=[0.5, 0.25, 0.25]))
    )
    assert without[0, 1] == pytest.approx(0.25) and without[1, 0] == pytest.approx(0.25 * 2 / 3)
    assert len(without) == 6 and sum(without.values()) == pytest.approx(1.0)
    assert law(lambda rng: str(rng.choice(["a", "b"]))) == pytest.approx({"a": 0.5, "b": 0.5})
    assert law(lambda rng: bool(rng.uniform(1.0, 3.0) < 1.5))[True] == pytest.approx(0.25)


@pytest.mark.parametrize(
    "name", ["speculative_step", "core.rules.token:Token", "core.rules.rrs:RecursiveRejection"]
)
def test_our_own_are_exact_by_this_door_too(name):
    place = f"draftproof.{name}" if ":" in name else f"draftproof:{name}"
    assert prove_subject(subject_named(place)).exact


@pytest.mark.parametrize("name", ["evenly", "always_one"])
def test_a_function_of_a_prefix_is_a_drafter(name):
    found = prove_subject(subject_named(f"step_functions:{name}"))
    assert found.subject.kind == "drafter" and found.exact


def test_a_rule_that_accepts_one_percent_too_often_is_caught_with_its_way():
    document = prove_subject(subject_named("step_functions:AcceptsTooOften")).document()
    assert (
        document["kind"] == "rule"
        and document["verdict"] == "not exact"
        and 1e-4 < document["max_tv"] < 0.1
    )
    said = [choice["said"] for choice in document["first_wrong"]["ways"][0]["choices"]]
    assert said[0].startswith("draft 0: token") and said[1] == "draft 0 is accepted"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "is no module:name"),
        ("no_such_module:step", "no_such_module cannot be imported"),
        ("step_functions:missing", "step_functions has no 'missing'"),
        ("step_functions:Half", "it lacks lossless"),
        ("step_functions:two_parameters", "is a function (p, q); what can be audited is"),
        ("step_functions:NOT_A_FUNCTION", "is a int; what can be audited is"),
        ("no_such_file.py:step", "there is no file"),
    ],
)
def test_a_name_that_cannot_be_audited_is_refused(name, said, capsys):
    assert cli.run(["audit", "--exact", name]) == cli.EXIT_USAGE
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in error


def test_the_command_says_where_it_goes_wrong_and_exits_with_1(capsys):
    assert cli.run(["audit", "--exact", "step_functions:wrong_token", "--json"]) == 1
    *shown, line = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert document["subject"] == "step_functions:wrong_token" and document["cases"] == len(
        document["cells"]
    )
    assert any(text.startswith("It first goes wrong after the prompt [0, 1, 0]") for text in shown)
    assert cli.run(["audit", "--exact", "step_functions:token_rule"]) == 0
