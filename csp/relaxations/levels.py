"""The level bound: potentials of requests and of the memory level, found by column generation, checked exactly.

A level says how many blocks residents hold between two batches, W, and how many residents there are, n, where
``residents`` or more count as that many (0: blocks alone). Give each absent request that has generated k tokens a
potential A_k, each resident one R_k, and each level a potential psi. If every pattern (`csp.relaxations.patterns`)
costs at least what it takes away,

    cost(pattern) >= potentials before - potentials after + psi(n, W) - psi(n', W')        levels before and after,

then summing over the batches of a schedule leaves cost >= sum over requests of A_0: memory is empty before and after.
That holds for patterns that process nothing (they cost 0), so for schedules with empty calls too. The best potentials
are the dual of a linear program with a row per progress and level and a column per pattern: flow is conserved for each
progress and each level, so whoever is resident must be decoded, held or evicted in the very next batch. Columns come
from a knapsack over levels before and after. It is homogeneous: the number of requests only scales the bound. Without
the number of residents, many small ones that have just been filled pass for a few large ones that hold as much.

With several types, a completed request counts into the level until it leaves in the next batch (slightly weaker).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from csp.relaxations._level_pricing import Counts, Pricing
from csp.relaxations.certificate import Potentials
from csp.relaxations.load import Load
from csp.relaxations.patterns import DECODE, EVICT, FILL, LEAVE, Charges, items_of
from sim.clock import TICKS_PER_MS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_EXACT_COMPLETIONS = 4
"""Completing requests are told apart from the level only where at most this many fit."""


class Levels:
    """The program of one load under additive charges.

    Parameters
    ----------
    breaks
        Numbers of blocks that have a potential of their own; it is linear in between. All by default.
    residents
        Numbers of residents are told apart up to so many.
    """

    def __init__(
        self, load: Load, charge: Charges, breaks: Iterable[int] | None = None, residents: int = 0
    ) -> None:  # fmt: skip
        self.load, self.charge = load, charge
        self.limit = load.kv_blocks
        fits = self.limit // max(1, max(-(-(i + o - 1) // load.block_size) for i, o, _ in load.lengths))
        self.apart = len(load.lengths) == 1 and fits <= _EXACT_COMPLETIONS
        self.items = items_of(load, charge, leave=not self.apart)
        self.breaks = np.unique(np.array(sorted({0, self.limit, *(breaks or range(self.limit + 1))}), np.int64))
        self.level_basis = _hats(self.breaks, self.limit)
        self.residents = residents
        self.resident: dict[tuple[int, int], int] = {}
        self.absent: dict[tuple[int, int], int] = {}
        for kind, (_, o, _) in enumerate(load.lengths):
            for k in range(1, o if self.apart else o + 1):
                self.resident[kind, k] = len(self.resident)
            for k in range(o):
                self.absent[kind, k] = len(self.absent)
        self.absent = {key: len(self.resident) + row for key, row in self.absent.items()}
        self.first_level_row = len(self.resident) + len(self.absent)
        self.rows = self.first_level_row + (residents + 1) * len(self.breaks)
        right = np.zeros(self.rows)
        for kind, (_, _, n) in enumerate(load.lengths):
            right[self.absent[kind, 0]] = n / load.requests
        from csp.solvers._master import Master

        self.master = Master(right)
        self._known: set[tuple[tuple[int, int], ...]] = set()
        self._item_rows = [list(self._rows_of(q)) for q in range(len(self.items))]

    def _rows_of(self, q: int) -> Iterator[tuple[int, float]]:
        """Rows an item takes from (1) and gives to (-1)."""
        items = self.items
        kind, k = int(items.kind[q]), int(items.progress[q])
        action = items.action[q]
        if action in (DECODE, EVICT, LEAVE):
            yield self.resident[kind, k], 1.0
        if action == EVICT:
            yield self.absent[kind, k], -1.0
        if action == FILL:
            yield self.absent[kind, k], 1.0
        if action in (DECODE, FILL) and (kind, k + 1) in self.resident:
            yield self.resident[kind, k + 1], -1.0

    def add(self, counts: Counts) -> bool:
        """Add a pattern as a column; whether it is new."""
        key = tuple(sorted(counts.items()))
        if key in self._known:
            return False
        self._known.add(key)
        items = self.items
        column = np.zeros(self.rows)
        before = after = n_before = n_after = cost = 0
        fills = decodes = False
        for q, n in counts.items():
            for row, value in self._item_rows[q]:
                column[row] += n * value
            before += n * int(items.before[q])
            n_before += n * int(items.before[q] > 0)
            if not self._frees(q):
                after += n * int(items.after[q])
                n_after += n * int(items.after[q] > 0)
            cost += n * int(items.cost[q])
            fills |= bool(items.action[q] == FILL)
            decodes |= bool(items.action[q] == DECODE)
        charge = self.charge
        if fills or decodes:
            cost += charge.batch + fills * charge.prefill_batch + decodes * charge.decode_batch
        for n, blocks, sign in ((n_before, before, 1), (n_after, after, -1)):
            self._level_part(column)[min(n, self.residents)] += sign * self.level_basis[blocks]
        rows = np.flatnonzero(np.abs(column) > 1e-12).astype(np.int32)
        self.master.add(cost / TICKS_PER_MS, rows, column[rows])
        return True

    def _level_part(self, rows: Floats) -> Floats:
        """View of what concerns levels, per number of residents and break."""
        return rows[self.first_level_row :].reshape(self.residents + 1, -1)

    def psi(self, duals: Floats) -> Floats:
        """Potentials of levels, per number of residents and of blocks."""
        return self._level_part(duals) @ self.level_basis.T

    def _frees(self, q: int) -> bool:
        return self.apart and bool(self.items.completes[q])

    def find(self, action: int, kind: int, k: int) -> int:
        """Index of an item."""
        items = self.items
        return int(np.flatnonzero((items.action == action) & (items.kind == kind) & (items.progress == k))[0])

    def seed(self) -> None:
        """Columns that make the program feasible: equal requests in lockstep, as many as fit."""
        for kind, (i, o, _) in enumerate(self.load.lengths):
            peak = -(-(i + o - 1) // self.load.block_size)
            for n in range(1, self.limit // peak + 1):
                self.add({self.find(FILL, kind, 0): n})
                for k in range(1, o):
                    self.add({self.find(DECODE, kind, k): n})
                if not self.apart:
                    self.add({self.find(LEAVE, kind, o): n})

    def take_over(self, coarser: Levels, duals: Floats) -> Floats:
        """Add the columns of a coarser program of the same load; its duals as duals of this one."""
        for counts in coarser._known:
            self.add(dict(counts))
        mine = np.concatenate([duals[: self.first_level_row], np.zeros(self.rows - self.first_level_row)])
        for n, row in enumerate(self._level_part(mine)):
            row[:] = coarser.psi(duals)[min(n, coarser.residents), self.breaks]
        return mine

    def area_duals(self) -> Floats:
        """Row duals that the memory area proves: a price per block and batch, no level potentials."""
        duals = np.zeros(self.rows)
        price = self.charge.least / self.limit / TICKS_PER_MS * (1 - 1e-9)
        for kind, (i, o, _) in enumerate(self.load.lengths):
            rest = 0.0
            for k in range(o - 1, -1, -1):
                size = i + k
                fill, decode = (ticks / TICKS_PER_MS for ticks in (self.charge.fill(size), self.charge.decode(size)))
                rest += (min(fill, decode) if k else fill) + price * -(-size // self.load.block_size)
                duals[self.absent[kind, k]] = rest
                if k:
                    duals[self.resident[kind, k]] = rest
        return duals

    def profits(self, duals: Floats) -> Floats:
        """Per item, what its rows give minus its cost, in ms."""
        cost = self.items.cost / TICKS_PER_MS
        gains = [sum(value * duals[row] for row, value in rows) for rows in self._item_rows]
        return np.array(gains) - cost

    def price(self, duals: Floats) -> tuple[float, list[Counts]]:
        """The most a pattern gains over its cost, and patterns that gain."""
        return Pricing(self, duals).run()

    def value(self, duals: Floats) -> float:
        """Bound per request, in ms, that duals claim before they are corrected."""
        rows = [self.absent[kind, 0] for kind in range(len(self.load.lengths))]
        return float(sum(n * duals[row] for row, (_, _, n) in zip(rows, self.load.lengths, strict=True))
                     / self.load.requests)  # fmt: skip

    def potentials(self, duals: Floats) -> Potentials:
        """Duals in whole ticks."""
        ticks = [round(x * TICKS_PER_MS) for x in duals]
        resident: list[tuple[int, ...]] = []
        absent: list[tuple[int, ...]] = []
        for kind, (_, o, _) in enumerate(self.load.lengths):
            resident.append(tuple(ticks[self.resident[kind, k]] for k in range(1, o if self.apart else o + 1)))
            absent.append(tuple(ticks[self.absent[kind, k]] for k in range(o)))
        levels = tuple(tuple(round(x * TICKS_PER_MS) for x in row) for row in self.psi(duals))
        return Potentials(tuple(resident), tuple(absent), levels, self.apart)


def solve_levels(
    levels: Levels, *, time_limit_s: float = 60.0, tolerance: float = 1e-6, smoothing: float = 0.8,
    began: float | None = None, start: tuple[Levels, Floats] | None = None,
) -> tuple[Floats, bool]:  # fmt: skip
    """Generate columns until the bound is within ``tolerance`` of the program's value or time is over.

    Prices at a point between the best duals so far and the program's (Wentges smoothing), which needs far fewer rounds.

    Parameters
    ----------
    start
        A coarser program of the same load that has been solved, and its duals.

    Returns
    -------
    The best duals found (any duals prove a bound, see `csp.relaxations.certificate`) and whether it converged.
    """
    began = time.monotonic() if began is None else began
    least = levels.charge.least / TICKS_PER_MS
    levels.seed()
    if start is None:
        centre = levels.area_duals()
    else:
        centre = levels.take_over(*start)
        centre /= 1 + max(0.0, levels.price(centre)[0]) / least
    best = levels.value(centre)
    value, duals = levels.master.solve()
    while True:
        point = smoothing * centre + (1 - smoothing) * duals
        gain, patterns = levels.price(point)
        bound = levels.value(point) / (1 + max(0.0, gain) / least)
        if bound > best:
            best, centre = bound, point / (1 + max(0.0, gain) / least)
        new = sum([levels.add(counts) for counts in patterns])
        if value - best <= tolerance * value:
            return centre, True
        if time.monotonic() - began > time_limit_s:
            return centre, False
        if not new:
            if smoothing == 0.0:
                return centre, True
            smoothing = smoothing / 2 if smoothing > 0.05 else 0.0
            continue
        value, duals = levels.master.solve()


def _hats(breaks: Ints, limit: int) -> Floats:
    """Row W: how the potential of level W is interpolated from those of the breaks."""
    basis = np.zeros((limit + 1, len(breaks)))
    levels = np.arange(limit + 1)
    right = np.searchsorted(breaks, levels)
    left = np.maximum(right - 1, 0)
    width = np.maximum(1, breaks[right] - breaks[left])
    share = np.where(right == left, 1.0, (levels - breaks[left]) / width)
    basis[levels, right] += share
    basis[levels, left] += 1 - share
    return basis
