"""Where a model lies: a hub id, a folder, a GGUF file, an adapter's base, or a short name. Loads no
model library.

The hub is asked aloud and within a time limit. Of the limits that web clients have, none holds for
a look-up of its address or for a machine with many addresses, so the question is put in a thread
that is left behind when the time is over."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TypeVar

from draftproof.errors import UsageError
from draftproof.models.adapters import base_of, is_adapter_folder
from draftproof.models.convert import converted_gguf, is_model_folder, note
from draftproof.models.pull import PULLABLE, pulled_folder

HUB_SECONDS = 8.0
"""Within which the hub has to answer, all in all."""
_REQUEST_SECONDS = 5.0
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
Answer = TypeVar("Answer")


def locate(name: str, revision: str | None = None) -> tuple[str, bool]:
    """What to give to transformers for `name`, and whether to stay off the network; UsageError when
    nothing is there."""
    local, hub_id, advice = _read(name)
    if local is None:
        return hub_id, _is_kept_only(hub_id, revision, advice)
    return str(converted_gguf(local) if local.is_file() else local), True


def check_place(name: str | Path, revision: str | None = None) -> None:
    """UsageError when nothing is at `name`; nothing is loaded or converted, and the hub is asked
    only for what was never downloaded. For a folder with an adapter, its base model is looked
    for."""
    folder = Path(name).expanduser()
    local, hub_id, advice = _read(base_of(folder) if is_adapter_folder(folder) else str(name))
    if local is None and not _is_kept(hub_id, revision):
        _is_kept_only(hub_id, revision, advice)


def is_here(name: str, revision: str | None = None) -> bool:
    """Whether the model `name` is on this machine, so that no hub needs to be asked."""
    try:
        local, hub_id, _ = _read(name)
    except UsageError:
        return False
    return local is not None or _is_kept(hub_id, revision)


def _read(name: str) -> tuple[Path | None, str, str]:
    """(folder or .gguf file, hub id, what to do when the hub has it not) of a name; the first is
    None for what is on a hub."""
    path = Path(name).expanduser()
    if path.is_dir():
        if not is_model_folder(path):
            raise UsageError(
                f"the folder {name} has no config.json; name a model folder, a .gguf "
                "file or a hub id"
            )
        return path, "", ""
    if path.is_file():
        if path.suffix != ".gguf":
            raise UsageError(
                f"{name} is a file, but not a .gguf file; name the folder the model lies in"
            )
        return path, "", ""
    if path.suffix == ".gguf" or name.startswith(("/", ".", "~")) or not _HUB_ID.fullmatch(name):
        raise UsageError(f"there is no file or folder {name}")
    short_name = next(
        (
            short
            for short, entry in PULLABLE.items()
            if name.lower() in (short, entry.hub_id.lower())
        ),
        None,
    )
    local = None if short_name is None and "/" in name else _in_folder_of_models(short_name or name)
    if local is not None:
        return local, "", ""
    if short_name is None:
        return None, name, "name a local folder or a .gguf file"
    return None, PULLABLE[short_name].hub_id, f"run: draftproof pull {short_name}"


def _in_folder_of_models(name: str) -> Path | None:
    """The folder or GGUF file of that name where `draftproof pull` puts models."""
    folder = pulled_folder(name)
    file = folder.with_name(f"{folder.name}.gguf")
    if is_model_folder(folder):
        return folder
    return file if file.is_file() else None


def _is_kept(hub_id: str, revision: str | None) -> bool:
    """Whether the model was downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(hub_id, "config.json", revision=revision), str)


def _is_kept_only(hub_id: str, revision: str | None, advice: str) -> bool:
    """False when the hub knows the model, True when it does not answer but the model was downloaded
    before; else UsageError.

    Asked once with a short time limit, because transformers itself retries every file for half a
    minute."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    is_kept = _is_kept(hub_id, revision)
    if not constants.HF_HUB_OFFLINE:
        note(f"asking the model hub for {hub_id} ...")
    try:
        _within(
            HUB_SECONDS,
            lambda: HfApi().model_info(hub_id, revision=revision, timeout=_REQUEST_SECONDS),
        )
    except GatedRepoError as error:
        raise UsageError(
            f"{hub_id} is gated on the model hub: accept its terms there and run: hf auth login"
        ) from error
    except RevisionNotFoundError as error:
        raise UsageError(f"the model hub has no revision {revision!r} of {hub_id}") from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"there is no model {hub_id} on the model hub, and no folder of that name; {advice}"
        ) from error
    except Exception as error:
        if is_kept:
            return True
        raise UsageError(
            f"{hub_id} is not on this machine and the model hub cannot be reached; {advice}"
        ) from error
    if not is_kept:
        note(
            f"{hub_id} is on the model hub and not on this machine yet: its download may "
            "take minutes"
        )
    return False


def _within(seconds: float, work: Callable[[], Answer]) -> Answer:
    """What `work` gives or raises; TimeoutError when it takes longer."""
    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # raised again where the answer is waited for
            answer.set_exception(error)

    Thread(target=run, daemon=True, name="model hub").start()
    return answer.result(timeout=seconds)
