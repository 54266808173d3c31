"""The whole proof in one call: every cell of the chosen rules, every planted fault, and what a rule
makes of one position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from draftproof.audit import cells, table, tree_mutants
from draftproof.audit.ceilings import Achieved, achieved
from draftproof.audit.exact import Proof
from draftproof.audit.mutants import Catch, catch
from draftproof.core.rules import LOSSLESS, RULES
from draftproof.errors import UsageError

Tell = Callable[[str, int, int], None]
"""Told what is being done, how many are done, and how many there are."""


@dataclass(frozen=True)
class Audit:
    """What was found. proofs: of every cell. catches: of every planted fault. ceilings: of one
    position."""

    proofs: tuple[Proof, ...]
    catches: tuple[Catch, ...]
    ceilings: tuple[Achieved, ...]

    @property
    def exact(self) -> bool:
        """Whether every cell holds and every fault is caught."""
        return all(proof.holds for proof in self.proofs) and all(
            each.caught for each in self.catches
        )

    def document(self) -> dict[str, Any]:
        """Ready for JSON, with the keys of docs/json_documents.md."""
        return {
            "verdict": "exact" if self.exact else "not exact",
            "max_tv": max(p.tv for p in self.proofs),
            "max_length_error": max(p.length_error for p in self.proofs),
            "cases": len(self.proofs),
            "failed": [_cell(p) for p in self.proofs if not p.holds],
            "mutants": len(self.catches),
            "mutants_caught": sum(c.caught for c in self.catches),
            "mutant_figures": [_fault(c) for c in self.catches],
            "one_position": [asdict(row) for row in self.ceilings],
        }


def audit_rules(
    rules: Sequence[str] | None = None,
    *,
    full: bool = False,
    workers: int = 1,
    tell: Tell = lambda what, done, total: None,
) -> Audit:
    """Prove `rules` (all lossless ones if none is named) by enumeration, and plant every known
    fault of theirs.

    full: every combination of rule, drafter and parameters, not only every pair of them; takes
    hours. workers: processes side by side. UsageError for a rule that does not exist or is
    lossy."""
    allowed = ", ".join(sorted(LOSSLESS))
    for rule in rules or ():
        if rule not in RULES:
            raise UsageError(f"rule {rule!r} is unknown; allowed: {allowed}")
        if not RULES[rule].lossless:
            raise UsageError(
                f"rule {rule!r} is lossy by design: there is nothing to prove; allowed: {allowed}"
            )
    chosen = list(rules or LOSSLESS)
    small = (
        table.covering,
        table.tree_covering,
        table.guessed_covering,
        cells.other_covering,
        cells.head_covering,
    )
    large = (
        table.product,
        table.tree_product,
        table.guessed_product,
        cells.other_product,
        cells.head_product,
    )
    parts = (*(large if full else small), table.sibling_covering, cells.length_covering)
    cases = [case for part in parts for case in part(chosen)]
    mutants = [
        mutant for mutant in tree_mutants.MUTANTS if rules is None or mutant.natural in chosen
    ]
    proofs = _told(cells.prove_all(cases, workers), len(cases), "proving cells", tell)
    catches = _told(map(catch, mutants), len(mutants), "planting faults", tell)
    return Audit(tuple(proofs), tuple(catches), tuple(achieved(chosen)))


def _told(items: Iterable[Any], total: int, what: str, tell: Tell) -> list[Any]:
    """The items as a list, their number told as they come."""
    tell(what, 0, total)
    found = []
    for item in items:
        found.append(item)
        tell(what, len(found), total)
    return found


def _fault(found: Catch) -> dict[str, Any]:
    return {
        "name": found.mutant.name,
        "seen_in": found.mutant.seen_in,
        "tv": found.tv,
        "length_error": found.length_error,
        "key_repeated": found.key_repeated,
        "caught": found.caught,
    }


def _cell(proof: Proof) -> dict[str, Any]:
    case = proof.case
    return {
        "rule": case.rule,
        "draft": case.draft,
        "models": case.pair,
        "parameters": case.params,
        "num_speculative_tokens": case.num_speculative_tokens,
        "length": case.length,
        "tv": proof.tv,
        "length_error": proof.length_error,
    }
