"""Verification rules by name. One file a rule, which states all about it in `STATED`; they are
found by their files."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection
from typing import Any

from draftproof.core.records import Selection
from draftproof.core.rules.protocol import Rule
from draftproof.core.rules.stated import Foretold, Stated
from draftproof.errors import UsageError


def _stated() -> dict[str, Stated]:
    modules: list[Any] = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    ]
    found = [vars(module)["STATED"] for module in modules if "STATED" in vars(module)]
    return {one.name or one.rule.name: one for one in found}


STATED: dict[str, Stated] = _stated()
"""What every rule's file states, by the name one asks for the rule."""

RULES: dict[str, Rule] = {name: one.rule for name, one in STATED.items()}
"""Every rule by the name one asks for it; a lossy one's own name says that it is."""

LOSSLESS: dict[str, Rule] = {name: rule for name, rule in RULES.items() if rule.lossless}
"""The rules that leave the target's law as it is; what the proof table runs over."""


def rule_by_name(name: str) -> Rule:
    """The rule called `name`; UsageError lists the names when there is none."""
    if name not in RULES:
        raise UsageError(f"rule {name!r} is unknown; allowed: {listed()}")
    return RULES[name]


def listed() -> str:
    """The names of all rules, lossy ones told apart."""
    lossy = sorted(set(RULES) - set(LOSSLESS))
    return ", ".join([*sorted(LOSSLESS), *(f"{name} (lossy)" for name in lossy)])


def natural_rule(selections: Collection[Selection], trees: bool) -> str:
    """The rule that verifies such drafts unless another is asked for: of those stated natural for
    their form and one of their selections the one that takes all of them, else `match`, which takes
    any."""
    form = "tree" if trees else "chain"
    for name, stated in STATED.items():
        if any(
            (form, selection) in stated.natural for selection in selections
        ) and stated.rule.selections >= set(selections):
            return name
    return "match"


def foretold(name: str) -> Foretold:
    """How `plan` foretells the rule called `name`."""
    return STATED[name].foretold
