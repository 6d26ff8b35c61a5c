"""The program as MPS or LP text: times in ms, every coefficient an exact decimal.

Written here because the writers at hand keep 6 to 12 digits, and batch times need up to 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from csp.program import Program, Terms
from csp.solvers._floating import column_scale, objective_scale, row_scale
from sim.clock import TICKS_PER_MS


def decimal(numerator: int, denominator: int = 1) -> str:
    """An exact decimal; the denominator is a power of ten.

    >>> decimal(6018120492864, 10**11), decimal(-3)
    ('60.18120492864', '-3')
    """
    value = Fraction(numerator, denominator)
    return format(Decimal(value.numerator) / Decimal(value.denominator), "f") if value.denominator > 1 else str(
        value.numerator)  # fmt: skip


def mps_text(program: Program, *, unit_ticks: int = TICKS_PER_MS) -> str:
    """Free MPS; rows with two sides get a range, the objective's constant is minus its right-hand side.

    Parameters
    ----------
    unit_ticks
        What times are counted in.
    """
    program = replace(program, float_unit_ticks=unit_ticks)
    lines = [f"NAME {program.name}", "ROWS", " N COST"]
    lines += [f" {_sense(row.lower, row.upper)} {row.name}" for row in program.rows]
    columns: list[list[str]] = [[] for _ in program.names]
    for v, a in sorted(program.objective.items()):
        columns[v].append(f"COST {decimal(a * column_scale(program, v), objective_scale(program))}")
    for row in program.rows:
        scale = row_scale(program, row)
        for v, a in row.terms.items():
            columns[v].append(f"{row.name} {decimal(a * column_scale(program, v), scale)}")
    lines.append("COLUMNS")
    for integer in (True, False):
        chosen = [v for v, ticks in enumerate(program.ticks) if ticks != integer]
        if integer and chosen:
            lines.append(" INTS 'MARKER' 'INTORG'")
        lines += [f" {program.names[v]} {cell}" for v in chosen for cell in columns[v] or ["COST 0"]]
        if integer and chosen:
            lines.append(" INTE 'MARKER' 'INTEND'")
    lines.append("RHS")
    if program.objective_offset:
        lines.append(f" RHS COST {decimal(-program.objective_offset, objective_scale(program))}")
    ranges = []
    for row in program.rows:
        scale = row_scale(program, row)
        right = row.upper if row.lower is None else row.lower
        lines.append(f" RHS {row.name} {decimal(right or 0, scale)}")
        if row.lower is not None and row.upper is not None and row.lower < row.upper:
            ranges.append(f" RANGE {row.name} {decimal(row.upper - row.lower, scale)}")
    lines += ["RANGES", *ranges] if ranges else []
    lines.append("BOUNDS")
    for v, name in enumerate(program.names):
        scale = column_scale(program, v)
        lines.append(f" LO BOUND {name} {decimal(program.lower[v], scale)}")
        lines.append(f" UP BOUND {name} {decimal(program.upper[v], scale)}")
    return "\n".join([*lines, "ENDATA", ""])


def _sense(lower: int | None, upper: int | None) -> str:
    if lower == upper:
        return "E"
    return "L" if lower is None else "G"


def lp_text(program: Program) -> str:
    """CPLEX LP; a constant in the objective is a variable fixed at 1."""
    program = replace(program, float_unit_ticks=TICKS_PER_MS)
    scale = objective_scale(program)
    offset = f" + {decimal(program.objective_offset, scale)} one" if program.objective_offset else ""
    lines = [f"\\ {program.name}", "Minimize", *_wrapped(" cost:", program, program.objective, scale)]
    lines[-1] += offset
    lines.append("Subject To")
    for row in program.rows:
        scale = row_scale(program, row)
        sides = [("=", row.lower)] if row.lower == row.upper else [(">=", row.lower), ("<=", row.upper)]
        for sense, side in sides:
            if side is not None:
                both = row.lower is not None and row.upper is not None and row.lower != row.upper
                label = f"{row.name}_{'low' if sense == '>=' else 'high'}" if both else row.name
                lines += _wrapped(f" {label}:", program, row.terms, scale)
                lines[-1] += f" {sense} {decimal(side, scale)}"
    lines.append("Bounds")
    for v, name in enumerate(program.names):
        unit = column_scale(program, v)
        lines.append(f" {decimal(program.lower[v], unit)} <= {name} <= {decimal(program.upper[v], unit)}")
    lines += [" one = 1"] if offset else []
    lines += ["Generals", *(f" {name}" for v, name in enumerate(program.names) if not program.ticks[v]), "End", ""]
    return "\n".join(lines)


def _wrapped(head: str, program: Program, terms: Terms, scale: int) -> list[str]:
    """Lines short enough for readers that stop at 510 characters."""
    lines = [head]
    for cell in _cells(program, terms, scale):
        if len(lines[-1]) + len(cell) > 200:
            lines.append(" ")
        lines[-1] += cell
    return lines


def _cells(program: Program, terms: Terms, scale: int) -> Iterator[str]:
    if not terms:
        yield f" 0 {program.names[0]}"
    for v, a in sorted(terms.items()):
        yield f" {'-' if a < 0 else '+'} {decimal(abs(a) * column_scale(program, v), scale)} {program.names[v]}"
