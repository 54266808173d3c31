"""`--impl=solution` runs the reference; without it the learner's file is run. Stretch tasks run
when their folder is named."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--impl",
        choices=["yours", "solution"],
        default="yours",
        help="lab: run your file (default) or the reference",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The lab itself is three tests; its stretch tasks wait until one is asked for."""
    asked = any(
        "stretch" in argument
        for argument in config.invocation_params.args
        if isinstance(argument, str)
    )
    return True if collection_path.name == "stretch" and not asked else None


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The functions under test. One that is not written yet fails its test in a sentence instead of
    a traceback."""
    folder, solution = Path(request.path).parent, request.config.getoption("--impl") == "solution"
    yours = "speculative.py" if (folder / "speculative.py").exists() else "starter.py"
    module = load(folder / ("solution.py" if solution else yours))
    return SimpleNamespace(
        **{name: guarded(value) for name, value in vars(module).items() if not name.startswith("_")}
    )


@pytest.fixture(scope="session")
def diagnosis() -> ModuleType:
    """What the numbers of a wrong step point to."""
    return load(Path(__file__).parent / "diagnosis.py")


def load(path: Path) -> ModuleType:
    """Import one file under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"lab14_{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def guarded(value: Any) -> Any:
    """`value`; a function that is not written yet, or draws from what is no law, ends its test with
    a sentence alone."""
    if isinstance(value, type) or not callable(value):
        return value
    function: Callable[..., Any] = value

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except NotImplementedError as error:
            sentence = f"not written yet: {error}"
        except ValueError as error:
            if "sum to 1" not in str(error):
                raise
            sentence = (
                f"{function.__name__} draws from something that is no law: divide the "
                f"residual by its sum ({error})"
            )
        pytest.fail(sentence, pytrace=False)

    return call
