"""Passes in which rows are the same bits: how many tokens they need, and MLPs on one thread."""

from __future__ import annotations

import pytest
import torch

from draftproof.models.openvino import passes, rows
from draftproof.models.openvino.apart import ONE, keep_apart
from draftproof.models.openvino.rows import IDENTICAL, settle_rows
from draftproof.models.protocol import Step, extend
from openvino_models import openvino, traced


@pytest.mark.parametrize("needed", passes.FEWEST)
def test_passes_get_as_many_tokens_as_rows_need(monkeypatch, needed):
    model = openvino("llama")
    read = model._passes.read
    widths = []

    def rounding(lines, wanted, hidden):
        count = sum(len(line.tokens) for line in lines)
        widths.append(count)
        logits, states = read(lines, wanted, hidden)
        return logits + (0.5 if count < needed else 0), states

    monkeypatch.setattr(model._passes, "read", rounding)
    assert settle_rows(model) == IDENTICAL
    assert model.least_tokens == needed
    widths.clear()
    extend(Step(model.open(), [3]))
    model.extend_many([Step(model.open(), [3]), Step(model.open(), [4])])
    assert widths == [needed, max(4, needed)]


def test_where_no_number_helps_passes_stay_short(monkeypatch):
    model = openvino("llama")
    monkeypatch.setattr(rows, "check_rows", lambda model: f"differ at {model.least_tokens}")
    assert settle_rows(model) == "differ at 2"
    assert model.least_tokens == 2


@pytest.mark.parametrize("count", passes.FEWEST)
def test_tokens_that_fill_a_pass_change_nothing(count):
    model, ids = openvino("llama"), list(range(1, 33))
    expected = extend(Step(model.open(), ids)).logits
    model.least_tokens = count
    session = model.open()
    found = [extend(Step(session, [token])).logits for token in ids]  # over the end of a page
    assert torch.equal(torch.cat(found), expected)


def test_products_kept_apart_are_the_same_bits():
    _, graph, _, _ = traced("llama")
    apart = graph.clone()
    assert keep_apart(apart)[ONE] == 1
    added = [node for node in apart.get_ordered_ops() if node.get_type_name() == "Multiply"]
    before = [node for node in graph.get_ordered_ops() if node.get_type_name() == "Multiply"]
    num_layers = 2
    assert len(added) - len(before) == num_layers


def test_one_thread_in_sixteen_bits(monkeypatch):
    """On a CPU with AMX the compiler's joint operation ended the process here."""
    if passes.lacking("bfloat16") is not None:
        pytest.skip("this CPU does not compute in bfloat16")
    monkeypatch.setattr(passes, "usable_cpus", lambda: 1)
    assert settle_rows(openvino("llama", "bfloat16")) == IDENTICAL
