"""What holds for the whole repository."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
_FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base", "core"}
_LONGEST_FILE, _LONGEST_FUNCTION = 450, 60


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_packages_import_only_from_floors_below() -> None:
    executable = Path(sys.executable).parent / "lint-imports"
    assert executable.is_file(), "import-linter is not installed: pip install 'stoker[lint]'"
    result = subprocess.run([str(executable), "--no-cache"], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_package_has_its_floor() -> None:
    """A package that no layer names would be free to import anything."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    named = {part.strip() for layer in layers for part in layer.split("|")}
    entries = {
        f"stoker.{path.stem}"
        for path in (ROOT / "src" / "stoker").iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").is_file()) and not path.stem.startswith("__")
    }
    assert named == entries


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=name)
def test_a_file_is_one_room(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= _LONGEST_FILE
    assert path.stem not in _FORBIDDEN_NAMES


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_are_short(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= _LONGEST_FUNCTION, f"{node.name} in line {node.lineno} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_nothing_is_left_to_be_done(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for mark in ("TODO", "FIXME", "XXX", "NotImplementedError"):
        assert mark not in text, mark


def test_no_machine_path_is_in_the_repository() -> None:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=False)
    files = listed.stdout.splitlines()
    if listed.returncode != 0:  # an unpacked archive
        folders = ("src", "tests", "docs", "examples", "benchmarks")
        files = [str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*")]
    assert len(files) > 100
    for file in files:
        path = ROOT / file
        if path.suffix in {".py", ".md", ".yaml", ".toml", ".txt", ".json", ""} and path.is_file():
            text = path.read_text(encoding="utf-8", errors="ignore")
            found = re.search(r"(?<![\w.])/(?:home|root|Users)/\w+/", text)
            assert found is None, f"{file}: {found}"


def test_constraints_pin_every_dependency_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    names = {_plain(re.split(r"[\s<>=\[!~;]", dependency)[0]) for dependency in wanted} - {"stoker"}
    pins = {
        _plain(line.split("==")[0]): line.split("==")[1]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    assert names <= set(pins)
    assert "+" not in pins["torch"], "a local version could not be found on the package index"


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md")), ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target
