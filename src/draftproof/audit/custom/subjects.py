"""What `module:name` names: a rule, a drafter, a step function, or a function that drafts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from draftproof.audit.drafting import PlannedDrafter
from draftproof.audit.named import object_named
from draftproof.errors import UsageError

KINDS = (
    "a rule (with verify), a drafter (with open), a step function (p, q, prefix, k, "
    "rng), or a function (prefix) that drafts"
)
RULE_MEMBERS = ("name", "lossless", "trees", "coupled", "text_follows_seed", "selections")
DRAFTER_MEMBERS = ("name", "selections", "trees", "wants", "memories")


@dataclass(frozen=True)
class Subject:
    """name: as given. value: the rule, the drafter or the function itself."""

    name: str
    kind: Literal["rule", "drafter", "step"]
    value: Any


def subject_named(name: str) -> Subject:
    """The object at `module:name` or `file.py:name`; of a class, an object. UsageError for what
    cannot be audited."""
    return recognised(name, object_named(name))


def recognised(name: str, value: Any) -> Subject:
    """What `value` is."""
    if inspect.isclass(value):
        try:
            value = value()
        except TypeError as error:
            raise UsageError(
                f"{name} is a class that cannot be made without arguments: {error}"
            ) from error
    if hasattr(value, "verify"):
        return Subject(name, "rule", _complete(name, "rule", value, RULE_MEMBERS))
    if hasattr(value, "open") and hasattr(value, "selections"):
        return Subject(name, "drafter", _complete(name, "drafter", value, DRAFTER_MEMBERS))
    if callable(value) and _takes(value, 5):
        return Subject(name, "step", value)
    if callable(value) and _takes(value, 1):
        drafter = PlannedDrafter(
            name.rpartition(":")[2], lambda context, path: _proposed(value((*context, *path)))
        )
        return Subject(name, "drafter", drafter)
    raise UsageError(f"{name} is {_described(value)}; what can be audited is {KINDS}")


def _complete(name: str, kind: str, value: Any, members: tuple[str, ...]) -> Any:
    missing = [member for member in members if not hasattr(value, member)]
    if missing:
        raise UsageError(
            f"{name} is no whole {kind}: it lacks {', '.join(missing)} (docs/add_a_{kind}.md)"
        )
    return value


def _proposed(given: Any) -> Any:
    """What a drafting function returned: a token, None, or a law as an array."""
    if given is None:
        return None
    return int(given) if np.ndim(given) == 0 else np.asarray(given, dtype=float)


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with `count` positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _described(value: Any) -> str:
    if not callable(value):
        return f"a {type(value).__name__}"
    try:
        return f"a function {inspect.signature(value)}"
    except (TypeError, ValueError):
        return "a function whose parameters cannot be read"
