"""Shortest path over the joint states of all requests, exact in integer ticks.

Labels (state, time, value) are settled in order of an estimate of their final value: the value itself (Dijkstra) or,
guided, a lower bound that never falls along a schedule (A*), so the first complete label is optimal. At one state a
label is dropped when one settled before it is no later: idling is allowed, so whatever follows the dropped label can
follow the other, and the result is no worse. Identical requests are interchangeable and sorted in the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from sim.cost import CostModel, load_cost_model
from sim.instance import Instance
from sim.schedule import Batch, Schedule
from tests.oracle.cost import Linear, batch_ticks, cheapest_rest, minorants
from tests.oracle.objectives import Makespan, Objective, Step, Value
from tests.oracle.slots import FRESH, Action, Limits, Slot, actions

TICKS_PER_NS = 10**5

State = tuple[tuple[Slot | None, ...], ...]
"""Per type, the sorted states of its requests; None is complete."""


class TooLargeError(RuntimeError):
    """More states than the search may settle."""


@dataclass(frozen=True)
class Optimum:
    """The least value and one schedule that reaches it."""

    value: Value
    schedule: Schedule
    settled: int


@dataclass(frozen=True)
class _Type:
    """Interchangeable requests."""

    inputs: int
    outputs: int
    arrival: int
    weight: Any
    members: tuple[int, ...]


class _Edge(NamedTuple):
    state: State
    duration: int
    latest_arrival: int
    moves: tuple[tuple[int, Slot | None, Action | None], ...]


@dataclass
class _Label:
    state: State
    time: int
    value: Value
    parent: _Label | None = field(repr=False)
    edge: _Edge | None = field(repr=False)


def optimum(
    instance: Instance,
    objective: Objective | None = None,
    *,
    limits: Limits | None = None,
    cost: CostModel | None = None,
    guided: bool = True,
    most_states: int = 2_000_000,
) -> Optimum | None:
    """The best schedule of an instance; None if there is no schedule at all.

    Parameters
    ----------
    guided
        Use the lower bound of the remaining value; without it this is Dijkstra's algorithm.
    most_states
        Labels to settle at most; `TooLargeError` beyond.
    """
    return _Search(instance, objective or Makespan(), limits or Limits(), cost, guided).run(most_states)


class _Rest:
    """What each request alone still costs, by one affine function below the batch time."""

    def __init__(self, linear: Linear, search: _Search) -> None:
        least_flag = min(linear.prefill_batch, linear.decode_batch)
        self.per_batch = linear.batch + least_flag
        self.prefill_extra = linear.prefill_batch - least_flag
        limits, budget = search.limits, search.budget
        self.by_type = [cheapest_rest(t.inputs, t.outputs, linear, limits, budget) for t in search.types]
        self.first_token = [cheapest_rest(t.inputs, 1, linear, limits, budget) for t in search.types]


class _Search:
    def __init__(
        self, instance: Instance, objective: Objective, limits: Limits, cost: CostModel | None, guided: bool
    ) -> None:
        self.instance, self.objective, self.limits = instance, objective, limits
        self.cost = cost or load_cost_model(instance.cost_model)
        self.types = _types(instance, objective)
        self.keeps_time = objective.keeps_time(any(t.arrival for t in self.types))
        self.budget = instance.token_budget
        self.block = instance.block_size
        self.capacity = instance.kv_capacity_tokens // instance.block_size
        self.rests = [_Rest(linear, self) for linear in minorants(self.cost)] if guided else []
        # A request holds I + k - 1 KVs at the end of the batch that generates its k-th token.
        self.areas = [
            [sum(-(-(t.inputs + k) // self.block) for k in range(done, t.outputs)) for done in range(t.outputs)]
            for t in self.types
        ]

    def run(self, most_states: int) -> Optimum | None:
        start: State = tuple((FRESH,) * len(t.members) for t in self.types)
        tie = count()
        queue: list[tuple[Value, int, _Label]] = []
        found: dict[State, list[tuple[int, Value]]] = {}

        def add(label: _Label) -> None:
            """Queue a label unless one at its state is no later and no worse; of equal ones the newest comes first."""
            time = label.time if self.keeps_time else 0
            front = found.setdefault(label.state, [])
            if any(t <= time and v <= label.value for t, v in front):
                return
            front[:] = [(t, v) for t, v in front if t < time or v < label.value] + [(time, label.value)]
            least = self.estimate(label.state, label.time, label.value)
            if least is not None:
                heappush(queue, (least, -next(tie), label))

        add(_Label(start, 0, 0, None, None))
        earliest: dict[State, int] = {}
        settled = 0
        while queue:
            _, _, label = heappop(queue)
            if label.state in earliest and (not self.keeps_time or earliest[label.state] <= label.time):
                continue
            earliest[label.state] = label.time
            if all(slot is None for slots in label.state for slot in slots):
                value = self.objective.finish(label.value, len(self.instance.requests))
                return Optimum(value, self.schedule(label), settled)
            settled += 1
            if settled > most_states:
                raise TooLargeError(f"more than {most_states:,} states")
            for edge in self.edges(label.state):
                if edge.state in earliest and not self.keeps_time:
                    continue
                end = max(label.time, edge.latest_arrival) + edge.duration
                if edge.state in earliest and earliest[edge.state] <= end:
                    continue
                step = self.step(label, edge, end)
                value = self.objective.grow(label.value, step, self.types)
                add(_Label(edge.state, end, value, label, edge))
        return None

    def step(self, label: _Label, edge: _Edge, end: int) -> Step:
        unfinished = tuple((t, sum(s is not None for s in slots)) for t, slots in enumerate(label.state))
        tokenless = tuple(
            (t, sum(s is not None and s.generated == 0 for s in slots)) for t, slots in enumerate(label.state)
        )
        finishing, starting = [], []
        for t, slot, action in edge.moves:
            if slot is None or action is None:
                continue
            if action.after is None:
                finishing.append(t)
            if slot.generated == 0 and (action.after is None or action.after.generated == 1):
                starting.append(t)
        return Step(label.time, end, unfinished, tokenless, tuple(finishing), tuple(starting))

    def estimate(self, state: State, time: int, value: Value) -> Value | None:
        """Lower bound of the final value, the largest over the affine functions below the cost; None in a dead end."""
        best = value
        for own in self.rests:
            if any(slot is not None and slot not in own.by_type[t] for t, slots in enumerate(state) for slot in slots):
                return None
            alone: Value = self.objective.estimate(value, time, self.own_ticks(state, own), self.types)
            best = max(best, alone)
            if isinstance(self.objective, Makespan):
                best = max(best, time + self.shared_ticks(state, own))
        return best

    def own_ticks(self, state: State, own: _Rest) -> Iterator[tuple[int, int, int | None]]:
        """(type, least ticks to completion, least ticks to the first token or None) of each unfinished request."""
        for t, slots in enumerate(state):
            for slot in slots:
                if slot is not None:
                    left = self.types[t].outputs - slot.generated
                    first = None if slot.generated else own.per_batch + own.first_token[t][slot]
                    yield t, own.per_batch * left + own.by_type[t][slot], first

    def shared_ticks(self, state: State, own: _Rest) -> int:
        """Least ticks to finish all: each request's own share, and the fixed charges of the batches still needed."""
        longest = total = area = 0
        filling = False
        for t, slots in enumerate(state):
            for slot in slots:
                if slot is not None:
                    longest = max(longest, self.types[t].outputs - slot.generated)
                    filling = filling or not (slot.ready or slot.host_ready)
                    total += own.by_type[t][slot]
                    area += self.areas[t][slot.generated]
        return own.per_batch * max(longest, -(-area // self.capacity)) + total + own.prefill_extra * filling

    def edges(self, state: State) -> Iterator[_Edge]:
        """Every batch that can follow; requests of one type and state act in sorted order."""
        places = [(t, slot) for t, slots in enumerate(state) for slot in slots]
        chosen: list[Action | None] = []
        menus = [
            () if s is None else actions(self.types[t].inputs, self.types[t].outputs, s, self.limits, self.budget)
            for t, s in places
        ]
        cap = self.instance.max_num_seqs or len(places)

        def go(i: int, tokens: int, blocks: int, seqs: int, last: int) -> Iterator[_Edge]:
            if i == len(places):
                if tokens or (self.limits.allow_empty and any(a is not None and a.what != "hold" for a in chosen)):
                    edge = self.edge(places, chosen)
                    if edge is not None:
                        yield edge
                return
            slot = places[i][1]
            if slot is None:
                chosen.append(None)
                yield from go(i + 1, tokens, blocks, seqs, 0)
                chosen.pop()
                return
            menu = menus[i]
            same = i > 0 and places[i - 1] == places[i]
            for a in range(last if same else 0, len(menu)):
                action = menu[a]
                now = tokens + action.tokens
                held = blocks - (-action.kv_after // self.block)
                busy = seqs + (action.tokens > 0)
                if now <= self.budget and held <= self.capacity and busy <= cap:
                    chosen.append(action)
                    yield from go(i + 1, now, held, busy, a)
                    chosen.pop()

        yield from go(0, 0, 0, 0, 0)

    def edge(self, places: list[tuple[int, Slot | None]], chosen: list[Action | None]) -> _Edge | None:
        n_p = n_d = tokens = square = p_reads = d_reads = moved = latest = 0
        after: list[list[Slot | None]] = [[] for _ in self.types]
        for (t, _), action in zip(places, chosen, strict=True):
            if action is None:
                after[t].append(None)
                continue
            after[t].append(action.after)
            n_p += action.prefill
            n_d += action.decode
            tokens += action.tokens
            square += action.square
            p_reads += action.prefill_reads
            d_reads += action.decode_reads
            moved += action.transfer
            if action.tokens or "swap-in" in action.what:
                latest = max(latest, self.types[t].arrival)
        if n_p and n_d and not self.limits.hybrid:
            return None
        compute = batch_ticks(self.cost, n_p, n_d, tokens, square, p_reads, d_reads) if tokens else 0
        link = self.limits.swap
        duration = max(compute, moved) if link is not None and link.overlap else compute + moved
        if self.limits.holding == "forced" and self._needless_hold(places, chosen, tokens):
            return None
        if self.limits.batch_limit_ticks is not None and duration > self.limits.batch_limit_ticks:
            return None
        state = tuple(tuple(sorted(slots, key=_order)) for slots in after)
        moves = tuple((t, slot, action) for (t, slot), action in zip(places, chosen, strict=True))
        return _Edge(state, duration, latest, moves)

    def _blocks(self, kv: int) -> int:
        return -(-kv // self.block)

    def _needless_hold(self, places: list[tuple[int, Slot | None]], chosen: list[Action | None], tokens: int) -> bool:
        """Whether a ready request holds although one more decode step would fit."""
        used = sum(self._blocks(a.kv_after) for a in chosen if a is not None)
        return tokens < self.budget and any(
            slot is not None and slot.ready and action is not None and action.what == "hold"
            and used + self._blocks(slot.kv + 1) - self._blocks(slot.kv) <= self.capacity
            for (_, slot), action in zip(places, chosen, strict=True)
        )  # fmt: skip

    def schedule(self, label: _Label) -> Schedule:
        """Walk the labels forward and say which request does what."""
        edges: list[_Edge] = []
        at: _Label | None = label
        while at is not None and at.edge is not None:
            edges.append(at.edge)
            at = at.parent
        current: dict[int, Slot | None] = {i: FRESH for t in self.types for i in t.members}
        batches = []
        for edge in reversed(edges):
            free = set(current)
            lists: dict[str, list[int]] = {"preempt": [], "swap-out": [], "swap-in": []}
            process = []
            after = dict(current)
            for t, slot, action in edge.moves:
                i = next(i for i in self.types[t].members if i in free and current[i] == slot)
                free.remove(i)
                if action is None:
                    continue
                after[i] = action.after
                if action.tokens:
                    process.append((i, action.tokens))
                for word in lists:
                    if word in action.what:
                        lists[word].append(i)
            current = after
            batches.append(Batch(tuple(process), tuple(lists["preempt"]), None, tuple(lists["swap-out"]),
                                 tuple(lists["swap-in"])))  # fmt: skip
        return Schedule(tuple(batches))


def _order(slot: Slot | None) -> tuple[int, ...]:
    return (1, 0, 0, 0, 0, 0) if slot is None else (0, *slot)


def _types(instance: Instance, objective: Objective) -> list[_Type]:
    groups: dict[tuple[int, int, int, object], list[int]] = {}
    for i, r in enumerate(instance.requests):
        key = (r.input_tokens, r.output_tokens, r.arrival_ns * TICKS_PER_NS, objective.weight(i))
        groups.setdefault(key, []).append(i)
    return [_Type(*key, tuple(members)) for key, members in groups.items()]
