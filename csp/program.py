"""An integer linear program with exact integer data, built once and handed to any solver.

Coefficients are Python integers (times in ticks), so a solver that computes in integers proves exactly; solvers that
compute in floating point get times in milliseconds (`Program.float_unit_ticks`) and state their tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from sim.clock import TICKS_PER_MS

Terms = dict[int, int]
"""A linear expression: coefficient per variable index."""


_PATIENCE = 128
"""Variables and rows between two looks at the clock."""


class OutOfTime(Exception):
    """The deadline passed while a program was being built, or a solver did not end at it."""


@dataclass(slots=True)
class Row:
    """lower <= sum of terms <= upper; None leaves a side open."""

    terms: Terms
    lower: int | None
    upper: int | None
    name: str


@dataclass(slots=True)
class Program:
    """Minimise an integer linear objective over integer variables.

    Attributes
    ----------
    lower, upper, names
        Per variable.
    ticks
        Per variable, whether it measures time in ticks (large values; floating-point solvers see it in ms, continuous).
    rows
        Constraints.
    objective, objective_offset
        What is minimised.
    objective_divisor
        The objective's value is the expression's over this.
    objective_in_ticks
        Whether the objective is a time.
    float_unit_ticks
        Ticks that floating-point solvers count as one. Their tolerances are absolute, so it must not be far above what
        a batch takes.
    out_of_time
        Asked now and then while the program is built.
    """

    name: str = "program"
    lower: list[int] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ticks: list[bool] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    objective: Terms = field(default_factory=dict)
    objective_offset: int = 0
    objective_divisor: int = 1
    objective_in_ticks: bool = True
    out_of_time: Callable[[], bool] = lambda: False
    float_unit_ticks: int = TICKS_PER_MS

    _asked: int = 0
    _taken: set[str] = field(default_factory=set)
    _rows_taken: set[str] = field(default_factory=set)

    def variable(self, lower: int, upper: int, name: str, *, ticks: bool = False) -> int:
        """Add an integer variable; its index. A name already taken gets underscores.

        Raises
        ------
        OutOfTime
            If `out_of_time` says so.
        """
        self.check_time()
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        self.lower.append(lower)
        self.upper.append(upper)
        self.names.append(name)
        self.ticks.append(ticks)
        return len(self.names) - 1

    def check_time(self) -> None:
        """Ask `out_of_time`, every so many calls; rows and variables do so by themselves."""
        self._asked += 1
        if self._asked % _PATIENCE == 0 and self.out_of_time():
            raise OutOfTime

    def binary(self, name: str) -> int:
        """Add a 0-1 variable; its index."""
        return self.variable(0, 1, name)

    def row(self, terms: Mapping[int, int], lower: int | None, upper: int | None, name: str) -> None:
        """Add lower <= terms <= upper; rows that hold for all values within the variables' bounds are left out.

        Raises
        ------
        OutOfTime
            If `out_of_time` says so.
        """
        self.check_time()
        kept = {v: a for v, a in terms.items() if a}
        least = sum(a * (self.lower[v] if a > 0 else self.upper[v]) for v, a in kept.items())
        most = sum(a * (self.upper[v] if a > 0 else self.lower[v]) for v, a in kept.items())
        if (lower is None or least >= lower) and (upper is None or most <= upper):
            return
        while name in self._rows_taken:
            name += "_"
        self._rows_taken.add(name)
        self.rows.append(Row(kept, lower, upper, name))

    def at_most(self, terms: Mapping[int, int], upper: int, name: str) -> None:
        """Add terms <= upper."""
        self.row(terms, None, upper, name)

    def at_least(self, terms: Mapping[int, int], lower: int, name: str) -> None:
        """Add terms >= lower."""
        self.row(terms, lower, None, name)

    def equal(self, terms: Mapping[int, int], value: int, name: str) -> None:
        """Add terms = value."""
        self.row(terms, value, value, name)

    def value(self, terms: Mapping[int, int], values: Sequence[int]) -> int:
        """A linear expression's value."""
        return sum(a * values[v] for v, a in terms.items())

    def objective_value(self, values: Sequence[int]) -> int:
        """The objective's exact value."""
        return self.value(self.objective, values) + self.objective_offset

    def worth(self, value: int) -> int | Fraction:
        """The objective a value of the expression stands for.

        >>> Program(objective_divisor=4).worth(6)
        Fraction(3, 2)
        """
        return value if self.objective_divisor == 1 else Fraction(value, self.objective_divisor)

    def violated(self, values: Sequence[int]) -> str | None:
        """Name of a bound or row the values violate; None if they satisfy all. For hints and checks."""
        for v, value in enumerate(values):
            if not self.lower[v] <= value <= self.upper[v]:
                return self.names[v]
        for row in self.rows:
            total = self.value(row.terms, values)
            if (row.lower is not None and total < row.lower) or (row.upper is not None and total > row.upper):
                return row.name
        return None


def plus(*parts: Mapping[int, int]) -> Terms:
    """Sum of linear expressions.

    >>> plus({0: 1}, {0: 2, 1: 1})
    {0: 3, 1: 1}
    """
    total: Terms = {}
    for part in parts:
        for v, a in part.items():
            total[v] = total.get(v, 0) + a
    return total


def times(factor: int, terms: Mapping[int, int]) -> Terms:
    """A multiple of a linear expression."""
    return {v: factor * a for v, a in terms.items()} if factor else {}


def ones(variables: Iterable[int]) -> Terms:
    """Sum of variables (a variable given twice counts twice)."""
    return plus(*({v: 1} for v in variables))
