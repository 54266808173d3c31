"""`python -m draftproof` is the command `draftproof`."""

from __future__ import annotations

from draftproof.cli.main import main

main()
