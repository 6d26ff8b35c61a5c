"""Find plug-in files by name: one file in a folder is one scheduler, victim rule, objective, solver or bound."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import lru_cache
from types import ModuleType

from sim.errors import InputError

_LONGEST_NAME, _LONGEST_LIST = 80, 300


def names(package: str) -> list[str]:
    """Names of the plug-in modules of a package, sorted; files starting with ``_`` are helpers and left out.

    >>> "nrf" in names("sim.preemption")
    True
    """
    return list(_names(package))


@lru_cache(maxsize=64)
def _names(package: str) -> tuple[str, ...]:
    folder = importlib.import_module(package)
    found = (module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_"))
    return tuple(sorted(found))


def load(package: str, name: str, *, what: str | None = None) -> ModuleType:
    """Import one plug-in by its file name (``-`` and ``_`` are the same).

    Raises
    ------
    InputError
        If there is no such file; names the nearest one that exists.
    """
    known = names(package)
    module = name.replace("-", "_").replace(".", "_")
    if module not in known:
        raise InputError(unknown(name, known), field=what or package.rsplit(".", 1)[-1])
    return importlib.import_module(f"{package}.{module}")


def unknown(name: str, known: list[str]) -> str:
    """Say that a name is unknown, with the nearest known one, and the others where they fit on a line.

    >>> unknown("nfr", ["nrf", "srf"])
    "unknown name 'nfr'; did you mean 'nrf'? (known: nrf, srf)"
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4) if len(name) <= _LONGEST_NAME else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(known)
    if len(listed) > _LONGEST_LIST:
        listed = f"{len(known)} names, see `servebound list`"
    shown = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."
    return f"unknown name {shown!r}{hint} (known: {listed})"
