"""Check the proofs in proofs/, and hold the rules that run against them.

    python tools/theorem.py           build the proofs, read their assumptions, compare their laws
                                      with the kept ones
    python tools/theorem.py --keep    and write the kept ones anew (after a change of the cases)

Without Coq nothing is checked, and what is missing is said. The kept laws are compared with
`core/rules` by the tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from theorem_cases import KEPT, cases, coq_text, kept_text, laws_printed

PROOFS = Path(__file__).parent.parent / "proofs"
OUT = PROOFS / "out"
# in their order
FILES = re.findall(
    r"^(\w+)\.v$", (PROOFS / "_CoqProject").read_text(encoding="utf-8"), re.MULTILINE
)
FLAGS = ("-Q", str(PROOFS), "draftproof", "-w", "-notation-overridden,-ambiguous-paths")
PACKAGES = (
    "coq libcoq-mathcomp-ssreflect libcoq-mathcomp-algebra "
    "libcoq-mathcomp-algebra-tactics libcoq-mathcomp-zify"
)
PROBE = "From mathcomp Require Import all_ssreflect all_algebra ssrZ.\nCheck RealLeMixin.\n"
"""The last name is not in mathcomp 2."""
CLOSED = "Closed under the global context"
UNPROVEN = re.compile(r"\b(Admitted|admit|Axiom|Axioms|Parameter|Parameters|Conjecture)\b")
COMMENT = re.compile(r"\(\*.*?\*\)", re.DOTALL)


class ProofError(Exception):
    """A proof does not stand; the message says which and why."""


def missing() -> str | None:
    """What there is to install before the proofs can be checked; None when nothing."""
    if shutil.which("coqc") is None:
        return "Coq is not installed"
    version = _run("coqc", "--print-version").stdout.split(" ")[0]
    if not version.startswith("8.16."):
        return f"the proofs are written for Coq 8.16, and this is {version}"
    OUT.mkdir(exist_ok=True)
    (OUT / "probe.v").write_text(PROBE, encoding="utf-8")
    if _run("coqc", "-w", "none", str(OUT / "probe.v")).returncode:
        return "Coq's mathcomp 1.15 with algebra and zify is not installed"
    return None


def build() -> list[str]:
    """Compile what has changed, in order; the assumptions of each theorem, as Coq prints them."""
    for name in FILES:
        source = PROOFS / f"{name}.v"
        if found := UNPROVEN.search(COMMENT.sub("", source.read_text(encoding="utf-8"))):
            raise ProofError(f"{source.name} says {found[0]}: nothing may be taken without proof")
    stale = False
    for name in FILES[:-1]:
        source, made = PROOFS / f"{name}.v", PROOFS / f"{name}.vo"
        stale = stale or not made.exists() or made.stat().st_mtime < source.stat().st_mtime
        if stale:
            coq(source)
    return read_assumptions(coq(PROOFS / f"{FILES[-1]}.v"))


def read_assumptions(log: str) -> list[str]:
    """The log of `Print Assumptions`, kept in proofs/out; ProofError unless every theorem is
    closed."""
    OUT.mkdir(exist_ok=True)
    (OUT / "assumptions.log").write_text(log, encoding="utf-8")
    if log.strip().splitlines() != [CLOSED] * len(asked()):
        raise ProofError(f"a theorem rests on an assumption, see {OUT / 'assumptions.log'}:\n{log}")
    return asked()


def asked() -> list[str]:
    """The theorems whose assumptions proofs/main.v asks for."""
    return re.findall(
        r"^Print Assumptions (\w+)\.", (PROOFS / "main.v").read_text(encoding="utf-8"), re.MULTILINE
    )


def coq(source: Path) -> str:
    """Compile one file; what it printed."""
    done = _run("coqc", *FLAGS, str(source))
    if done.returncode:
        raise ProofError(f"{source.name} does not go through:\n{done.stderr}")
    return done.stdout


def proven_laws() -> str:
    """The text of the kept file, from the proofs as they stand built."""
    made = list(cases())
    source = OUT / "cases.v"
    source.write_text(coq_text(made), encoding="utf-8")
    laws = laws_printed(coq(source))
    if len(laws) != len(made) or any(sum(law.values()) != 1 for law in laws):
        raise ProofError(
            f"Coq printed {len(laws)} laws for {len(made)} cases, or one that does not sum to 1"
        )
    return kept_text(made, laws)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--keep"]):
        print(f"allowed: no argument, or --keep; got {' '.join(arguments)}", file=sys.stderr)
        return 2
    if lacking := missing():
        print(f"theorem: not checked, {lacking}. On Debian or Ubuntu: apt-get install {PACKAGES}")
        return 0
    start = time.monotonic()
    try:
        theorems = build()
        text = proven_laws()
    except ProofError as error:
        print(f"theorem: {error}", file=sys.stderr)
        return 1
    if arguments:
        KEPT.write_text(text, encoding="utf-8")
    if KEPT.read_text(encoding="utf-8") != text:
        print(
            "theorem: the proofs give other laws than those kept; see what changed, then `--keep`",
            file=sys.stderr,
        )
        return 1
    laws = len(text.splitlines()) - 2
    print(
        f"theorem: {len(theorems)} theorems closed, {laws} laws of verdicts as kept, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
