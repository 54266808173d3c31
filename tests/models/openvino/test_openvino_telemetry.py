"""Nothing is sent to anybody when a model is converted."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def test_a_conversion_sends_nothing_and_leaves_no_mark_of_a_user(tmp_path):
    script = textwrap.dedent(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        from openvino_telemetry.utils.sender import TelemetrySender
        sent = []
        TelemetrySender.send = lambda *given, **more: sent.append(given)
        TelemetrySender.force_shutdown = lambda *given, **more: None
        from draftproof.models.openvino.compress import compressed
        from openvino_models import converted
        from tiny import llama
        compressed(converted(llama(hidden_size=64))[1], "int8")
        assert sent == [], sent
        """
    )
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script, tests],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("*_cid")) == []
