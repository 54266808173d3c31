"""Every planted fault is caught, and the figure that catches it is the one published for it where there is one."""

from __future__ import annotations

import pytest

from draftproof.audit.mutants import MUTANTS, catch


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant):
    found = catch(mutant)
    print(f"{mutant.name}: TV {found.tv:.3g}, length off by {found.length_error:.3g}, key repeated {found.key_repeated}")
    assert found.caught
    assert max(found.tv, found.length_error) > 1e-3, "a fault this small would be caught by luck"


def test_missing_bonus_shows_in_the_length_alone():
    found = catch(next(m for m in MUTANTS if m.name == "missing bonus"))
    assert found.tv <= 1e-12
    assert found.length_error > 0.1


def test_position_keys_raise_and_bias_block():
    found = catch(next(m for m in MUTANTS if m.by_position))
    assert found.key_repeated
    assert found.tv > 0.01
