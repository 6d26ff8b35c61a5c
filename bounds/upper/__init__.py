"""Good schedules for workloads of any size: where the upper end of the interval comes from.

Each method is a file with ``OBJECTIVES`` and ``schedules(instance, cost, objective, until, below_ticks)``, an iterator
over ever better (schedule, how it was found) that ends when ``until()`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Protocol

from bounds.upper._exact import Tally
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.replay import Replay
from sim.schedule import Schedule

METHODS = ("first_tokens", "tuned", "ranked", "staggered")
"""In the order they are tried, before the slow lower bounds."""
LATE = ("walk", "cycles")
"""Tried after them: for them there is always something left to try."""

IMPROVERS = ("windows",)
"""Files with ``improved(start, cost, objective, until, *, tally)``, which start from the best schedule known."""

Method = Callable[[Instance, CostModel, str, Callable[[], bool], float], Iterator[tuple[Schedule, str]]]


class Improver(Protocol):
    """A method that starts from a schedule; exact windows are counted in the tally."""

    def __call__(
        self, start: Replay, cost: CostModel, objective: str, until: Callable[[], bool], *, tally: Tally | None = None
    ) -> Iterator[Schedule]: ...


def methods(objective: str, names: Sequence[str] = METHODS) -> list[tuple[str, Method]]:
    """Names and functions of the methods for an objective."""
    modules = [(name, import_module(f"{__name__}.{name}")) for name in names]
    return [(name, module.schedules) for name, module in modules if objective in module.OBJECTIVES]


def improvers(objective: str) -> list[tuple[str, Improver]]:
    """Names and functions of the methods that improve a schedule, for an objective."""
    modules = [(name, import_module(f"{__name__}.{name}")) for name in IMPROVERS]
    return [(name, module.improved) for name, module in modules if objective in module.OBJECTIVES]
