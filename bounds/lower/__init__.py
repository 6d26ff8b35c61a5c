"""Lower bounds, one file each, with the proof in its docstring.

A file defines ``OBJECTIVES``, the objectives it bounds, and ``bound(instance, cost, *, objective, time_limit_s)``,
which
returns a `csp.result.Bound` or None where it does not apply. Each holds for every schedule the replay accepts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from csp.relaxations.combinatorial import count
from csp.result import Bound
from sim.cost.model import CostModel
from sim.errors import InputError
from sim.instance import Instance
from sim.registry import load, names

QUICK = ("critical_path", "tokens", "memory_area", "sequences", "packing", "aggregate")
"""Bounds that take milliseconds."""
NOT_UNDER_SWAPPING = ("levels", "circulation", "histories")
"""Bounds that count on residents to have been filled or kept, which swapping in gets around."""

counted = lru_cache(maxsize=4)(count)


def bound_names(objective: str = "makespan") -> list[str]:
    """Names of the bounds for an objective, quick ones first, then what arrivals say."""
    package = "bounds.lower"
    every = [name for name in names(package) if objective in load(package, name).OBJECTIVES]
    first = (*QUICK, "release")
    return sorted(every, key=lambda name: (first.index(name) if name in first else len(first), name))


def iter_bounds(
    instance: Instance,
    cost: CostModel,
    *,
    objective: str = "makespan",
    only: Sequence[str] | None = None,
    time_limit_s: float | None = None,
) -> Iterator[Bound]:
    """The bounds that apply, one by one as they are computed.

    Raises
    ------
    sim.errors.InputError
        If a name in ``only`` is unknown, or a request can never fit.
    """
    for name in only if only is not None else bound_names(objective):
        module = load("bounds.lower", name, what="bound")
        if objective not in module.OBJECTIVES:
            raise InputError(f"bounds {', '.join(module.OBJECTIVES)}, not {objective}", field="bound", value=name)
        found: Bound | None = module.bound(instance, cost, objective=objective, time_limit_s=time_limit_s)
        if found is not None:
            yield found


def all_bounds(
    instance: Instance,
    cost: CostModel,
    *,
    objective: str = "makespan",
    only: Sequence[str] | None = None,
    time_limit_s: float | None = None,
) -> list[Bound]:
    """The bounds that apply, strongest first; see `iter_bounds`.

    Examples
    --------
    >>> from sim.cost.model import load_cost_model
    >>> from sim.instance import load_instance
    >>> instance = load_instance("paper-7.2-i0064")
    >>> bounds = all_bounds(instance, load_cost_model(instance.cost_model), only=["critical-path", "packing"])
    >>> [(bound.name, round(bound.value_ms, 3)) for bound in bounds]
    [('packing', 59.521), ('critical_path', 32.619)]
    """
    found = iter_bounds(instance, cost, objective=objective, only=only, time_limit_s=time_limit_s)
    return sorted(found, key=lambda bound: -bound.value_ticks)
