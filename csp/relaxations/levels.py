"""The level bound: potentials of requests and of the memory level, found by column generation, checked exactly.

Give each absent request that has generated k tokens a potential A_k, each resident one R_k, and each memory level W
(blocks held between two batches) a potential psi_W. If every pattern (`csp.relaxations.patterns`) costs at least what
it takes away,

    cost(pattern) >= potentials before - potentials after + psi_W - psi_W'        W, W' the levels before and after,

then summing over the batches of a schedule leaves cost >= sum over requests of A_0: memory is empty before and after.
That holds for patterns that process nothing (they cost 0), so for schedules with empty calls too. The best potentials
are the dual of a linear program with a row per progress and level and a column per pattern: flow is conserved for each
progress and each level, so whoever is resident must be decoded, held or evicted in the very next batch. Columns come
from a knapsack over (blocks before, blocks after). It is homogeneous: the number of requests only scales the bound.

With several types, a completed request counts into the level until it leaves in the next batch (slightly weaker).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csp.relaxations._knapsack import NONE, kernels
from csp.relaxations.certificate import Potentials
from csp.relaxations.load import Load
from csp.relaxations.patterns import DECODE, EVICT, FILL, HOLD, LEAVE, Charges, Items, items_of
from sim.clock import TICKS_PER_MS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Counts = dict[int, int]

_EXACT_COMPLETIONS = 4
"""Completing requests are told apart from the level only where at most this many fit."""


@dataclass(frozen=True, slots=True)
class _Table:
    """Best profit per (blocks before, blocks after) and how it was reached."""

    value: Floats
    choice: Ints
    parent: _Table | None = None
    single: bool = False

    def trace(self, items: Items, before: int, after: int) -> Counts:
        """The items that reach a cell."""
        counts: Counts = {}
        table: _Table | None = self
        while table is not None:
            q = int(table.choice[before, after])
            if q == -1:
                break
            if q == -2:
                table = table.parent
                continue
            counts[q] = counts.get(q, 0) + 1
            before, after = before - int(items.before[q]), after - int(items.after[q])
            if table.single:
                table = table.parent
        return counts


class Levels:
    """The program of one load under additive charges.

    Parameters
    ----------
    breaks
        Levels that have a potential of their own; it is linear in between. All by default.
    """

    def __init__(self, load: Load, charge: Charges, breaks: Iterable[int] | None = None) -> None:
        self.load, self.charge = load, charge
        self.limit = load.kv_blocks
        fits = self.limit // max(1, max(-(-(i + o - 1) // load.block_size) for i, o, _ in load.lengths))
        self.apart = len(load.lengths) == 1 and fits <= _EXACT_COMPLETIONS
        self.items = items_of(load, charge, leave=not self.apart)
        self.breaks = np.unique(np.array(sorted({0, self.limit, *(breaks or range(self.limit + 1))}), np.int64))
        self.level_basis = _hats(self.breaks, self.limit)
        self.resident: dict[tuple[int, int], int] = {}
        self.absent: dict[tuple[int, int], int] = {}
        for kind, (_, o, _) in enumerate(load.lengths):
            for k in range(1, o if self.apart else o + 1):
                self.resident[kind, k] = len(self.resident)
            for k in range(o):
                self.absent[kind, k] = len(self.absent)
        self.absent = {key: len(self.resident) + row for key, row in self.absent.items()}
        self.first_level_row = len(self.resident) + len(self.absent)
        self.rows = self.first_level_row + len(self.breaks)
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
        before = after = cost = 0
        fills = decodes = False
        for q, n in counts.items():
            for row, value in self._item_rows[q]:
                column[row] += n * value
            before += n * int(items.before[q])
            after += 0 if self._frees(q) else n * int(items.after[q])
            cost += n * int(items.cost[q])
            fills |= bool(items.action[q] == FILL)
            decodes |= bool(items.action[q] == DECODE)
        charge = self.charge
        if fills or decodes:
            cost += charge.batch + fills * charge.prefill_batch + decodes * charge.decode_batch
        column[self.first_level_row :] += self.level_basis[before] - self.level_basis[after]
        rows = np.flatnonzero(np.abs(column) > 1e-12).astype(np.int32)
        self.master.add(cost / TICKS_PER_MS, rows, column[rows])
        return True

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
        """The most a pattern that processes gains over its cost, and patterns that gain."""
        return _Pricing(self, duals).run()

    def value(self, duals: Floats) -> float:
        """Bound per request, in ms, that duals claim before they are corrected."""
        rows = [self.absent[kind, 0] for kind in range(len(self.load.lengths))]
        return float(sum(n * duals[row] for row, (_, _, n) in zip(rows, self.load.lengths, strict=True))
                     / self.load.requests)  # fmt: skip

    def potentials(self, duals: Floats) -> Potentials:
        """Duals in whole ticks."""
        ticks = [round(x * TICKS_PER_MS) for x in duals]
        levels = self.level_basis @ duals[self.first_level_row :]
        resident: list[tuple[int, ...]] = []
        absent: list[tuple[int, ...]] = []
        for kind, (_, o, _) in enumerate(self.load.lengths):
            resident.append(tuple(ticks[self.resident[kind, k]] for k in range(1, o if self.apart else o + 1)))
            absent.append(tuple(ticks[self.absent[kind, k]] for k in range(o)))
        return Potentials(tuple(resident), tuple(absent), tuple(round(x * TICKS_PER_MS) for x in levels), self.apart)


class _Pricing:
    """The knapsacks of one pricing round."""

    def __init__(self, levels: Levels, duals: Floats) -> None:
        self.levels, self.items = levels, levels.items
        self.limit = levels.limit
        self.profit = levels.profits(duals)
        self.psi = levels.level_basis @ duals[levels.first_level_row :]
        self.close, self.one_more = kernels()

    def _pick(self, *actions: int) -> tuple[Ints, Ints, Floats, Ints]:
        items = self.items
        chosen = np.isin(items.action, actions)
        if self.levels.apart:
            chosen &= ~items.completes
        q = np.flatnonzero(chosen)
        return items.before[q], items.after[q], self.profit[q], q

    def _closed(self, table: _Table | None, *actions: int) -> _Table:
        side = self.limit + 1
        if table is None:
            value, choice = np.full((side, side), NONE), np.full((side, side), -1, np.int64)
            value[0, 0] = 0.0
        else:
            value, choice = table.value.copy(), np.full((side, side), -2, np.int64)
        self.close(value, choice, *self._pick(*actions))
        return _Table(value, choice, table)

    def _plus(self, table: _Table, action: int) -> _Table:
        value, choice = self.one_more(table.value, *self._pick(action))
        return _Table(value, choice, table, single=True)

    def run(self) -> tuple[float, list[Counts]]:
        """Largest gain over all patterns that process, and the best patterns per level."""
        idle = self._closed(None, HOLD, EVICT, LEAVE)
        decode, fill = self._closed(idle, DECODE), self._closed(idle, FILL)
        one_decode, one_fill = self._plus(decode, DECODE), self._plus(fill, FILL)
        decode_first = self._closed(one_decode, FILL)
        tables = {"D": one_decode, "F": one_fill, "DF": self._plus(decode_first, FILL), "": idle}
        found: list[tuple[float, _Table, int, int, int, int]] = []
        if not self.levels.apart:
            for flags, table in tables.items():
                self._candidates(found, flags, table, 0, 0)
        else:
            extra = {"D": decode, "F": fill, "D+F": self._closed(one_fill, DECODE), "F+D": decode_first,
                     "DF": self._closed(decode, FILL)}  # fmt: skip
            self._apart(found, tables, extra)
        worst = max((gain for gain, *_ in found), default=0.0)
        found = sorted((f for f in found if f[0] > 1e-9), key=lambda f: -f[0])[:200]
        return worst, [self._counts(*f[1:]) for f in found]

    def _apart(self, found: list[Any], plain: dict[str, _Table], extra: dict[str, _Table]) -> None:
        """Patterns by how many requests complete by decoding and by refilling (their blocks are free afterwards)."""
        ((i, o, _),) = self.levels.load.lengths
        most = self.limit // -(-(i + o - 1) // self.levels.load.block_size)
        for decoding in range(most + 1 if o > 1 else 1):
            for filling in range(most + 1 - decoding):
                if not decoding and not filling:
                    for flags, table in plain.items():
                        self._candidates(found, flags, table, 0, 0)
                elif not filling:
                    self._candidates(found, "D", extra["D"], decoding, 0)
                    self._candidates(found, "DF", extra["D+F"], decoding, 0)
                elif not decoding:
                    self._candidates(found, "F", extra["F"], 0, filling)
                    self._candidates(found, "DF", extra["F+D"], 0, filling)
                else:
                    self._candidates(found, "DF", extra["DF"], decoding, filling)

    def _completing(self, action: int) -> int:
        items = self.items
        found = np.flatnonzero((items.action == action) & items.completes)
        return int(found[0]) if len(found) else -1

    def _candidates(self, found: list[Any], flags: str, table: _Table, decoding: int, filling: int) -> None:
        charge, items = self.levels.charge, self.items
        fixed = (charge.batch if flags else 0) + charge.prefill_batch * ("F" in flags)
        fixed += charge.decode_batch * ("D" in flags)
        shift = room = 0
        gain = -fixed / TICKS_PER_MS
        for number, action in ((decoding, DECODE), (filling, FILL)):
            if number:
                q = self._completing(action)
                shift += number * int(items.before[q])
                room += number * int(items.after[q])
                gain += number * self.profit[q]
        if shift > self.limit or room > self.limit:
            return
        side, width = self.limit + 1 - shift, self.limit + 1 - room
        total = table.value[:side, :width] + gain + self.psi[shift:, None] - self.psi[None, :width]
        for w, m in enumerate(total.argmax(axis=1)):
            found.append((float(total[w, m]), table, w, int(m), decoding, filling))
        for m, w in enumerate(total.argmax(axis=0)):
            found.append((float(total[w, m]), table, int(w), m, decoding, filling))

    def _counts(self, table: _Table, before: int, after: int, decoding: int, filling: int) -> Counts:
        counts = table.trace(self.items, before, after)
        for number, action in ((decoding, DECODE), (filling, FILL)):
            if number:
                q = self._completing(action)
                counts[q] = counts.get(q, 0) + number
        return counts


def solve_levels(
    levels: Levels, *, time_limit_s: float = 60.0, tolerance: float = 1e-6, smoothing: float = 0.8,
    began: float | None = None,
) -> tuple[Floats, bool]:  # fmt: skip
    """Generate columns until the bound is within ``tolerance`` of the program's value or time is over.

    Prices at a point between the best duals so far and the program's (Wentges smoothing), which needs far fewer rounds.

    Returns
    -------
    The best duals found (any duals prove a bound, see `csp.relaxations.certificate`) and whether it converged.
    """
    began = time.monotonic() if began is None else began
    least = levels.charge.least / TICKS_PER_MS
    levels.seed()
    centre = levels.area_duals()
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
