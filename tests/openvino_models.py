"""Tiny random models as OpenVINO runs them, each converted once a test session."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from draftproof.models.openvino.graph import trace
from draftproof.models.openvino.load import check_convertible
from draftproof.models.openvino.model import OpenVINOModel
from tiny import FAMILIES, mistral, table_model

MAKERS = {**FAMILIES, "mistral": mistral}


@cache
def traced(name: str) -> tuple[Any, ...]:
    """(module, graph, layers' attention, kinds) of a family in float32."""
    return converted(MAKERS[name]())


def converted(module: Any) -> tuple[Any, ...]:
    kinds = check_convertible(module.config, None)
    return module, *trace(module, kinds), kinds


def run_by_openvino(
    parts: tuple[Any, ...], dtype: str = "float32", **options: Any
) -> OpenVINOModel:
    module, graph, layers, kinds = parts
    rows = module.get_output_embeddings().weight.shape[0]
    ids = module.get_input_embeddings().weight.shape[0]
    sizes: dict[str, Any] = {"num_rows": rows, "num_input_ids": ids, "dtype": dtype, **options}
    return OpenVINOModel(graph, layers, kinds, module.config, lambda: module, **sizes)


def openvino(name: str, dtype: str = "float32", **options: Any) -> OpenVINOModel:
    return run_by_openvino(traced(name), dtype, **options)


def openvino_table(table: torch.Tensor) -> OpenVINOModel:
    return run_by_openvino(converted(table_model(table)))
