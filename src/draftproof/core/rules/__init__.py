"""Verification rules by name. One file a rule; adding a line here adds the rule to the proof table and the command line."""

from __future__ import annotations

from draftproof.core.rules.block import Block
from draftproof.core.rules.greedy_k import GreedyK
from draftproof.core.rules.gumbel import Gumbel
from draftproof.core.rules.k_seq import KSeq
from draftproof.core.rules.match import Match
from draftproof.core.rules.protocol import Rule
from draftproof.core.rules.rrs import RecursiveRejection
from draftproof.core.rules.token import Token
from draftproof.core.rules.traversal import Traversal
from draftproof.core.rules.typical import Typical
from draftproof.errors import UsageError

LOSSLESS: dict[str, Rule] = {
    rule.name: rule for rule in (Match(), Token(), Block(), RecursiveRejection(), GreedyK(), KSeq(), Traversal(), Gumbel())
}
"""The rules that leave the target's law as it is; what the proof table runs over."""

RULES: dict[str, Rule] = LOSSLESS | {"typical": Typical()}
"""Every rule by the name one asks for it; a lossy one's own name says that it is."""


def rule_by_name(name: str) -> Rule:
    """The rule called `name`; UsageError lists the names when there is none."""
    if name not in RULES:
        raise UsageError(f"rule {name!r} is unknown; allowed: {', '.join(sorted(RULES))}")
    return RULES[name]
