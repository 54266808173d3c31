"""What the tests of OpenVINO's passes share."""

from __future__ import annotations

import pytest

from draftproof.models.openvino.passes import lacking


@pytest.fixture
def dtype(request: pytest.FixtureRequest) -> str:
    """The number format of a test, by indirect parameters; skips where this CPU lacks it."""
    if reason := lacking(request.param):
        pytest.skip(reason)
    return str(request.param)
