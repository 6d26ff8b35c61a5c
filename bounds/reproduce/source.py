"""Which source text a measured cell rests on, so that a cell is measured anew when any of it has changed.

The claims' judging and drawing is left out: rewording a verdict must not cost a rerun.
"""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from pathlib import Path

import bounds
import csp
import sim

_CLAIMS = "bounds.claims"


@lru_cache(maxsize=1)
def engine_fingerprint() -> str:
    """Hash of the simulator, the solvers and the bounds."""
    digest = hashlib.sha256()
    here = Path(bounds.__path__[0])
    roots = [Path(sim.__path__[0]), Path(csp.__path__[0]), here / "lower", here / "upper"]
    files = [
        *here.glob("*.py"),
        *(path for root in roots for path in root.rglob("*") if path.suffix in (".py", ".json")),
    ]
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def measuring_source(claim: str) -> str:
    """Text of a claim's ``measure`` and of all it names in the package of claims, in a fixed order."""
    found: dict[tuple[str, str], str] = {}
    _follow(claim, "measure", found)
    return "\n".join(text for _, text in sorted(found.items()))


def _follow(module: str, name: str, found: dict[tuple[str, str], str]) -> None:
    definition = _definitions(module).get(name)
    if definition is None or (module, name) in found:
        return
    node, text = definition
    if isinstance(node, ast.ImportFrom):
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        found[module, name] = f"{node.module}.{original}"
        package, _, file = (node.module or "").rpartition(".")
        if package == _CLAIMS:
            _follow(file, original, found)
        return
    found[module, name] = text
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            _follow(module, part.id, found)
        elif isinstance(part, ast.ImportFrom) and (part.module or "").startswith(f"{_CLAIMS}."):
            for alias in part.names:
                _follow((part.module or "").rpartition(".")[2], alias.name, found)


@lru_cache(maxsize=64)
def _definitions(module: str) -> dict[str, tuple[ast.stmt, str]]:
    """Top-level names of a file of claims with the statement that defines them and its text."""
    text = (Path(bounds.__path__[0]) / "claims" / f"{module}.py").read_text("utf-8")
    names: dict[str, tuple[ast.stmt, str]] = {}
    for node in ast.parse(text).body:
        source = ast.get_source_segment(text, node) or ""
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = node, source
        elif isinstance(node, ast.ImportFrom):
            names.update({alias.asname or alias.name: (node, source) for alias in node.names})
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        names[part.id] = node, source
    return names
