"""Verification rules by name. One file a rule; adding a line here adds the rule to the proof table and the command line."""

from __future__ import annotations

from draftproof.core.rules.block import Block
from draftproof.core.rules.match import Match
from draftproof.core.rules.protocol import Rule
from draftproof.core.rules.token import Token
from draftproof.errors import UsageError

RULES: dict[str, Rule] = {rule.name: rule for rule in (Match(), Token(), Block())}


def rule_by_name(name: str) -> Rule:
    """The rule called `name`; UsageError lists the names when there is none."""
    if name not in RULES:
        raise UsageError(f"rule {name!r} is unknown; allowed: {', '.join(sorted(RULES))}")
    return RULES[name]
