"""Experiments on exactness and speed, each one file: numbers, a table and a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.experiments.registry import EXPERIMENTS as EXPERIMENTS
    from draftproof.experiments.registry import Settings as Settings
    from draftproof.experiments.registry import run as run

__all__ = [
    "EXPERIMENTS",
    "Settings",
    "run",
]

_HOMES = {
    "EXPERIMENTS": "draftproof.experiments.registry",
    "Settings": "draftproof.experiments.registry",
    "run": "draftproof.experiments.registry",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
