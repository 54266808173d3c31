"""Pages and files: whether one may write there is asked beforehand."""

from __future__ import annotations

import pytest

from draftproof.errors import UsageError
from draftproof.report.page import check_writable


def test_a_place_one_may_not_write_to_is_refused_beforehand(tmp_path, monkeypatch):
    """Before the work whose result would be lost; `os.access` answers for the user, whom the tests
    may run as root."""
    there = tmp_path / "there.json"
    check_writable(there)
    asked = []
    monkeypatch.setattr(
        "draftproof.report.page.os.access", lambda path, mode: asked.append(path) or False
    )
    with pytest.raises(UsageError, match="you may not"):
        check_writable(there)
    there.write_text("{}")
    with pytest.raises(UsageError, match="you may not"):
        check_writable(there)
    assert asked == [tmp_path, there]
