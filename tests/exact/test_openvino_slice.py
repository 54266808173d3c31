"""The proof through OpenVINO: a real network over the whole history, its sessions extended, cut and
kept in every round.

A row is the same bits whatever is read beside it, so the law of the loop is that of the network
read one by one, to 1e-12."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from draftproof.audit import exact
from draftproof.audit.exact import TOLERANCE, Case, prove
from draftproof.audit.table import CHAIN_RULES, PARAMETERS, TREE_RULES, tree_case
from draftproof.audit.tensors import TensorModel
from draftproof.audit.toys import Pair, pairs
from draftproof.models.openvino.model import OpenVINOModel
from draftproof.models.protocol import LanguageModel, Output, Session, Step, extend
from draftproof.models.table import TableModel
from openvino_models import converted, run_by_openvino
from tiny import llama

EOS = 2


class Inner(Session):
    """A session of OpenVINO's, as one of the model that hands out its logits in float64."""

    can_fork = True

    def __init__(self, model: InDouble, inner: Any) -> None:
        self.model, self.inner = model, inner

    def fork(self, length: int | None = None) -> Inner:
        return Inner(self.model, self.inner.fork(length))

    @property
    def length(self) -> int:
        return self.inner.length

    @property
    def tokens(self) -> Sequence[int]:
        return self.inner.tokens

    def rollback(self, length: int) -> None:
        self.inner.rollback(length)

    def keep(self, path: Sequence[int]) -> None:
        self.inner.keep(path)

    def close(self) -> None:
        self.inner.close()


class InDouble(LanguageModel):
    """A model whose logits are handed out in float64, where laws are compared."""

    supports_trees, eos_token_ids, name, max_length = True, (EOS,), "openvino", None

    def __init__(self, model: OpenVINOModel) -> None:
        self._model, self.vocab_size = model, model.vocab_size

    def open(self) -> Session:
        return Inner(self, self._model.open())

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        inner = [replace(step, session=step.session.inner) for step in steps]
        return [Output(output.logits.double()) for output in self._model.extend_many(inner)]


@cache
def network() -> OpenVINOModel:
    return run_by_openvino(converted(llama(vocab_size=3, initializer_range=0.15)))


@cache
def law(prefix: tuple[int, ...]) -> np.ndarray:
    """Of the token after `prefix`, which is read in a pass of its own."""
    session = network().open()
    row = extend(Step(session, prefix, rows=[len(prefix) - 1])).logits[0].double()
    session.close()
    return torch.softmax(row, dim=-1).numpy()


@pytest.fixture(autouse=True)
def _toys(monkeypatch):
    target = TableModel(law, vocab_size=3, eos_token_ids=(EOS,))
    toys = pairs()
    found = {name: Pair(name, target, toys[name].draft) for name in ("full_history", "overrated")}
    monkeypatch.setattr(exact, "pairs", lambda: found)


def wrap(model: TableModel) -> LanguageModel:
    if model.eos_token_ids:
        return InDouble(network())
    return TensorModel(model)


@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("draft, params", [("sampled", "plain"), ("ngram", "top_p")])
def test_rounds_over_openvino_are_exact(rule, draft, params):
    proof = prove(
        Case(rule, draft, "full_history", params, PARAMETERS[params], 2, horizon=3), wrap=wrap
    )
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE


@pytest.mark.parametrize("kind", TREE_RULES[:1], ids=lambda kind: " ".join(kind))
def test_trees_over_openvino_are_exact(kind):
    proof = prove(tree_case(kind, "top_p", "[2,1]", "overrated", by="model "), wrap=wrap)
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE
