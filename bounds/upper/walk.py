"""Walks: the cheapest circulation over resident sets, followed batch by batch until every request is complete.

The circulation bound (`csp.relaxations.circulation`) comes with potentials: what a resident set and each request
outside are worth, and so what every batch loses against the bound; those of a cheapest circulation lose nothing. A walk
starts with empty memory and takes, of the batches that the requests outside allow, the one that loses least, with a
discount for filling what many are outside of, so that evicted requests do not pile up, or first those that the
circulation takes, as often as it does. For many requests, of which few fit, that comes near the bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from csp.relaxations.circulation import (
    MOST_ARCS,
    Network,
    Solution,
    TooManyError,
    gains,
    network,
    solve_circulation,
)
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.load import Load, load_of
from csp.relaxations.patterns import Charges, charges
from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.schedule import Batch, Schedule

OBJECTIVES = ("makespan",)
MOST_TOKENS = 1_000_000
"""Tokens to generate; beyond it the walk takes too long."""
SOLVE_S = 30.0
SETTINGS = ((0.1, False), (0.1, True), (0.3, False), (0.3, True), (0.03, False), (0.03, True))
"""Discount in ms per request that is outside with as many tokens generated; whether to follow the circulation."""

Kind = tuple[int, int]
"""(type, tokens generated)."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Move:
    """What a batch does, in numbers of requests per kind before it."""

    decode: dict[Kind, int]
    evict: dict[Kind, int]
    fill: dict[Kind, int]


def schedules(
    instance: Instance, cost: CostModel, objective: str, until: Callable[[], bool], below_ticks: float
) -> Iterator[tuple[Schedule, str]]:
    """At most one schedule; none where resident sets are too many or more than memory limits a batch."""
    if not applies(instance):
        return
    load = load_of(instance)
    charge = charges(load, cost, additive_weights(load, cost))
    if charge.least <= 0:
        return
    try:
        net = network(load, charge, most_arcs=MOST_ARCS)
        solution = solve_circulation(load, net, time_limit_s=SOLVE_S)
    except (TooManyError, ArithmeticError):
        return
    if solution is None or until():
        return
    walk = Walk(instance, load, charge, net, solution)
    for discount, follow in SETTINGS:
        schedule = walk.run(discount, follow, until)
        if schedule is None:
            break
        words = ", along the circulation" if follow else ""
        yield schedule, f"walk({len(net.states)} resident sets, discount {discount:g} ms{words})"


def applies(instance: Instance) -> bool:
    """Whether requests are present from the start and memory is the only limit that matters."""
    least = min(instance.blocks(r.input_tokens) for r in instance.requests)
    return (
        instance.offline
        and not any(r.prefilled or r.prefix for r in instance.requests)
        and instance.kv_capacity_tokens <= instance.token_budget
        and (instance.max_num_seqs is None or instance.max_num_seqs * least >= instance.kv_blocks)
        and sum(r.output_tokens for r in instance.requests) <= MOST_TOKENS
    )


class Walk:
    """One walk; requests of a kind are interchangeable, those outside longest go first."""

    def __init__(self, instance: Instance, load: Load, charge: Charges, net: Network, solution: Solution) -> None:
        self.load, self.charge, self.net = load, charge, net
        self.loss = net.cost / TICKS_PER_MS - gains(net, solution.potential, solution.outside)
        self.use = np.zeros(len(net.source))
        for arc, use in solution.use.items():
            self.use[arc] = use * load.requests
        rows, columns, amounts = net.net
        shape = len(net.source), len(net.absent)
        self.change = csr_array((amounts.astype(float), (rows, columns)), shape=shape)
        order = np.argsort(net.source, kind="stable")
        starts = np.searchsorted(net.source[order], np.arange(len(net.states) + 1))
        self.arcs = [order[a:b] for a, b in pairwise(starts.tolist())]
        kinds = {(i, o): kind for kind, (i, o, _) in enumerate(load.lengths)}
        self.kinds = [kinds[r.input_tokens, r.output_tokens] for r in instance.requests]
        self.moves: dict[int, Move] = {}
        self.rows: dict[int, Floats] = {}
        self.outside: dict[Kind, list[int]] = {}
        self.inside: dict[Kind, list[int]] = {}
        self.left = 0

    def run(self, discount_ms: float, follow: bool, until: Callable[[], bool]) -> Schedule | None:
        """The schedule; None if it was stopped."""
        self.outside, self.inside = defaultdict(list), defaultdict(list)
        for r, kind in enumerate(self.kinds):
            self.outside[kind, 0].append(r)
        self.left = len(self.kinds)
        wanted = self.use * follow
        batches: list[Batch] = []
        evicted: list[tuple[Kind, int]] = []
        at = 0
        while self.left:
            if len(batches) % 256 == 255 and until():
                return None
            arc = self._next(at, discount_ms, wanted)
            wanted[arc] -= 1
            at = int(self.net.target[arc])
            move = self._move(arc)
            evicted += [(gone, self.inside[gone].pop(0)) for gone, n in move.evict.items() for _ in range(n)]
            if not self.net.processes[arc]:
                continue
            batches.append(Batch(tuple(self._process(move)), tuple(r for _, r in evicted)))
            for gone, request in evicted:
                self.outside[gone].append(request)
            evicted = []
        return Schedule(tuple(batches))

    def _next(self, at: int, discount_ms: float, wanted: Floats) -> int:
        """The arc to take from a resident set; any that is wanted goes first."""
        arcs = self.arcs[at]
        if at not in self.rows:
            self.rows[at] = self.change[arcs].toarray()
        outside = np.array([len(self.outside[kind]) if kind[1] else 0 for kind in self.net.absent], float)
        score = self.loss[arcs] - discount_ms * (self.rows[at] @ outside) - 1e6 * np.clip(wanted[arcs], 0.0, 1.0)
        for _ in range(len(arcs)):
            place = int(score.argmin())
            arc, score[place] = int(arcs[place]), np.inf
            # Evicting alone is no batch: it is put off to the next one, for which somebody must be left.
            if not self.net.processes[arc] and self.net.target[arc] in (0, at):
                continue
            if all(n <= len(self.outside[kind]) for kind, n in self._move(arc).fill.items()):
                return arc
        raise AssertionError("whoever is unfinished can be decoded or filled alone")

    def _process(self, move: Move) -> Iterator[tuple[int, int]]:
        """Entries of a batch; moves requests on."""
        entering: list[tuple[int, int, int]] = []
        for table, source, filled in ((move.decode, self.inside, False), (move.fill, self.outside, True)):
            for (kind, k), n in table.items():
                for _ in range(n):
                    request = source[kind, k].pop(0)
                    entering.append((kind, k + 1, request))
                    yield request, self.load.lengths[kind][0] + k if filled else 1
        for kind, k, request in entering:
            if k == self.load.lengths[kind][1]:
                self.left -= 1
            else:
                self.inside[kind, k].append(request)

    def _move(self, arc: int) -> Move:
        if arc not in self.moves:
            self.moves[arc] = composition(self.net, self.load, self.charge, arc)
        return self.moves[arc]


def composition(net: Network, load: Load, charge: Charges, arc: int) -> Move:
    """What a batch of the network does: decodes, evictions and fills that lead from its source to its target."""
    source, target = net.states[net.source[arc]], net.states[net.target[arc]]
    place = {kind: at for at, kind in enumerate(net.residents)}
    change: dict[Kind, int] = defaultdict(int)
    for entry in range(*np.searchsorted(net.net[0], (arc, arc + 1))):
        change[net.absent[net.net[1][entry]]] = int(net.net[2][entry])
    here = [at for at, n in enumerate(source) if n]
    for split in product(*([(d, e) for d in range(source[at] + 1) for e in range(source[at] - d + 1)] for at in here)):
        decode = {net.residents[at]: d for at, (d, _) in zip(here, split, strict=True) if d}
        evict = {net.residents[at]: e for at, (_, e) in zip(here, split, strict=True) if e}
        fill = {kind: change[kind] + evict.get(kind, 0) for kind in net.absent}
        fill = {kind: n for kind, n in fill.items() if n}
        if any(n < 0 for n in fill.values()) or bool(decode or fill) != net.processes[arc]:
            continue
        after = [n - d for n, d in zip(source, (decode.get(kind, 0) for kind in net.residents), strict=True)]
        for gone, n in evict.items():
            after[place[gone]] -= n
        ticks = charge.batch * bool(decode or fill) + charge.decode_batch * bool(decode)
        ticks += charge.prefill_batch * bool(fill)
        for table, price in ((decode, charge.decode), (fill, charge.fill)):
            for (kind, k), n in table.items():
                ticks += n * price(load.lengths[kind][0] + k)
                if (kind, k + 1) in place:
                    after[place[kind, k + 1]] += n
        if tuple(after) == target and ticks == net.cost[arc]:
            return Move(decode, evict, fill)
    raise AssertionError("every batch of the network does something")
