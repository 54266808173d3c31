"""The scripts of benchmarks/, loaded as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
FOLDERS = (FOLDER, FOLDER / "one_off")
sys.path[:0] = map(str, FOLDERS)


def script(name: str) -> ModuleType:
    file = next(path for folder in FOLDERS if (path := folder / f"{name}.py").exists())
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module
