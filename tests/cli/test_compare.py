"""`draftproof generate --compare`: fair arms, honest figures, and a true account of where two texts
part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.bench import compare
from draftproof.bench.run import order_of
from draftproof.cli import compare_table
from draftproof.cli import main as cli
from draftproof.decode.record import read_rounds

PROMPT = "the cat sat on the mat and the cat sat on the"
Document = Callable[..., dict[str, Any]]


def common(target: Path, *more: object) -> tuple[object, ...]:
    return (
        "generate",
        PROMPT,
        "--target",
        target,
        "--max-tokens",
        24,
        "--compare",
        "--repeat",
        2,
        *more,
    )


def test_the_document_holds_both_arms(target: Path, document: Document) -> None:
    got = document(*common(target, "--temperature", 0, "--dtype", "float32"))
    assert got["same_tokens"] is True and got["first_difference"] is None
    assert got["plain"]["token_ids"] == got["speculative"]["token_ids"]
    assert got["plain"]["tokens_per_second"] > 0 and got["speculative"]["tokens_per_second"] > 0
    assert (
        got["speedup"] > 0 and got["speedup_range"][0] <= got["speedup"] <= got["speedup_range"][1]
    )
    assert (
        got["plain"]["stats"]["method"] == "none"
        and got["speculative"]["stats"]["method"] == "ngram"
    )
    assert (
        got["speculative"]["stats"]["num_draft_tokens"]
        > 0
        == got["plain"]["stats"]["num_draft_tokens"]
    )
    assert set(got["speculative"]["milliseconds_per_round"]) == {"draft", "verify", "rest"}
    assert len(got["plain"]["runs_tokens_per_second"]) == got["repeat"] == 2
    assert {"prompt", "text", "config", "params", "provenance"} <= set(got)


def test_where_sampled_texts_part_the_gap_is_the_targets(
    target: Path, draft: Path, document: Document
) -> None:
    flags = (
        "--temperature",
        1,
        "--seed",
        4,
        "--draft",
        draft,
        "--rule",
        "token",
        "--dtype",
        "float32",
    )
    got = document(*common(target, *flags))
    assert got["same_tokens"] is False
    difference = got["first_difference"]
    position, plain, speculative = (
        difference["position"],
        got["plain"]["token_ids"],
        got["speculative"]["token_ids"],
    )
    assert plain[:position] == speculative[:position]
    assert (difference["plain_token"], difference["speculative_token"]) == (
        plain[position],
        speculative[position],
    )
    ids = torch.tensor([got["prompt_token_ids"] + plain[:position]])
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(target)(input_ids=ids).logits[0, -1].double()
    best = logits.log_softmax(-1).topk(2).values
    assert difference["top2_gap"] == pytest.approx(float(best[0] - best[1]), abs=1e-4)
    assert difference["verdict"] == "drawn" and difference["noise"] < 1e-4 < difference["gap"]


def test_with_match_sampled_texts_do_not_part(
    target: Path, draft: Path, document: Document
) -> None:
    flags = (
        "--temperature",
        1,
        "--draft",
        draft,
        "--rule",
        "match",
        "--dtype",
        "float32",
        "--seed",
        4,
    )
    assert document(*common(target, *flags))["same_tokens"] is True


def test_what_is_printed_fits_eighty_columns_and_holds_the_figures(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([str(a) for a in common(target, "--temperature", 0, "--dtype", "float32")]) == 0
    captured = capsys.readouterr()
    figures = captured.out[captured.out.index(str(target)) :].replace(str(target), "x")
    assert max(len(line) for line in figures.splitlines()) <= 80
    for part in (
        "tokens/s",
        "tokens per round",
        "drafts accepted",
        "draft",
        "verify",
        "rest",
        "speedup",
        "greedy",
        "float32",
    ):
        assert part in figures
    assert "Both texts are the same, token for token (24 tokens)." in figures
    assert captured.err == ""


def test_both_texts_are_printed_where_they_differ(
    target: Path, draft: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--temperature", 1, "--seed", 4, "--draft", draft, "--rule", "token", "--show")
    assert cli.run([str(a) for a in common(target, *flags)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("[plain]\n") and "\n[speculative]\n" in out
    assert "[accepted draft]  <replacement after a rejection>" in out
    assert "samples of one law" in " ".join(out.split())


def test_the_record_is_the_speculative_arms_first_run(
    target: Path, document: Document, tmp_path: Path
) -> None:
    got = document(*common(target, "--temperature", 0, "--record", tmp_path / "rounds.jsonl"))
    header, rounds = read_rounds(tmp_path / "rounds.jsonl")
    assert header.method == "ngram"
    assert [token for record in rounds for token in record.tokens] == got["speculative"][
        "token_ids"
    ]


def ring_decoder() -> SpeculativeDecoder:
    """0 -> 1 -> 2 -> 0, nearly surely, without a tokenizer."""
    law = [[0.02, 0.96, 0.02], [0.02, 0.02, 0.96], [0.96, 0.02, 0.02]]
    return SpeculativeDecoder(
        None, TableModel(law), speculative_config={"method": "ngram", "num_speculative_tokens": 3}
    )


def test_arms_alternate_and_each_is_warmed_up_first() -> None:
    order: list[str] = []
    compared = compare.compare_with_plain(
        ring_decoder(), [0, 1, 2], SamplingParams(temperature=0, max_tokens=6), 4, order.append
    )
    assert order[:2] == ["warm-up, plain", "warm-up, speculative"]
    turns = [order[place : place + 2] for place in range(2, 10, 2)]
    assert turns == [order_of(["plain", "speculative"], turn) for turn in range(4)]
    assert turns.count(["plain", "speculative"]) == 2
    assert len(compared.plain) == len(compared.speculative) == 4
    assert compared.first_difference is None


def test_a_text_that_ends_early_differs_where_it_ended() -> None:
    decoder = ring_decoder()
    longer = decoder.generate([0], SamplingParams(temperature=0, max_tokens=6))
    shorter = decoder.generate([0], SamplingParams(temperature=0, max_tokens=4))
    params = SamplingParams(temperature=0)
    found = compare.comparison_of(decoder, [shorter], [longer], params).first_difference
    assert found is not None
    assert (found.position, found.plain_token, found.speculative_token) == (
        4,
        None,
        longer.token_ids[4],
    )
    assert found.top2_gap == pytest.approx(3.871201, abs=1e-6)  # log(0.96 / 0.02)
    assert found.verdict == "fault" and "ended there" in found.why


def test_speedup_is_the_median_of_paired_ratios_and_times_leave_the_prompt_out() -> None:
    decoder = ring_decoder()
    result = decoder.generate([0, 1, 2], SamplingParams(temperature=0, max_tokens=9))
    one = result.outputs[0]

    def lasting(seconds: float) -> Any:
        return replace(
            result, outputs=(replace(one, seconds=seconds, first_token_seconds=seconds / 2),)
        )

    compared = compare.Comparison(
        tuple(map(lasting, (1.0, 3.0, 2.0))), tuple(map(lasting, (0.5, 1.0, 8.0))), None
    )
    assert compared.ratios == [2.0, 3.0, 0.25]
    assert compared.speedup == 2.0
    assert compare.rates(compared.plain)["tokens_per_second"] == 9 / 2.0
    later = 9 - len(one.rounds[0].tokens)
    assert compare.rates(compared.plain)["decode_tokens_per_second"] == later / 1.0
    assert one.rounds[0].reads_prompt
    with_prompt_slow = tuple(
        replace(r, seconds=replace(r.seconds, verify=100.0 if r.reads_prompt else 0.25))
        for r in one.rounds
    )
    slow = replace(result, outputs=(replace(one, rounds=with_prompt_slow),))
    assert compare.milliseconds_per_round([slow])["verify"] == 250.0


def test_an_agreement_names_the_reason() -> None:
    decoder = ring_decoder()
    params = SamplingParams(temperature=0, max_tokens=4)
    result = decoder.generate([0], params)
    wrong = replace(
        result, outputs=(replace(result.outputs[0], token_ids=(*result.token_ids[:2], 2, 0)),)
    )
    parted = compare.comparison_of(decoder, [result], [wrong], params)
    words = compare_table.agreement(parted, decoder, params)
    assert (
        "new token 2" in words
        and "A fault, not rounding: the two tokens are 3.9 nats apart" in words
    )
    sampled = SamplingParams(temperature=1, max_tokens=4)
    other = SimpleNamespace(
        target=decoder.target, tokenizer=None, rule_for=lambda params: SimpleNamespace(name="token")
    )
    assert "samples of one law" in compare_table.agreement(parted, other, sampled)  # type: ignore[arg-type]
