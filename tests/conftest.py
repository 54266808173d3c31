"""What every test begins with."""

from __future__ import annotations

import os

os.environ.setdefault("DRAFTPROOF_ENGINE", "torch")
"""Models that tests load by name are not converted, but where a test is about that."""
