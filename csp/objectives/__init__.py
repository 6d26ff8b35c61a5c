"""Objectives, one file each: what makes one schedule better than another. All are minimised.

A file defines ``UNIT`` ("ms" for ticks of time, else a word), ``value(replay)``, the exact objective of a replayed
schedule, and ``minimise(formulated, problem)``, which writes it into an integer program.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, cast

from sim.registry import load
from sim.replay import Replay

if TYPE_CHECKING:
    from csp.formulations import Formulated
    from csp.solvers import Problem


class Objective(Protocol):
    """An objective module."""

    UNIT: str

    def value(self, replay: Replay) -> int | Fraction:
        """Exact objective of a replayed schedule; in ticks where the unit is ms."""

    def minimise(self, formulated: Formulated, problem: Problem) -> None:
        """Set the program's objective (and add what variables and constraints it needs)."""


def load_objective(name: str) -> Objective:
    """An objective by name.

    Raises
    ------
    sim.errors.InputError
        If there is no such objective.
    """
    return cast(Objective, load("csp.objectives", name, what="objective"))
