"""The promises of the package itself: what an import loads, what is public, how large parts are,
what the wheel holds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest

import check_docs
import check_sizes
import check_waist
import draftproof

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {
    "torch",
    "transformers",
    "matplotlib",
    "numpy",
    "scipy",
    "gguf",
    "safetensors",
    "tokenizers",
    "array_api_compat",
}


def heavy_modules_after(code: str, folder: Path) -> set[str]:
    """The heavy packages that a fresh interpreter has loaded after `code`."""
    script = f"import sys, json\n{code}\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=folder
    )
    return HEAVY & set(json.loads(finished.stdout.splitlines()[-1]))


def test_the_heavy_list_is_seen_when_something_is_loaded(tmp_path: Path) -> None:
    assert heavy_modules_after("import numpy", tmp_path) == {"numpy"}


@pytest.mark.parametrize(
    "code",
    [
        "import draftproof",
        "import draftproof; dir(draftproof); draftproof.__version__",
        "from draftproof.cli.main import run; assert run(['--help']) == 0",
        "from draftproof.cli.main import run; assert run(['--version']) == 0",
        "from draftproof.cli.main import run; assert run(['no-such-verb']) == 2",
    ],
)
def test_importing_and_help_load_nothing_heavy(code: str, tmp_path: Path) -> None:
    assert heavy_modules_after(code, tmp_path) == set()


@pytest.mark.parametrize("verb", ["generate", "pull", "audit", "simulate", "experiments"])
def test_the_help_of_a_verb_loads_no_model_library(verb: str, tmp_path: Path) -> None:
    code = f"from draftproof.cli.main import run; assert run([{verb!r}, '--help']) == 0"
    assert (
        heavy_modules_after(code, tmp_path) & {"torch", "transformers", "matplotlib", "gguf"}
        == set()
    )


def test_public_surface_is_sorted_complete_and_resolvable() -> None:
    assert sorted(set(draftproof.__all__)) == draftproof.__all__
    for name in draftproof.__all__:
        assert getattr(draftproof, name) is not None, name
    public = {
        name
        for name, value in vars(draftproof).items()
        if not name.startswith("_")
        and not (isinstance(value, ModuleType) and name not in draftproof.__all__)
    }
    assert public - {"annotations", "TYPE_CHECKING", "lazily"} == set(draftproof.__all__)
    assert set(dir(draftproof)) == {*draftproof.__all__, "__version__"}


PUBLIC = {
    "audit": [
        "Audit",
        "CallableEngine",
        "EndpointEngine",
        "LocalCopy",
        "OurEngine",
        "Plan",
        "TransformersEngine",
        "audit_black_box",
        "audit_greedy",
        "audit_rules",
        "audit_subject",
        "audit_white_box",
    ],
    "bench": [
        *(
            "benchmark",
            "build_arms",
            "builtin_items",
            "compare_with_plain",
            "document",
            "encode",
            "measure",
            "parse_spec",
        ),
        *("read_items", "specs_of", "with_later_turns"),
    ],
    "drafters.stores": ["build_store", "read_store", "write_store"],
    "experiments": ["EXPERIMENTS", "Settings", "run"],
    "heads": ["export_for_vllm"],
    "models": ["DraftModels", "load_engine", "load_model"],
    "plan": [
        "Candidate",
        "alpha_per_position",
        "make_plan",
        "plan_document",
        "plan_speculation",
        "what_if",
    ],
    "report": [
        *(
            "comparison_page",
            "json_line",
            "names_of",
            "print_result",
            "read_document",
            "sections_of",
            "write_json",
        ),
        "write_page",
    ],
    "simulate": [
        *(
            "BatchModel",
            "SimulatedSpeculativeDecoder",
            "batch_result",
            "card",
            "generation_result",
            "model",
        ),
        *("parse_acceptance", "process_result", "run_generation"),
    ],
    "train": [
        *(
            "DraftRecipe",
            "Inventing",
            "Recipe",
            "Settings",
            "TextWriter",
            "TrainPrompt",
            "Writing",
            "gather",
            "invent",
        ),
        *("read_prompts", "read_texts", "train_draft", "train_head", "write_answers"),
    ],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_tool_has_its_public_names(name: str) -> None:
    """Each is its home's own object, also after the modules of the package were imported: no name
    is a module's."""
    package = import_module(f"draftproof.{name}")
    assert package.__all__ == sorted(package.__all__) == PUBLIC[name] == dir(package)
    modules = {module.name for module in iter_modules(package.__path__)}
    assert not modules & set(PUBLIC[name])
    for public in PUBLIC[name]:
        assert getattr(import_module(package._HOMES[public]), public) is getattr(package, public)
    with pytest.raises(
        AttributeError, match=f"module 'draftproof.{name}' has no attribute 'nothing'"
    ):
        _ = package.nothing


@pytest.mark.parametrize("name", PUBLIC)
def test_importing_a_tool_loads_nothing_heavy(name: str, tmp_path: Path) -> None:
    assert heavy_modules_after(f"import draftproof.{name}", tmp_path) == set()


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'draftproof' has no attribute 'speculate'"):
        _ = draftproof.speculate  # type: ignore[attr-defined]


def test_console_script_tells_an_unknown_verb_in_one_sentence() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "draftproof", "xylophone"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2 and finished.stdout == ""
    assert (
        finished.stderr.startswith("draftproof: there is no verb 'xylophone'")
        and finished.stderr.count("\n") == 1
    )


def test_files_and_functions_are_short() -> None:
    files = sorted(
        path
        for top in ("src", "benchmarks", "examples", "tools", "tests")
        for path in (ROOT / top).rglob("*.py")
    )
    assert len(files) > 20
    assert [line for path in files for line in check_sizes.complaints(path)] == []


def test_the_size_check_sees_what_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("def f():\n" + "    x = 1\n" * 61 + "y = 2\n" * 419)
    assert [line.split(": ", 1)[1] for line in check_sizes.complaints(tmp_path / "long.py")] == [
        "481 lines, at most 480 are allowed",
        "f has 61 lines, at most 60 are allowed",
    ]
    assert check_sizes.main([str(tmp_path)]) == 1


def test_members_of_the_waist_are_declared_and_not_asked_for() -> None:
    assert (
        check_waist.main(
            [str(ROOT / top) for top in ("src", "benchmarks", "examples", "labs", "tools", "tests")]
        )
        == 0
    )
    assert {
        "fork",
        "members",
        "limits",
        "session_bytes",
        "rows_mix",
        "foresee_each",
        "verify",
        "reckon_with",
    } <= set(check_waist.declared_members())


def test_the_waist_check_sees_what_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(
        "a = getattr(drafter, 'not_declared_yet', None)\n"
        "b = hasattr(self._target, 'device')\n"
        "c = getattr(one, 'session_bytes', None)\n"
        "d = getattr(members[0].session, 'fork')\n"
        "e = getattr(self.drafter(target), 'tree', None)\n"
        "fine = getattr(module, 'generation_config', None), getattr(a.config, "
        "'rope_scaling', None), hasattr(ids, 'tolist')\n"
        "also = [getattr(params, field.name) for field in fields(params)]\n"
    )
    assert check_waist.main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(f"{planted}:").split(": ")[0] for line in lines] == [
        "1",
        "2",
        "3",
        "4",
        "5",
    ]
    assert lines[1].endswith(
        "hasattr(self._target, 'device'): declare it in the base class and read it as a member"
    )
    assert check_waist.main([str(tmp_path / "nothing")]) == 2


def test_the_pages_agree_with_the_tree() -> None:
    assert check_docs.complaints(ROOT) == []


def test_the_page_check_sees_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "draftproof" / "core").mkdir(parents=True)
    (tmp_path / "src" / "draftproof" / "core" / "__init__.py").touch()
    (tmp_path / "Makefile").write_text("test:\n\techo\n")
    (tmp_path / "CHANGELOG.md").touch()
    (tmp_path / "README.md").write_text(
        "[a](docs/gone.md) [b](#no) [c](docs/structure.md#the-end) `make test fly` `src/gone.py`\n"
    )
    (tmp_path / "docs" / "structure.md").write_text("# The end\n")
    (tmp_path / "docs" / "lonely.md").touch()
    assert check_docs.complaints(tmp_path) == [
        "docs/lonely.md: no page links to it",
        "README.md: the link docs/gone.md leads nowhere",
        "README.md: the link #no names a heading that is not there",
        "README.md: `src/gone.py` does not exist",
        "README.md: `make fly` is not a target of the Makefile",
        "docs/structure.md: `core/` of the package is not named",
    ]


def build_wheel(folder: Path) -> Path:
    """The wheel of a copy of the sources, so that nothing is written into the tree."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder / "dist"),
        str(source),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def clean_environment(folder: Path, wheel: Path) -> Path:
    """A new environment with the wheel installed in it; dependencies are borrowed from this one.
    Returns its `bin` folder."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (site_packages,) = (folder / "lib").glob("python*/site-packages")
    # A plain path line: this environment's own .pth files, the editable install among them, are not
    # followed from there.
    (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def test_the_wheel_works_in_a_clean_environment(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    held = zipfile.ZipFile(wheel).namelist()
    assert "draftproof/py.typed" in held
    assert f"draftproof-{draftproof.__version__}.dist-info/licenses/LICENSE" in held
    for weights in [name for name in held if name.endswith(".safetensors")]:
        beside = {name for name in held if name.startswith(weights.rpartition("/")[0])}
        assert {Path(name).name for name in beside} >= {"LICENSE", "README.md", "config.json"}
    assert {name.split("/")[0] for name in held} == {
        "draftproof",
        f"draftproof-{draftproof.__version__}.dist-info",
    }
    sources = {
        str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "draftproof").rglob("*.py")
    }
    assert sources == {name for name in held if name.endswith(".py")}

    binaries = clean_environment(tmp_path / "env", wheel)
    version = subprocess.run(
        [binaries / "draftproof", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert version.stdout == f"draftproof {draftproof.__version__}\n"
    code = (
        "import draftproof; print(draftproof.__file__); print(draftproof.expected_tokens(0.8, 4))"
    )
    used = subprocess.run(
        [binaries / "python", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    where, tokens = used.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path / "env")
    assert float(tokens) == pytest.approx((1 - 0.8**5) / (1 - 0.8))
