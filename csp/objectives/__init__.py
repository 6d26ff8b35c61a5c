"""Objectives, one file each: what makes one schedule better than another. All are minimised.

A file defines ``objective(argument) -> Objective``; the argument is what stands behind a colon in the name on the
command line ("max_ttft:0"), else None. Every objective can also be a limit (`Objective.at_most`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from csp.program import Terms
from sim.cost.model import CostModel
from sim.errors import InputError
from sim.instance import Instance
from sim.registry import load
from sim.replay import Replay, Rules

if TYPE_CHECKING:
    from csp.formulations import Formulated
    from csp.solvers import Problem

Ticks = int | Fraction


class Objective(ABC):
    """Base of the objectives.

    Attributes
    ----------
    unit
        "ms" for times, whose values are ticks; else a word, and values are plain numbers.
    regular
        Whether it never falls when some tokens come later and none earlier.
    by_request
        Whether it needs to know which of several identical requests is which.
    exact
        Whether `expression` pressed down equals ``divisor * value``; if not, `csp.solve` proves an optimum by asking
        for something better until there is nothing.
    """

    unit = "ms"
    regular = True
    by_request = False
    exact = True
    limits_batches = True

    @abstractmethod
    def value(self, replay: Replay, cost: CostModel | None = None) -> Ticks:
        """Exact objective of a replayed schedule (under the instance's cost model, or the given one)."""

    @abstractmethod
    def expression(self, formulated: Formulated, problem: Problem) -> Terms:
        """A linear expression that is at least ``divisor * value`` and can be pressed down to it."""

    def divisor(self, problem: Problem) -> int:
        """What the expression is divided by."""
        return 1

    def at_most(self, formulated: Formulated, problem: Problem, most: Ticks) -> None:
        """Leave only schedules whose value is at most that."""
        bound = math.floor(most * self.divisor(problem))
        formulated.program.at_most(self.expression(formulated, problem), bound, f"limit_{type(self).__name__}")

    def below(self, formulated: Formulated, problem: Problem, value: Ticks) -> None:
        """Leave only schedules whose value is below that; only needed where `exact` is false."""
        bound = math.ceil(value * self.divisor(problem)) - 1
        formulated.program.at_most(self.expression(formulated, problem), bound, f"below_{type(self).__name__}")

    def lower_bound(self, instance: Instance, cost: CostModel, rules: Rules) -> Ticks:
        """A simple bound that holds for every schedule."""
        return 0

    @abstractmethod
    def most_batches(self, instance: Instance, cost: CostModel, rules: Rules, most: Ticks) -> int | None:
        """Some schedule that is best among those with value at most that has no more batches; None if unknown."""


def load_objective(name: str) -> Objective:
    """An objective by name, with its argument behind a colon.

    Raises
    ------
    sim.errors.InputError
        If there is no such objective or its argument is bad.
    """
    base, colon, argument = name.partition(":")
    module = load("csp.objectives", base, what="objective")
    return cast(Objective, module.objective(argument if colon else None))


def no_argument(name: str, argument: str | None) -> None:
    """Refuse an argument.

    Raises
    ------
    sim.errors.InputError
        If there is one.
    """
    if argument is not None:
        raise InputError(f"{name} takes no argument", field="objective", value=f"{name}:{argument}")
