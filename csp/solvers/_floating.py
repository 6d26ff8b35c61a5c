"""What solvers that compute in floating point share: times in ms (or less) instead of ticks, and a stated tolerance.

Their proofs hold up to `TOLERANCE` (relative): a bound is reported lower by that much, and "optimal" needs their zero
gap and a bound within it of the exactly replayed objective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from csp.program import Program, Row

TOLERANCE = 1e-6
_LARGE = 10**7
"""Rows with coefficients from here on are in ticks."""


def row_scale(program: Program, row: Row) -> int:
    """What a row is divided by: ticks per unit where it adds up times, else 1."""
    in_ticks = any(program.ticks[v] for v in row.terms) or max(map(abs, row.terms.values()), default=0) >= _LARGE
    return program.float_unit_ticks if in_ticks else 1


def column_scale(program: Program, v: int) -> int:
    """Ticks per unit for a variable that measures time, else 1."""
    return program.float_unit_ticks if program.ticks[v] else 1


def objective_scale(program: Program) -> int:
    """Ticks per unit for a time objective, else 1."""
    return program.float_unit_ticks if program.objective_in_ticks else 1


def to_mathopt(program: Program) -> tuple[Any, list[Any]]:
    """The program as a MathOpt model in float units, and its variables in order."""
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    proto = model_pb2.ModelProto(name=program.name)
    columns, rows, matrix = proto.variables, proto.linear_constraints, proto.linear_constraint_matrix
    for v, name in enumerate(program.names):
        scale = column_scale(program, v)
        columns.ids.append(v)
        columns.lower_bounds.append(program.lower[v] / scale)
        columns.upper_bounds.append(program.upper[v] / scale)
        columns.integers.append(not program.ticks[v])
        columns.names.append(name)
    for r, row in enumerate(program.rows):
        scale = row_scale(program, row)
        rows.ids.append(r)
        rows.names.append(row.name)
        rows.lower_bounds.append(-math.inf if row.lower is None else row.lower / scale)
        rows.upper_bounds.append(math.inf if row.upper is None else row.upper / scale)
        for v in sorted(row.terms):
            matrix.row_ids.append(r)
            matrix.column_ids.append(v)
            matrix.coefficients.append(row.terms[v] * column_scale(program, v) / scale)
    scale = objective_scale(program)
    for v in sorted(program.objective):
        proto.objective.linear_coefficients.ids.append(v)
        proto.objective.linear_coefficients.values.append(program.objective[v] * column_scale(program, v) / scale)
    proto.objective.offset = program.objective_offset / scale
    opt = mathopt.Model.from_model_proto(proto)
    return opt, list(opt.variables())


def rounded(program: Program, values: Sequence[float]) -> list[int]:
    """Nearest integers of a solver's values, times back in ticks."""
    return [round(value * column_scale(program, v)) for v, value in enumerate(values)]


def unscaled(program: Program, value: float) -> int | Fraction | None:
    """What a solver's objective or bound is worth; None where it is not finite."""
    return program.worth(round(value * objective_scale(program))) if math.isfinite(value) else None
