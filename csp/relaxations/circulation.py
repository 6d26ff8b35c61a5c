"""The circulation bound: potentials of whole resident sets, for memories so small that all sets can be listed.

Nodes are the sets of residents (how many of each type and progress) that fit in memory, arcs the batches that lead from
one to the next. A schedule is a walk from the empty set back to it; counting how often it takes each arc gives a
circulation in which, for every k >= 1, as many requests are filled with k tokens generated as are evicted with k, and
each is filled for the first time once. The cheapest circulation is a linear program; its dual gives each set S a
potential psi_S and each absent request one, A_k, with

    cost(arc) >= psi_S - psi_S' + sum of A_k over fills - sum of A_k over evictions

for every arc, so that a schedule costs at least the sum of A_0 over its requests. Batches that process nothing are arcs
too, of cost 0. Chunks count where they end, as in `csp.relaxations.patterns`. The program sees everything that occupies
memory; it only forgets that requests are whole, so it is homogeneous in their number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from csp.relaxations.load import Load
from csp.relaxations.patterns import Charges
from sim.clock import TICKS_PER_MS

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Resident = tuple[int, int]
"""(type, tokens generated)."""
State = tuple[int, ...]
"""How many residents of each kind, in the order of `Network.residents`."""

MOST_STATES, MOST_ARCS = 600, 400_000
"""Beyond these the network is not listed."""
_COLUMNS_PER_ROUND = 600


class TooManyError(ValueError):
    """There are more sets or batches than may be listed."""


@dataclass(frozen=True, eq=False)
class Network:
    """All resident sets and all batches between them.

    Attributes
    ----------
    residents, absent
        Kinds of residents and of absent requests.
    states
        Resident sets; the first is empty.
    source, target, cost
        Per arc: state indices and cost in ticks (0 where nothing is processed).
    processes
        Per arc, whether it processes anything.
    net
        Per arc, sparse (arc, absent kind, fills minus evictions).
    """

    residents: tuple[Resident, ...]
    absent: tuple[Resident, ...]
    states: tuple[State, ...]
    source: Ints
    target: Ints
    cost: Ints
    processes: npt.NDArray[np.bool_]
    net: tuple[Ints, Ints, Ints]


@lru_cache(maxsize=2)
def network(load: Load, charge: Charges, *, most_states: int = MOST_STATES, most_arcs: int = MOST_ARCS) -> Network:
    """List all resident sets and batches.

    Raises
    ------
    TooManyError
        If there are more than allowed.
    """
    if sum(o for _, o, _ in load.lengths) > most_states:
        raise TooManyError("more resident sets than may be listed")
    return _Lister(load, charge, most_states, most_arcs).run()


class _Lister:
    def __init__(self, load: Load, charge: Charges, most_states: int, most_arcs: int) -> None:
        self.load, self.charge = load, charge
        self.most_states, self.most_arcs = most_states, most_arcs
        self.residents = tuple((t, k) for t, (_, o, _) in enumerate(load.lengths) for k in range(1, o))
        self.absent = tuple((t, k) for t, (_, o, _) in enumerate(load.lengths) for k in range(o))
        self.place = {resident: at for at, resident in enumerate(self.residents)}
        self.absent_place = {kind: at for at, kind in enumerate(self.absent)}
        self.blocks = [self._blocks(t, k) for t, k in self.residents]

    def _blocks(self, kind: int, k: int) -> int:
        """Blocks a request of this type holds once it has generated k tokens."""
        return -(-(self.load.lengths[kind][0] + k - 1) // self.load.block_size)

    def run(self) -> Network:
        states = list(self._states(0, self.load.kv_blocks))
        states.sort(key=lambda state: (sum(state), state))
        index = {state: at for at, state in enumerate(states)}
        arcs: list[tuple[int, int, int, bool]] = []
        net: list[tuple[int, int, int]] = []
        for at, state in enumerate(states):
            for after, cost, processes, change in self._batches(state):
                net += [(len(arcs), absent, amount) for absent, amount in change.items() if amount]
                arcs.append((at, index[after], cost, processes))
                if len(arcs) > self.most_arcs:
                    raise TooManyError("more batches than may be listed")
        sources, targets, costs, does = zip(*arcs, strict=True)
        rows, columns, values = np.array(net, np.int64).reshape(-1, 3).T
        return Network(
            self.residents, self.absent, tuple(states), np.array(sources, np.int64), np.array(targets, np.int64),
            np.array(costs, np.int64), np.array(does, bool), (rows, columns, values),
        )  # fmt: skip

    def _states(self, first: int, room: int) -> Iterator[State]:
        """Resident sets of the kinds from ``first`` on that fit in ``room`` blocks."""
        count = 0
        stack: list[tuple[int, int, tuple[int, ...]]] = [(first, room, ())]
        while stack:
            at, left, chosen = stack.pop()
            if at == len(self.residents):
                count += 1
                if count > self.most_states:
                    raise TooManyError("more resident sets than may be listed")
                yield chosen
                continue
            for n in range(left // self.blocks[at] + 1):
                stack.append((at + 1, left - n * self.blocks[at], (*chosen, n)))

    def _batches(self, state: State) -> Iterator[tuple[State, int, bool, dict[int, int]]]:
        """What can follow a set: the set after, cost, whether anything is processed, fills minus evictions."""
        charge = self.charge
        here = [at for at, n in enumerate(state) if n]
        for after, room, entry_cost, decodes, change in self._moves(state, here, 0, self.load.kv_blocks):
            for filled, fill_cost, fills, more in self._fills(0, room):
                total = list(after)
                for at, n in filled.items():
                    total[at] += n
                fixed = charge.batch if decodes or fills else 0
                fixed += charge.decode_batch * bool(decodes) + charge.prefill_batch * bool(fills)
                joint = dict(change)
                for at, n in more.items():
                    joint[at] = joint.get(at, 0) + n
                yield tuple(total), entry_cost + fill_cost + fixed, bool(decodes or fills), joint

    def _moves(
        self, state: State, here: list[int], position: int, room: int
    ) -> Iterator[tuple[tuple[int, ...], int, int, int, dict[int, int]]]:
        """Each resident decodes, holds or is evicted."""
        if position == len(here):
            yield (0,) * len(self.residents), room, 0, 0, {}
            return
        at = here[position]
        kind, k = self.residents[at]
        size = self.load.lengths[kind][0] + k
        grown = self._blocks(kind, k + 1)
        nxt = self.place.get((kind, k + 1))
        for decode in range(state[at] + 1):
            for hold in range(state[at] - decode + 1):
                left = room - decode * grown - hold * self.blocks[at]
                if left < 0:
                    break
                evict = state[at] - decode - hold
                for after, rest, cost, decodes, change in self._moves(state, here, position + 1, left):
                    total = list(after)
                    total[at] += hold
                    if nxt is not None:
                        total[nxt] += decode
                    joint = dict(change)
                    if evict:
                        joint[self.absent_place[kind, k]] = -evict
                    yield tuple(total), rest, cost + decode * self.charge.decode(size), decodes + decode, joint

    def _fills(self, first: int, room: int) -> Iterator[tuple[dict[int, int], int, int, dict[int, int]]]:
        """Fills of the absent kinds from ``first`` on that fit."""
        if first == len(self.absent):
            yield {}, 0, 0, {}
            return
        kind, k = self.absent[first]
        size = self.load.lengths[kind][0] + k
        grown = self._blocks(kind, k + 1)
        nxt = self.place.get((kind, k + 1))
        for n in range(room // grown + 1):
            for filled, cost, fills, change in self._fills(first + 1, room - n * grown):
                if n:
                    filled, change = dict(filled), dict(change)
                    if nxt is not None:
                        filled[nxt] = filled.get(nxt, 0) + n
                    change[first] = n
                yield filled, cost + n * self.charge.fill(size), fills + n, change


@dataclass(frozen=True)
class Solution:
    """A cheapest circulation, per request, and its dual.

    Attributes
    ----------
    potential, outside
        Of resident sets and of absent kinds, in ms.
    use
        Arc -> how often a request's share of the schedule takes it; only arcs that are taken.
    """

    potential: Floats
    outside: Floats
    use: dict[int, float]


_SOLVED: WeakKeyDictionary[Network, tuple[Load, Solution]] = WeakKeyDictionary()


def solve_circulation(load: Load, net: Network, *, time_limit_s: float = 60.0) -> Solution | None:
    """The cheapest circulation, by column generation over the listed arcs; remembered as long as the network is.

    None if time ran out before it was found.
    """
    known = _SOLVED.get(net)
    if known is not None and known[0] == load:
        return known[1]
    solution = _solve(load, net, time_limit_s)
    if solution is not None:
        _SOLVED[net] = load, solution
    return solution


def _solve(load: Load, net: Network, time_limit_s: float) -> Solution | None:
    from csp.solvers._master import Master

    began = time.monotonic()
    states, absent = len(net.states), len(net.absent)
    right = np.zeros(states + absent)
    for at, (kind, k) in enumerate(net.absent):
        if k == 0:
            right[states + at] = load.lengths[kind][2] / load.requests
    master = Master(right)
    by_arc = np.argsort(net.net[0], kind="stable")
    starts = np.searchsorted(net.net[0][by_arc], np.arange(len(net.source) + 1))
    included = np.zeros(len(net.source), bool)
    columns: list[int] = []

    def add(arc: int) -> None:
        included[arc] = True
        columns.append(arc)
        column = np.zeros(states + absent)
        column[net.source[arc]] += 1
        column[net.target[arc]] -= 1
        for entry in by_arc[starts[arc] : starts[arc + 1]]:
            column[states + net.net[1][entry]] += net.net[2][entry]
        rows = np.flatnonzero(column).astype(np.int32)
        master.add(float(net.cost[arc]) / TICKS_PER_MS, rows, column[rows])

    for arc in _alone(net):
        add(int(arc))
    while True:
        _, duals = master.solve()
        potential, outside = duals[:states], duals[states:]
        gain = gains(net, potential, outside) - net.cost / TICKS_PER_MS
        gain[included] = 0.0
        better = np.flatnonzero(gain > 1e-9)
        if not len(better):
            use = {arc: float(x) for arc, x in zip(columns, master.solution(), strict=True) if x > 1e-9}
            return Solution(potential, outside, use)
        if time.monotonic() - began > time_limit_s:
            return None
        for arc in better[np.argsort(-gain[better])[:_COLUMNS_PER_ROUND]]:
            add(int(arc))


def gains(net: Network, potential: npt.NDArray[Any], outside: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Per arc, the potentials it takes away; exact for integers."""
    total: npt.NDArray[Any] = potential[net.source] - potential[net.target]
    np.add.at(total, net.net[0], net.net[2] * outside[net.net[1]])
    return total


def _alone(net: Network) -> Ints:
    """Arcs that serve single requests, so that the program is feasible: sets of at most one resident."""
    sizes = np.array([sum(state) for state in net.states])
    return np.flatnonzero((sizes[net.source] <= 1) & (sizes[net.target] <= 1))


def prove_circulation(
    load: Load, charge: Charges, potential: list[int], outside: list[int], net: Network | None = None
) -> Fraction:
    """The makespan bound, in ticks, that potentials in ticks prove; exact.

    Sets' potentials are lowered until batches that process nothing take nothing away, smallest sets first; what other
    batches take away beyond their cost is divided out (see `csp.relaxations.certificate.prove`).

    Parameters
    ----------
    net
        The network, where it is listed already.

    Raises
    ------
    ValueError
        If there are not as many potentials as sets and absent kinds, or they are too large for 64 bits.
    """
    net = net or network(load, charge, most_arcs=MOST_ARCS)
    if len(potential) != len(net.states) or len(outside) != len(net.absent):
        raise ValueError("needs a potential for each resident set and each kind of absent request")
    if max(map(abs, (*potential, *outside))) > 2**52:
        raise ValueError("potentials are too large for exact 64-bit arithmetic")
    lowered = np.array(potential, np.int64)
    shift = lowered[0]
    lowered -= shift
    index = {state: at for at, state in enumerate(net.states)}
    absent = {kind: at for at, kind in enumerate(net.absent)}
    for at, state in enumerate(net.states):
        for place, n in enumerate(state):
            if n:
                rest = index[(*state[:place], n - 1, *state[place + 1 :])]
                lowered[at] = min(lowered[at], lowered[rest] + outside[absent[net.residents[place]]])
    excess = gains(net, lowered, np.array(outside, np.int64)) - net.cost
    if int(excess[~net.processes].max(initial=0)) > 0:
        raise ValueError("potentials of sets do not fit together")
    gain = max(0, int(excess[net.processes].max()))
    total = sum(n * outside[absent[kind, 0]] for kind, (_, _, n) in enumerate(load.lengths))
    return max(Fraction(0), Fraction(total) / (1 + Fraction(gain, charge.least)))
