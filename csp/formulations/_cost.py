"""Batch times inside an integer program: linear where the cost is additive, else at least every piece."""

from __future__ import annotations

from collections.abc import Mapping

from csp.program import Program, Terms, plus, times
from sim.cost.model import CostModel, Features


def duration(program: Program, cost: CostModel, features: Mapping[str, Terms], j: int, most_ticks: int) -> Terms:
    """Time of batch j in ticks.

    Parameters
    ----------
    features
        Linear expression of each field of `Features` (missing: zero).
    most_ticks
        No batch of a schedule worth finding takes longer.
    """
    terms: Terms = {}
    for g, group in enumerate(cost.groups):
        pieces = [_piece(piece, features) for piece in group.pieces]
        if len(pieces) == 1:
            terms = plus(terms, pieces[0])
            continue
        longest = program.variable(0, most_ticks, f"T_{j}_{g}", ticks=True)
        for q, piece in enumerate(pieces):
            program.at_least(plus({longest: 1}, times(-1, piece)), 0, f"piece_{j}_{g}_{q}")
        terms = plus(terms, {longest: 1})
    return terms


def _piece(piece: tuple[int, ...], features: Mapping[str, Terms]) -> Terms:
    return plus(*(times(a, features.get(name, {})) for name, a in zip(Features._fields, piece, strict=True)))
