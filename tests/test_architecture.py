"""The floors: sim <- csp <- bounds; solvers only where they are called; importing sim stays light."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("sim", "csp", "bounds")
FILES = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]
SOLVERS = ("ortools", "pulp", "highspy")
SLOW = (*SOLVERS, "matplotlib", "pandas", "pyarrow", "numba", "joblib")
TABLES = "sim.cost.fit"
"""Reads tables of measurements; nothing else in sim imports it when imported."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def runs_later(node: ast.AST) -> bool:
    """Whether importing a module leaves this part of it out."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def imports(path: Path, *, at_import_time: bool = False) -> Iterator[str]:
    """Full names of the modules a file imports, anywhere in it or only what runs when it is imported."""

    def walk(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                package = module_name(path).split(".")
                package = package if path.name == "__init__.py" else package[:-1]
                head = package[: len(package) - child.level + 1] if child.level else []
                yield ".".join([*head, *([child.module] if child.module else [])])
            elif not (at_import_time and runs_later(child)):
                yield from walk(child)

    yield from walk(ast.parse(path.read_text("utf-8")))


def top(name: str) -> str:
    return name.split(".")[0]


def test_nothing_imports_upwards() -> None:
    for path in FILES:
        floor = FLOORS.index(path.relative_to(ROOT).parts[0])
        upwards = {n for n in imports(path) if top(n) in (*FLOORS[floor + 1 :], "tests", "notebooks")}
        assert not upwards, f"{module_name(path)} imports from a floor above: {sorted(upwards)}"


def test_solvers_are_imported_only_where_they_are_called() -> None:
    for path in FILES:
        if path.relative_to(ROOT).parts[:2] not in (("csp", "solvers"), ("csp", "formulations")):
            solvers = {name for name in imports(path) if top(name) in SOLVERS}
            assert not solvers, f"{module_name(path)} imports {sorted(solvers)}"


def test_slow_packages_are_imported_when_needed() -> None:
    """Command modules and public modules load in no time; plot modules and helpers may load what they are for."""
    for path in FILES:
        if not path.name.startswith("_") and "plot" not in path.name and not module_name(path).startswith(TABLES):
            slow = {name for name in imports(path, at_import_time=True) if top(name) in SLOW}
            assert not slow, f"{module_name(path)} imports {sorted(slow)} when it is imported"


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return {top(name) for name in done.stdout.split()}


def test_importing_sim_loads_nothing_slow() -> None:
    """Every module of sim, not just the package."""
    modules = [module_name(p) for p in FILES if module_name(p).startswith("sim")]
    assert not loaded_after("import " + ", ".join(modules)) & {*SOLVERS, "matplotlib", "numba"}
    light = [name for name in modules if not name.startswith(TABLES)]
    assert not loaded_after("import " + ", ".join(light)) & {*SLOW, "scipy", "rich"}
    assert not loaded_after("import sim.engine") & {"csp", "bounds"}


def test_listing_what_is_there_loads_no_solver() -> None:
    statement = (
        "import io, contextlib, bounds.cli\nwith contextlib.redirect_stdout(io.StringIO()): bounds.cli.main(['list'])"
    )
    assert not loaded_after(statement) & set(SLOW)


@pytest.mark.parametrize("floor", FLOORS)
def test_the_packages_are_this_projects(floor: str) -> None:
    """The names are generic; an installed stranger must not shadow them."""
    package = importlib.import_module(floor)
    assert package.__file__ is not None
    assert Path(package.__file__).resolve().parent == ROOT / floor


def test_the_independent_search_shares_no_code_with_what_it_checks() -> None:
    own = {f"tests.oracle{part}" for part in ("", ".cost", ".objectives", ".search", ".slots")}
    allowed = {"sim.instance", "sim.cost", "sim.schedule", *own}
    for path in sorted((ROOT / "tests" / "oracle").glob("*.py")):
        if not path.name.startswith("test_"):
            ours = {name for name in imports(path) if top(name) in (*FLOORS, "tests")}
            assert ours <= allowed, f"{path.name} imports {sorted(ours - allowed)}"


def test_package_data_is_declared_where_it_is_read() -> None:
    """Data files lie inside the packages, so that they come with a wheel."""
    assert list((ROOT / "sim" / "cost" / "data").glob("*.json"))
    assert list((ROOT / "sim" / "data" / "instances").glob("*.yaml"))


def test_no_test_reads_outside_the_project_without_saying_so() -> None:
    """Nothing in the packages reaches beyond the repository."""
    for path in FILES:
        assert "../shared" not in path.read_text("utf-8"), module_name(path)
