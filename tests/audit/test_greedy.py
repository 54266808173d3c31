"""Greedy text against plain text: what parts at a tie, what is a fault."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.greedy import audit_greedy
from draftproof.models.hf import HFModel
from tiny import llama, table_model

PARAMS = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def table(gap: float) -> TableModel:
    """Token 1's row gives 2 and 3 `gap` nats apart; every other row leads clearly, and both lead
    back to 1."""
    rows = np.full((5, 5), -8.0)
    for token, after in enumerate((1, 2, 1, 1, 0)):
        rows[token, after] = 4.0
    rows[1, 3] = rows[1, 2] - gap
    mass = np.exp(rows)
    return TableModel(mass / mass.sum(axis=1, keepdims=True))


def decoder_of(target):
    config = {"method": "ngram", "num_speculative_tokens": 3}
    return SpeculativeDecoder(None, target, speculative_config=config)


def audited(target, change, params=PARAMS, prompt=(0, 1)):
    """Our engine, each of its texts changed."""
    decoder = decoder_of(target)
    plain = decoder.plain
    write = lambda ids, given: tuple(decoder.generate(list(ids), given).token_ids)  # noqa: E731
    return audit_greedy(
        "engine",
        lambda ids, given: plain.generate(list(ids), given).token_ids,
        lambda ids, given: change(write(ids, given)),
        decoder,
        [prompt],
        params,
    )


@pytest.mark.parametrize(
    "make", [llama, lambda: llama(dtype=torch.bfloat16)], ids=["float32", "bfloat16"]
)
def test_drafts_do_not_change_a_greedy_text(make):
    """A fault nowhere; in float32 not even a tie."""
    model = HFModel(make())
    prompts = [[10], [3, 4, 3, 4, 3], [7, 8, 9]]
    decoder = decoder_of(model)
    found = audit_greedy(
        "ours",
        lambda ids, given: decoder.plain.generate(list(ids), given).token_ids,
        lambda ids, given: decoder.generate(list(ids), given).token_ids,
        decoder,
        prompts,
        SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True),
    )
    assert found.outcome == "exact" and not found.faults
    assert model.dtype != torch.float32 or not found.ties


def test_an_exact_tie_is_no_fault():
    swap = lambda text: (3, *text[1:])  # noqa: E731
    found = audited(table(0.0), swap)
    assert found.outcome == "exact" and len(found.ties) == 1
    difference = found.ties[0].difference
    assert difference.verdict == "tie" and difference.gap == 0.0 and difference.top2_gap == 0.0


def test_a_wrong_token_two_nats_behind_is_a_fault():
    swap = lambda text: (3, *text[1:])  # noqa: E731
    found = audited(table(2.0), swap)
    assert found.outcome == "not exact" and len(found.faults) == 1
    shown = found.faults[0]
    assert shown.difference.verdict == "fault" and shown.difference.gap == pytest.approx(2.0)
    assert shown.difference.position == 0 and shown.one[0] == 2 and shown.other[0] == 3
    assert len(shown.one) == len(shown.other) == 16
    document = found.document()
    assert (
        document["verdict"] == "not exact"
        and document["faults"] == 1
        and len(document["differences"]) == 1
    )


def test_a_real_models_wrong_token_is_a_fault_in_half_precision_too():
    rows = torch.zeros(16, 16)
    rows[:, 5], rows[:, 6] = 8.0, 6.0
    model = HFModel(table_model(rows, torch.bfloat16))
    found = audited(model, lambda text: (*text[:3], 6, *text[4:]))
    assert found.outcome == "not exact" and found.faults[0].difference.position == 3


def test_a_text_that_ends_early_is_a_fault():
    found = audited(table(2.0), lambda text: text[:5])
    assert found.outcome == "not exact"
    assert found.faults[0].difference.speculative_token is None and found.faults[0].other == ()


def test_where_plain_text_differs_from_itself_nothing_can_be_told():
    decoder = decoder_of(table(2.0))
    texts = iter([(2, 1, 2), (3, 1, 2)])
    found = audit_greedy(
        "engine",
        lambda ids, given: next(texts),
        lambda ids, given: (2, 1, 2),
        decoder,
        [(0, 1)],
        PARAMS,
    )
    assert found.outcome == "cannot tell" and found.document()["control_differences"] == 1
