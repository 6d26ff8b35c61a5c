"""Batch count by the configuration LP: fractional bin packing of the tokens to generate, by column generation.

A token generated at size s takes s of M; a batch holds at most one token of a request, so at most as many of one size
as there are requests that generate a token at it. Weights u_s >= 0 that no batch exceeds in sum (its value is the
largest sum over such configurations, a knapsack) prove J >= sum of n_s u_s / value; the best weights are the dual of
the linear program with a column per configuration. They are rounded to whole numbers, and the knapsack is solved
exactly for those.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from csp.relaxations.batches import item_counts
from csp.relaxations.load import Load

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SCALE = 10**9
MOST_WORK = 30_000_000
"""Sizes times blocks of one knapsack."""


def sizes_of(load: Load) -> tuple[Ints, Ints, Ints]:
    """Sizes in blocks, how many tokens are generated at each, and how many requests at most in one batch."""
    counts = item_counts(load)
    sizes = np.array(sorted(counts), np.int64)
    most = np.zeros_like(sizes)
    b = load.block_size
    for i, o, n in (*load.lengths, *((i + 1, o - 1, n) for i, o, n in load.prefilled)):
        first, last = -(-i // b), -(-(i + o - 1) // b)
        most[(sizes >= first) & (sizes <= last)] += n
    return sizes, np.array([counts[int(s)] for s in sizes], np.int64), most


def solve_configuration(load: Load, *, time_limit_s: float = 30.0) -> dict[int, int] | None:
    """Whole weights per size, near the best; None where the knapsacks would be too large."""
    from csp.solvers._master import Master

    sizes, counts, most = sizes_of(load)
    if len(sizes) * load.kv_blocks > MOST_WORK:
        return None
    began = time.monotonic()
    master = Master(counts.astype(float))
    for row in range(len(sizes)):
        single = min(int(most[row]), load.kv_blocks // int(sizes[row]))
        master.add(1.0, np.array([row], np.int32), np.array([float(single)]))
        master.add(0.0, np.array([row], np.int32), np.array([-1.0]))
    best: tuple[float, Floats] = (0.0, np.zeros(len(sizes)))
    while True:
        value, duals = master.solve()
        duals = np.maximum(duals, 0.0)
        worth, chosen = _fullest(duals, sizes, most, load.kv_blocks)
        bound = value / max(1.0, worth)
        if bound > best[0]:
            best = bound, duals / max(1.0, worth)
        if worth <= 1 + 1e-9 or value - best[0] < 1e-6 or time.monotonic() - began > time_limit_s:
            return {int(s): int(u * SCALE) for s, u in zip(sizes, best[1], strict=True) if u * SCALE >= 1}
        rows = np.flatnonzero(chosen).astype(np.int32)
        master.add(1.0, rows, chosen[rows].astype(float))


def batches_from_weights(load: Load, weights: Mapping[int, int]) -> int:
    """The number of batches that weights prove, exactly.

    Raises
    ------
    ValueError
        If a weight is negative or belongs to a size that no token has.
    """
    sizes, counts, most = sizes_of(load)
    known = {int(s): at for at, s in enumerate(sizes)}
    if any(u < 0 or s not in known for s, u in weights.items()):
        raise ValueError("weights must be >= 0 and belong to sizes at which tokens are generated")
    whole = np.array([weights.get(int(s), 0) for s in sizes], np.int64)
    if not whole.any():
        return 0
    total = sum(int(n) * int(u) for n, u in zip(counts, whole, strict=True))
    worth = int(_table(whole, sizes, most, load.kv_blocks)[-1])
    return -(-Fraction(total, worth) // 1)


def _pieces(most: int, limit: int) -> list[int]:
    """Powers of two, and a rest, that sum to every number up to the smaller of both."""
    left, power, pieces = min(most, limit), 1, []
    while left > 0:
        pieces.append(min(power, left))
        left -= pieces[-1]
        power *= 2
    return pieces


def _table(worth: npt.NDArray[np.generic], sizes: Ints, most: Ints, capacity: int) -> Ints:
    """Most worth within each capacity; whole numbers stay whole."""
    best = np.zeros(capacity + 1, np.int64)
    for u, s, n in zip(worth.tolist(), sizes.tolist(), most.tolist(), strict=True):
        if u <= 0:
            continue
        for piece in _pieces(n, capacity // s):
            used = piece * s
            best[used:] = np.maximum(best[used:], best[: capacity + 1 - used] + piece * u)
    return best


def _fullest(duals: Floats, sizes: Ints, most: Ints, capacity: int) -> tuple[float, Ints]:
    """The configuration worth most, in floating point."""
    best = np.zeros(capacity + 1)
    taken: list[tuple[int, int, npt.NDArray[np.bool_]]] = []
    for at in np.flatnonzero(duals > 0).tolist():
        size = int(sizes[at])
        for piece in _pieces(int(most[at]), capacity // size):
            used = piece * size
            with_it = best[: capacity + 1 - used] + piece * duals[at]
            better = np.zeros(capacity + 1, bool)
            better[used:] = with_it > best[used:] + 1e-12
            best[used:] = np.maximum(best[used:], with_it)
            taken.append((at, piece, better))
    chosen = np.zeros(len(sizes), np.int64)
    room = int(best.argmax())
    for at, piece, better in reversed(taken):
        if better[room]:
            chosen[at] += piece
            room -= piece * int(sizes[at])
    return float(best.max()), chosen
