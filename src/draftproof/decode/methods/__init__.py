"""The methods: every way to draft that can be asked for by name, in one list. A new drafter adds one entry to one of its files.

The config, the command line, `plan`, `bench` and `doctor` know methods through this list only. Drafters are imported when made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.decode.methods.heads import HEAD_METHODS
from draftproof.decode.methods.method import Method, Option, Parts
from draftproof.decode.methods.models import MODEL_METHODS
from draftproof.decode.methods.several import AUTO
from draftproof.decode.methods.texts import TEXT_METHODS
from draftproof.drafters.protocol import Drafter

if TYPE_CHECKING:
    from draftproof.decode.config import SpeculativeConfig

__all__ = ["METHODS", "Method", "Option", "Parts", "drafting_methods", "readers"]


def _none(config: SpeculativeConfig, parts: Parts) -> Drafter:
    raise AssertionError("method 'none' has no drafter")


METHODS: dict[str, Method] = {
    method.name: method
    for method in (Method("none", "plain decoding", 0, _none), *MODEL_METHODS, *TEXT_METHODS, *HEAD_METHODS, AUTO)
}


def drafting_methods() -> tuple[str, ...]:
    """The names of all methods that draft, sorted."""
    return tuple(sorted(name for name in METHODS if name != "none"))


def readers(option: str) -> tuple[str, ...]:
    """The methods that read `option`, sorted; () for a key no method has."""
    return tuple(sorted(m.name for m in METHODS.values() if any(o.name == option for o in m.options)))
