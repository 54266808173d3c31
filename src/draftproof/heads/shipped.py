"""Heads that come with the package: found by their target's fingerprint, loaded from the installed
files, without network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftproof.heads.target import TargetView
from draftproof.models.pull import PULLABLE

FOLDER = Path(__file__).parent / "weights"


def has_head(name: str) -> bool:
    """Whether a head comes with the package for the target of this short name, or of its name on
    the hub."""
    short = next((short for short, known in PULLABLE.items() if known.hub_id == name), name)
    return any(config.parent.name == short for config in FOLDER.glob("*/config.json"))


def shipped_head(target: TargetView, method: str) -> Path | None:
    """The folder of the head for `method` that comes with the package and was trained for these
    very weights, if any."""
    for config in sorted(FOLDER.glob("*/config.json")):
        facts = json.loads(config.read_text(encoding="utf-8"))
        theirs = facts.get("draftproof", {}).get("target", {}).get("fingerprint")
        if (
            theirs is not None
            and theirs == target.fingerprint
            and facts.get("speculators_model_type") == method
        ):
            return config.parent
    return None
