"""Pricing of batch patterns for the level bound: which of them gain most under given potentials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from csp.relaxations.patterns import DECODE, EVICT, FILL, HOLD, LEAVE
from sim.clock import TICKS_PER_MS

if TYPE_CHECKING:
    from csp.relaxations.levels import Levels

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Counts = dict[int, int]
"""How often each item is in a pattern."""

_ACTIONS = {"D": DECODE, "H": HOLD, "E": EVICT, "F": FILL, "L": LEAVE}
_IDLE = "HEL"
_MOST_COLUMNS, _LEAST_GAIN = 500, 1e-9
"""Added per pricing round, and what one gains, in ms."""


class _Candidate(NamedTuple):
    """A pattern that may gain: the cell of a table it ends in, and those that complete beside it."""

    gain: float
    flags: str
    cell: tuple[int, int, int, int]
    decoding: int
    filling: int


class Pricing:
    """The knapsacks of one pricing round."""

    def __init__(self, levels: Levels, duals: Floats) -> None:
        self.levels, self.items = levels, levels.items
        self.limit = levels.limit
        self.profit = levels.profits(duals)
        self.psi = levels.psi(duals)

    def _pick(self, actions: str) -> tuple[Ints, tuple[Ints, Ints, Floats]]:
        """Items with some actions, and their blocks before and after and profits; not completing ones set apart."""
        items = self.items
        chosen = np.isin(items.action, [_ACTIONS[a] for a in actions])
        q = np.flatnonzero(chosen & ~items.completes if self.levels.apart else chosen)
        return q, (items.before[q], items.after[q], self.profit[q])

    def _closed(self, start: Floats, actions: str) -> Floats:
        from csp.relaxations._knapsack import close

        table = start.copy()
        close(table, *self._pick(actions)[1])
        return table

    def run(self) -> tuple[float, list[Counts]]:
        """Largest gain over all patterns, and the best patterns per level.

        A table whose patterns are charged for decode steps or fills may hold patterns without: they are dearer there
        than where they belong.
        """
        from csp.relaxations._knapsack import NONE

        n, w = self.psi.shape
        start = np.full((n, w, n, w), NONE)
        start[0, 0, 0, 0] = 0.0
        tables = {"": self._closed(start, _IDLE)}
        tables["D"], tables["F"] = self._closed(tables[""], _IDLE + "D"), self._closed(tables[""], "F")
        tables["DF"] = self._closed(tables["D"], "F")
        found: list[_Candidate] = []
        for decoding, filling in self._completions():
            for flags, table in tables.items():
                if ("D" in flags or not decoding) and ("F" in flags or not filling):
                    self._candidates(found, flags, table, decoding, filling)
        worst = max((c.gain for c in found), default=0.0)
        found = sorted(found, key=lambda c: -c.gain)[:_MOST_COLUMNS]
        picked = {flags: self._pick(_IDLE + flags) for flags in tables}
        return worst, [self._counts(tables[c.flags], *picked[c.flags], c) for c in found]

    def _completions(self) -> Iterator[tuple[int, int]]:
        """How many requests complete by decoding and by filling (their blocks are free afterwards), where set apart."""
        yield 0, 0
        if self.levels.apart:
            ((i, o, _),) = self.levels.load.lengths
            most = self.limit // -(-(i + o - 1) // self.levels.load.block_size)
            for decoding in range(most + 1 if o > 1 else 1):
                for filling in range(0 if decoding else 1, most + 1 - decoding):
                    yield decoding, filling

    def _completing(self, action: int) -> int:
        return int(np.flatnonzero((self.items.action == action) & self.items.completes)[0])

    def _candidates(
        self, found: list[_Candidate], flags: str, table: Floats, decoding: int, filling: int
    ) -> None:  # fmt: skip
        from csp.relaxations._knapsack import best_cells

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
        most = self.levels.residents
        taken = self.psi[np.minimum(np.arange(most + 1) + decoding, most), shift:]
        value, before, after = best_cells(table, taken + gain, self.psi[:, :width])
        for x in np.flatnonzero(value > _LEAST_GAIN).tolist():
            cell = (*divmod(int(before[x]), side), *divmod(int(after[x]), width))
            found.append(_Candidate(float(value[x]), flags, cell, decoding, filling))

    def _counts(
        self, table: Floats, chosen: Ints, given: tuple[Ints, Ints, Floats], candidate: _Candidate
    ) -> Counts:  # fmt: skip
        from csp.relaxations._knapsack import trace

        used = trace(table, *given, *candidate.cell)
        counts = {int(q): int(n) for q, n in zip(chosen, used, strict=True) if n}
        for number, action in ((candidate.decoding, DECODE), (candidate.filling, FILL)):
            if number:
                counts[self._completing(action)] = number
        return counts
