"""The linear programme behind `aggregate`, in floating point: it only proposes weights and prices."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from csp.relaxations.load import Load
from sim.cost.model import Features

if TYPE_CHECKING:
    from csp.relaxations.aggregate import Multipliers, Relaxation

_MOST_SIZES = 128
_EPS = 1e-12


def propose(relaxation: Relaxation) -> Multipliers:
    """Solve the programme over sizes gathered in at most 128 ranges and read weights and prices from its duals."""
    from scipy.optimize import linprog

    from csp.relaxations.aggregate import ROWS, Multipliers

    load, cost = relaxation.load, relaxation.cost
    number, mean, square = _ranges(load)
    sizes = len(number)
    # Columns: J, F_p, F_d, y per range (as a share), t per group.
    features = _features(load, number, mean, square)
    groups = len(cost.groups)
    scale = max(1.0, float(sum(max(max(p) for p in g.pieces) for g in cost.groups)))
    rows, rhs = [], []
    for g, group in enumerate(cost.groups):
        for piece in group.pieces:
            a = np.array(piece, float) / scale
            row = np.zeros(3 + sizes + groups)
            row[:-groups] = a @ features[:, :-1]
            row[3 + sizes + g] = -1
            rows.append(row)
            rhs.append(-(a @ features[:, -1]))
    pieces = len(rows)
    names = [row for row in ROWS if load.max_num_seqs is not None or row in ROWS[:3]]
    for name in names:
        row, right = _capacity(name, load, number, mean, features)
        rows.append(np.concatenate([row, np.zeros(groups)]))
        rhs.append(right)
    for pattern in ((-1, 1, 0), (-1, 0, 1), (1, -1, -1)):
        rows.append(np.concatenate([pattern, np.zeros(sizes + groups)]))
        rhs.append(0.0)
    least = max(relaxation.least_batches, relaxation.least_prefill_batches)
    limits: list[tuple[float | None, float | None]] = [
        (least, None),
        (relaxation.least_prefill_batches, None),
        (0, None),
    ]
    limits += [(0, 1)] * sizes + [(None, None)] * groups
    objective = np.concatenate([np.zeros(3 + sizes), np.ones(groups)])
    answer = linprog(objective, A_ub=np.array(rows), b_ub=np.array(rhs), bounds=limits, method="highs")
    if answer.status != 0:
        return relaxation.default_multipliers()
    duals = -np.asarray(answer.ineqlin.marginals)
    weights, at = [], 0
    for group in cost.groups:
        weights.append(_convex(duals[at : at + len(group.pieces)]))
        at += len(group.pieces)
    prices = {
        name: Fraction(max(0.0, float(duals[pieces + i])) * scale)
        for i, name in enumerate(names)
        if duals[pieces + i] > _EPS
    }
    return Multipliers(tuple(weights), prices)


def _convex(duals: np.ndarray) -> tuple[Fraction, ...]:
    """Nearest exact convex combination."""
    weights = [Fraction(max(0.0, float(x))).limit_denominator(10**9) for x in duals]
    total = sum(weights, Fraction(0))
    if total == 0:
        return (Fraction(1), *[Fraction(0)] * (len(weights) - 1))
    return tuple(w / total for w in weights)


def _ranges(load: Load) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens k >= 2 gathered by size into ranges: number, mean size and mean squared size of each."""
    lengths = (*load.lengths, *load.prefilled)
    least = min(i + 1 for i, _, _ in lengths)
    most = max(i + o - 1 for i, o, _ in lengths)
    if most < least:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    edges = np.unique(np.geomspace(least, most + 1, _MOST_SIZES + 1).round().astype(np.int64))
    edges = np.union1d(edges, [least, most + 1])
    first = np.array([i + 1 for i, _, _ in lengths], np.int64)
    last = np.array([i + o - 1 for i, o, _ in lengths], np.int64)
    count = np.array([n for _, _, n in lengths], float)
    sums = []
    for low, high in zip(edges[:-1], edges[1:] - 1, strict=True):
        a, b = np.maximum(first, low).astype(float), np.minimum(last, high).astype(float)
        inside = b >= a
        a, b, n = a[inside], b[inside], count[inside]
        squares = (b * (b + 1) * (2 * b + 1) - (a - 1) * a * (2 * a - 1)) / 6
        sums.append(((n * (b - a + 1)).sum(), (n * (a + b) * (b - a + 1) / 2).sum(), (n * squares).sum()))
    zero, one, two = np.array(sums).T
    used = zero > 0
    return zero[used], one[used] / zero[used], two[used] / zero[used]


def _features(load: Load, number: np.ndarray, mean: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Total features as an affine function of the columns: one row a feature, last column the constant."""
    table = np.zeros((len(Features._fields), 3 + len(number) + 1))
    row = {name: i for i, name in enumerate(Features._fields)}
    table[row["batch"], 0] = table[row["prefill_batch"], 1] = table[row["decode_batch"], 2] = 1
    y = slice(3, 3 + len(number))
    table[row["n_prefill"], y], table[row["n_prefill"], -1] = number, load.requests
    table[row["n_decode"], y], table[row["n_decode"], -1] = -number, number.sum()
    table[row["tokens"], y], table[row["tokens"], -1] = number * (mean - 1), load.least_tokens
    table[row["prefill_square"], y], table[row["prefill_square"], -1] = number * square, load.input_square
    table[row["decode_reads"], y] = -number * (mean - 1)
    table[row["decode_reads"], -1] = (number * (mean - 1)).sum()
    return table


def _capacity(
    name: str, load: Load, number: np.ndarray, mean: np.ndarray, features: np.ndarray
) -> tuple[np.ndarray, float]:
    """One capacity row (coefficients of J, F_p, F_d, y) and its right-hand side."""
    cap, kv, seqs = load.token_budget, load.kv_capacity_tokens, load.max_num_seqs or 0
    row = {feature: features[i] for i, feature in enumerate(Features._fields)}
    if name == "prefill_tokens":
        return np.concatenate([[0, -min(cap, kv), 0], number * mean]), -float(load.input_tokens)
    if name == "decode_kv":
        return np.concatenate([[0, 0, -kv], -number * mean]), -float((number * mean).sum())
    total, capacity = {
        "tokens": (row["tokens"], (-cap, 0, 0)),
        "prefill_entries": (row["n_prefill"], (0, -seqs, 0)),
        "decode_entries": (row["n_decode"], (0, 0, -seqs)),
        "entries": (row["n_prefill"] + row["n_decode"], (-seqs, 0, 0)),
    }[name]
    return total[:-1] + np.concatenate([capacity, np.zeros(len(number))]), -float(total[-1])
