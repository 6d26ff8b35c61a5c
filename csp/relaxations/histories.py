"""The history bound: prices of memory that depend on how long ago the last batches with fills were.

Where many requests fit, what costs is that few batches fill: between two of them nobody joins, residents grow, and the
memory that completed requests leave stays free. To see that, number the *histories*: how many batches ago the last
fill was, and how far apart the last three were (`History`; a coarse record, but the next follows from it and from
whether a batch fills). Of a batch from history h to h', three kinds are told apart: decodes only, decodes and fills,
fills only. Let it have a price p >= 0 per block of memory, and each history a potential psi, with

    fixed charges of the batch >= M p + psi_h - psi_h'.                                                            (1)

Under these prices let R_k(h) be the least a resident with k tokens generated can still cost on its own from h on, over
all continuations: its entries and p times the blocks it holds after each batch, where it decodes, holds, or is evicted
and later refilled from anywhere at A_k, the least cost of a fill in any batch that fills and of what follows. So

    entry cost + p (blocks held after the batch) >= potential before - potential after                             (2)

for every request and batch, with A_k for absent requests and 0 for complete ones. Sum (2) over requests and batches of
a schedule: entries + sum of p (blocks used) >= sum of A_0. At most M blocks are used and p >= 0, so by (1) the second
sum is at most the fixed charges minus psi of the first history plus psi of the last. Before the first batch memory is
empty, so it does not matter which batches are said to have filled: say the history with the largest psi. Then
cost >= sum over requests of A_0. Chunks count where they end, and batches that process nothing are left out, which
costs nothing: their evictions move to the next batch, where (2) lets a request be evicted and filled at once.

Prices come from a linear program; the dual of it sends requests and batches through the histories as flows. Any prices
prove a bound, by exact integer arithmetic and without a solver (`prove_histories`): R and A are shortest paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from csp.relaxations.load import Load
from csp.relaxations.patterns import Charges
from sim.clock import TICKS_PER_MS

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
State = tuple[int, ...]

DECODES, BOTH, FILLS = range(3)
"""Kinds of batches: decode steps only, decode steps and fills, fills only."""
KINDS = (DECODES, BOTH, FILLS)
_LARGEST = 2**61


@dataclass(frozen=True, slots=True)
class History:
    """What is remembered of which batches filled.

    A state is (batches since the last fill, distance of that one from the one before, and again), distances rounded to
    multiples of a grid, as far as they sum to at most the horizon; one entry once the last fill is ``longest`` ago.

    Attributes
    ----------
    longest, horizon, grid
        What it is built from; see `history`.
    after
        The state after a batch, per kind of batch and state before.
    """

    longest: int
    horizon: int
    grid: int
    after: Ints

    def __len__(self) -> int:
        return int(self.after.shape[1])


def history(longest: int, horizon: int, grid: int) -> History:
    """List the states.

    Examples
    --------
    >>> history(1, 1, 1).after.tolist()
    [[0], [0], [0]]
    >>> len(history(28, 39, 6))
    505
    """
    first: State = (longest,)
    number: dict[State, int] = {first: 0}
    todo = [first]
    after: dict[int, tuple[int, int]] = {}

    def find(state: State) -> int:
        if state not in number:
            number[state] = len(number)
            todo.append(state)
        return number[state]

    while todo:
        state = todo.pop()
        since, apart = state[0], state[1:]
        idle = _kept((min(since + 1, longest), *apart), longest, horizon)
        rounded = max(1, round(since / grid) * grid)
        filled = _kept((1, *([rounded] if since < longest else []), *apart), longest, horizon)
        after[number[state]] = find(idle), find(filled)
    idle_after, filled_after = np.array([after[at] for at in range(len(number))], np.int64).T
    return History(longest, horizon, grid, np.stack([idle_after, filled_after, filled_after]))


def _kept(state: State, longest: int, horizon: int) -> State:
    """What is remembered of a state."""
    if state[0] >= longest:
        return (longest,)
    kept = 1
    while kept < min(3, len(state)) and sum(state[: kept + 1]) <= horizon:
        kept += 1
    return state[:kept]


def history_of(load: Load, most_rows: float) -> History | None:
    """The finest history whose program has at most so many rows; None if it would have to be too coarse."""
    longest = max(o for _, o, _ in load.lengths)
    per_state = 4 + sum(o - 1 for _, o, _ in load.lengths)
    for grid in range(1, max(1, longest // 3) + 1):
        # Somewhat beyond an output, since requests that hold stay longer.
        horizon = longest + longest // 5 + 1
        if horizon**3 / (6 * grid * grid) * per_state > 2 * most_rows:
            continue
        found = history(longest - longest // 8, horizon, grid)
        if len(found) * per_state <= most_rows:
            return found
    return None


class _Sizes:
    """Blocks and costs of one type: per number k of tokens generated before, of whoever generates the next."""

    def __init__(self, load: Load, charge: Charges, input_tokens: int, output_tokens: int) -> None:
        sizes = [input_tokens + k for k in range(output_tokens)]
        self.blocks = [-(-size // load.block_size) for size in sizes]
        self.fill = [charge.fill(size) for size in sizes]
        self.decode = [charge.decode(size) for size in sizes]


def fixed_charges(charge: Charges) -> Ints:
    """Fixed charges of a batch in ticks, per kind.

    Raises
    ------
    ValueError
        If they are too large for 64 bits.
    """
    b, p, d = charge.batch, charge.prefill_batch, charge.decode_batch
    if b + p + d > 2**60:
        raise ValueError("fixed charges are too large for exact 64-bit arithmetic")
    return np.array([b + d, b + p + d, b + p], np.int64)


class Program:
    """The linear program over flows; its duals, in ms, are the prices and potentials.

    Rows: histories, then the memory of each (kind, history), then per type the absent with k = 0 .. O - 1 generated and
    the residents (k >= 1, history). The first requests are split by their share of each type.
    """

    def __init__(self, load: Load, charge: Charges, seen: History) -> None:
        self.load, self.seen = load, seen
        self.states = len(seen)
        self.memory = self.states
        self.rows = 4 * self.states
        self._cost: list[Floats] = []
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._columns = 0
        right = np.zeros(4 * self.states)
        for kind, fixed in zip(KINDS, fixed_charges(charge), strict=True):
            here = np.arange(self.states)
            self._add(fixed / TICKS_PER_MS, (here, 1.0), (seen.after[kind], -1.0),
                      (self._memory_row(kind), -float(load.kv_blocks)))  # fmt: skip
        for i, o, n in load.lengths:
            self._type(_Sizes(load, charge, i, o), o)
            share = np.zeros(o + (o - 1) * self.states)
            share[0] = n / load.requests
            right = np.concatenate([right, share])
        self.lower, self.upper = right.copy(), right
        self.lower[self.memory : 4 * self.states] = -np.inf

    def _memory_row(self, kind: int) -> Ints:
        return self.memory + kind * self.states + np.arange(self.states)

    def _type(self, sizes: _Sizes, o: int) -> None:
        absent, resident = self.rows, self.rows + o - self.states
        self.rows += o + (o - 1) * self.states
        here = np.arange(self.states)
        for k in range(o):
            for kind in KINDS:
                after = self.seen.after[kind]
                grown = [(resident + (k + 1) * self.states + after, -1.0)] if k + 1 < o else []
                memory = (self._memory_row(kind), float(sizes.blocks[k]))
                if kind != DECODES:
                    self._add(sizes.fill[k] / TICKS_PER_MS, memory, (np.full_like(here, absent + k), 1.0), *grown)
                if not k:
                    continue
                mine = resident + k * self.states + here
                if kind != FILLS:
                    self._add(sizes.decode[k] / TICKS_PER_MS, memory, (mine, 1.0), *grown)
                self._add(0.0, (memory[0], float(sizes.blocks[k - 1])), (mine, 1.0),
                          (resident + k * self.states + after, -1.0))  # fmt: skip
            if k:
                self._add(0.0, (resident + k * self.states + here, 1.0), (np.full_like(here, absent + k), -1.0))

    def _add(self, cost_ms: float, *entries: tuple[Ints, float]) -> None:
        """A column per history: what it costs, and its entries."""
        columns = self._columns + np.arange(self.states)
        self._columns += self.states
        self._cost.append(np.full(self.states, cost_ms))
        self._entries += [(rows, columns, np.full(self.states, value)) for rows, value in entries]

    def solve(self, time_limit_s: float) -> tuple[Ints, Ints] | None:
        """Prices (kind, history) and potentials of histories, in ticks; None if the solver has none."""
        from csp.solvers._interior import interior_duals

        rows, columns, values = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        matrix = csc_array((values, (rows, columns)), shape=(self.rows, self._columns))
        matrix.eliminate_zeros()
        duals = interior_duals(np.concatenate(self._cost), matrix, self.lower, self.upper, time_limit_s=time_limit_s)
        if duals is None:
            return None
        ticks = np.rint(np.clip(duals[: 4 * self.states], -1e3, 1e3) * TICKS_PER_MS).astype(np.int64)
        return np.maximum(0, -ticks[self.memory :]).reshape(3, -1), ticks[: self.states]


def prove_histories(load: Load, charge: Charges, seen: History, prices: Ints, potential: Ints) -> Fraction:
    """The makespan bound in ticks that prices and potentials in ticks prove; exact.

    Negative prices count as 0. If (1) fails by up to g, then in at most (cost / least cost of a batch) batches:
    cost (1 + g / least) >= sum of A_0.

    Raises
    ------
    ValueError
        If they do not fit the history or are too large for 64 bits.
    """
    if prices.shape != seen.after.shape or potential.shape != (len(seen),):
        raise ValueError("needs a price for each kind of batch and history, and a potential for each history")
    sizes = [_Sizes(load, charge, i, o) for i, o, _ in load.lengths]
    dearest = max(max(s.fill) + max(s.decode) for s in sizes)
    longest = max(o for _, o, _ in load.lengths)
    prices = np.maximum(0, prices)
    largest_price = max(map(int, prices.ravel()))
    if longest * (largest_price * load.kv_blocks + dearest) > _LARGEST or max(map(abs, potential.tolist())) > 2**60:
        raise ValueError("prices or potentials are too large for exact 64-bit arithmetic")
    excess = load.kv_blocks * prices + potential[None, :] - potential[seen.after] - fixed_charges(charge)[:, None]
    gain = max(0, int(excess.max()))
    total = sum(n * least_cost(size, seen, prices) for size, (_, _, n) in zip(sizes, load.lengths, strict=True))
    return Fraction(total) / (1 + Fraction(gain, charge.least))


def least_cost(sizes: _Sizes, seen: History, prices: Ints) -> int:
    """A_0 in ticks: entries and memory of one request alone, over all histories."""
    resident = np.zeros(len(seen), np.int64)
    absent = 0
    for k in range(len(sizes.blocks) - 1, -1, -1):
        go_on = prices * sizes.blocks[k] + resident[seen.after]
        absent = sizes.fill[k] + int(go_on[BOTH:].min())
        if k:
            resident = np.minimum(absent, sizes.decode[k] + go_on[: BOTH + 1].min(axis=0))
            # Holding, for as many batches as it pays.
            while True:
                held = np.minimum(resident, (prices * sizes.blocks[k - 1] + resident[seen.after]).min(axis=0))
                if (held == resident).all():
                    break
                resident = held
    return absent
