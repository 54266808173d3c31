"""Every planted fault is caught, and the figure that catches it is the one published for it where
there is one."""

from __future__ import annotations

import pytest

from draftproof.audit.mutants import catch
from draftproof.audit.tree_mutants import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant):
    found = catch(mutant)
    print(
        f"{mutant.name}: TV {found.tv:.3g}, length off by {found.length_error:.3g}, key "
        f"repeated {found.key_repeated}"
    )
    assert found.caught
    assert max(found.tv, found.length_error) > 1e-3, (
        "rounding is nine orders below; a fault this small says a toy is too tame"
    )


def test_missing_bonus_shows_in_the_length_alone():
    found = catch(next(m for m in MUTANTS if m.name == "missing bonus"))
    assert found.tv <= 1e-12
    assert found.length_error > 0.1


@pytest.mark.parametrize("rule", ["block", "traversal"])
def test_position_keys_raise_and_bias(rule):
    found = catch(next(m for m in MUTANTS if m.by_position and m.natural == rule))
    assert found.key_repeated
    assert found.tv > 0.01
