"""Faults planted in the real source, one at a time, to see that the tests nearest to them fail:
`make mutants`.

    python -m mutants [--only WORD] [--json] [--workers N] [--out FILE]    (tools/ on PYTHONPATH)

The faults are plain lists, a file a room. Each is planted in a copy of the package, never in the
tree, and the tests it names are run over that copy. One that no test sees fails the run, unless the
reason why none can is written beside it; of those there may be one in twenty. What was found is
kept in FILE, and a run that is broken off goes on from there; an entry is asked again when its
fault, the file it is planted in or the tests it names have changed.

Why a list and not mutmut or cosmic-ray: see docs/dependencies.md.
"""

from __future__ import annotations

from mutants.core import CORE
from mutants.decode import DECODE
from mutants.drafters import DRAFTERS
from mutants.fault import Fault
from mutants.plan import PLAN
from mutants.rules import RULES
from mutants.serve import SERVE
from mutants.train import TRAIN

FAULTS: tuple[Fault, ...] = (*CORE, *RULES, *DECODE, *DRAFTERS, *PLAN, *TRAIN, *SERVE)
