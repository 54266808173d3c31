"""What the tests of OpenVINO's passes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from draftproof.models.openvino.passes import lacking


@pytest.fixture
def dtype(request: pytest.FixtureRequest) -> Iterator[str]:
    """The number format of a test, by indirect parameters; two threads, which bfloat16 needs on
    some CPUs. Skips where this CPU lacks it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(2, threads))
    try:
        if reason := lacking(request.param):
            pytest.skip(reason)
        yield request.param
    finally:
        torch.set_num_threads(threads)
