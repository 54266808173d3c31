"""Objects by `package.module:name` or `file.py:name`, as command lines name them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from draftproof.errors import UsageError


def object_named(name: str) -> Any:
    """What stands at `package.module:name` or `file.py:name`, names inside of it by dots. Modules
    of the working folder are found too. UsageError where there is nothing."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise UsageError(
            f"{name!r} is no module:name, as mypackage.mymodule:my_step or my_file.py:my_step"
        )
    value: Any = _module(place)
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{place} has no {part!r}")
        value = getattr(value, part)
    return value


def _module(place: str) -> ModuleType:
    """Import a module, also one in the working folder, or a file."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        if place.endswith(".py"):
            return _of_file(Path(place).expanduser())
        return importlib.import_module(place)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


def _of_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module
