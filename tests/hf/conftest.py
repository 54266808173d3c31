"""A tiny target, a draft that is right about half the time, one thread."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tiny
from hf_calls import PAD


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model() -> Any:
    module = tiny.llama(torch.float64)
    module.generation_config.pad_token_id = PAD
    return module


@pytest.fixture(scope="module")
def draft() -> Any:
    """The target with a little noise: right about half the time."""
    module = tiny.llama(torch.float64)
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(torch.randn_like(weight) * 0.03)
    return module
