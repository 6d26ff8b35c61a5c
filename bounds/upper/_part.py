"""A part of a schedule as a small instance of its own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from bounds.upper._events import Events
from csp.boundary import Boundary, Standing
from csp.horizon import additive_floors, entry_ticks
from sim.cost.model import CostModel, Features
from sim.instance import Instance, Request
from sim.schedule import Batch, Schedule

_ARCS = 4
"""Of a request, batch and number of tokens: roughly."""

Trail = list[tuple[int, int, int]]
"""(batch, tokens generated after it, KVs if a fill is then unfinished, else 0) of each of a request's fills."""


@dataclass(frozen=True, slots=True)
class Part:
    """Batches low to high - 1 of a schedule.

    Attributes
    ----------
    batches
        Those that process something.
    requests
        Places of those that are under way or resident, in the whole instance.
    instance, boundary
        What they have to do. Who is absent after k tokens counts as new with k more input tokens, who is to decode as
        having generated one; so requests that are alike from here on are identical.
    present
        What they do now.
    """

    low: int
    high: int
    batches: list[int]
    requests: list[int]
    instance: Instance
    boundary: Boundary
    present: Schedule

    @property
    def variables(self) -> int:
        """About how many variables the integer program has."""
        ends = zip(self.instance.requests, self.boundary.start, self.boundary.end, self.boundary.levels, strict=True)
        steps = [(end.generated - start.generated, len(levels)) for _, start, end, levels in set(ends)]
        return sum(_ARCS * (n + 1 + chunks) * (len(self.batches) - n) + n for n, chunks in steps)

    def least_ticks(self, cost: CostModel) -> int:
        """A simple lower bound: everybody's cheapest entries (an unfinished fill is left out), and flags; who generates
        in every batch decodes in all of them, but for its fill."""
        boundary, j = self.boundary, self.boundary.least_batches
        ends = [(request, start, end.generated) for request, start, end in
                zip(self.instance.requests, boundary.start, boundary.end, strict=True)]  # fmt: skip
        fills = any(not start.ready and last > start.generated for _, start, last in ends)
        always = [start.ready for _, start, last in ends if last - start.generated == boundary.batches]
        decoding = max((j if ready else j - 1 for ready in always), default=0)

        def least(a: Features) -> int:
            work = sum(entry_ticks(a, request.input_tokens, k) for request, start, last in ends
                       for k in range(start.generated + (start.kv > 0 and not start.ready), last))  # fmt: skip
            others = max(0, j - decoding - fills) * min(a.prefill_batch, a.decode_batch)
            return work + j * a.batch + fills * a.prefill_batch + decoding * a.decode_batch + others

        return max(map(least, additive_floors(cost)))


def trail_of(request: Request, events: Events) -> Trail:
    """How a request's fills go on."""
    trail: Trail = []
    before, k, m = -1, 0, 0
    for t, tokens in events.fills:
        k += _decoded(events, before, t)
        m = tokens + (0 if _evicted(events, before, t) else m)
        if m == request.input_tokens + k:
            k, m = k + 1, 0
        trail.append((t, k, m))
        before = t
    return trail


def standing(request: Request, events: Events, trail: Trail, t: int) -> Standing:
    """Where a request stands before batch t."""
    number = bisect_left(trail, (t,))
    if not number:
        return Standing(0, 0, ready=False)
    before, k, m = trail[number - 1]
    k += _decoded(events, before, t)
    if k == request.output_tokens or _evicted(events, before, t):
        return Standing(k, 0, ready=False)
    return Standing(k, m or request.input_tokens + k - 1, ready=not m)


def _decoded(events: Events, low: int, high: int) -> int:
    return sum(max(0, min(stop, high) - max(start, low)) for start, stop in events.decodes)


def _evicted(events: Events, low: int, high: int) -> bool:
    return bisect_left(events.evictions, high) > bisect_left(events.evictions, low)


def part_of(
    instance: Instance, events: Sequence[Events], trails: Sequence[Trail],
    ends: Mapping[int, tuple[Standing, Standing]], batches: list[int], low: int, high: int, *, spread: bool,
) -> Part | None:  # fmt: skip
    """Batches of a schedule as an instance; None if nobody generates a token there.

    Parameters
    ----------
    ends
        Of each request that may be concerned: where it stands before batch low and before batch high.
    batches
        Those from low to high - 1 that process something.
    spread
        Whether fills may also be interrupted where they would be if all batches processed equally many tokens.
    """
    fills = {i: [fill for fill in trails[i] if low <= fill[0] < high] for i in ends}
    chosen = [i for i, (start, end) in ends.items() if start != end or start.kv or fills[i]]
    if not any(ends[i][1].generated > ends[i][0].generated for i in chosen):
        return None
    present = _batches([events[i] for i in chosen], batches, low, high)
    made = [_rest(instance.requests[i], *ends[i], fills[i]) for i in chosen]
    requests, start, end, levels = zip(*made, strict=True)
    if spread:
        levels = tuple(a | b for a, b in zip(levels, _even(requests, start, end, present), strict=True))
    boundary = Boundary(start, end, levels, len(batches))
    return Part(low, high, batches, chosen, replace(instance, requests=requests), boundary, present)


def _rest(
    request: Request, start: Standing, end: Standing, fills: Trail
) -> tuple[Request, Standing, Standing, frozenset[tuple[int, int]]]:
    """A request as one that is new or has generated one token, and that completes in the part only if it does so."""
    before = start.generated - start.ready
    steps = end.generated - before
    rest = Request(request.input_tokens + before, steps + (end.generated < request.output_tokens))
    unfinished = [(s.generated, s.kv) for s in (start, end) if s.kv and not s.ready]
    levels = frozenset((k - before, m) for k, m in (*unfinished, *((k, m) for _, k, m in fills)) if m)
    return rest, start._replace(generated=int(start.ready)), end._replace(generated=steps), levels


def _even(
    requests: Sequence[Request], start: Sequence[Standing], end: Sequence[Standing], present: Schedule
) -> list[frozenset[tuple[int, int]]]:
    """Levels that cut first fills, one after the other as now, where all batches would process equally many tokens."""
    reached = [place.kv for place in start]
    goal = [0 if s.ready else e.kv if e.generated == 0 else r.input_tokens
            for r, s, e in zip(requests, start, end, strict=True)]  # fmt: skip
    others, order = [], dict[int, int]()
    for q, batch in enumerate(present.batches):
        others.append(0)
        for i, tokens in batch.process:
            if reached[i] < goal[i]:
                order[i] = q
            else:
                others[q] += tokens
            reached[i] += tokens
    amounts = {i: goal[i] - start[i].kv for i in sorted(order, key=lambda i: order[i])}
    each = (sum(others) + sum(amounts.values())) / len(others)
    cuts = [round(cut) for cut in accumulate(max(0.0, each - n) for n in others)]
    levels: list[frozenset[tuple[int, int]]] = [frozenset()] * len(requests)
    before = 0
    for i, amount in amounts.items():
        within = (start[i].kv + cut - before for cut in cuts if before < cut < before + amount)
        levels[i] = frozenset((0, level) for level in within)
        before += amount
    return levels


def _batches(events: Sequence[Events], batches: list[int], low: int, high: int) -> Schedule:
    """What is done in the batches, by place in the list of events."""
    place = {t: q for q, t in enumerate(batches)}
    process: list[list[tuple[int, int]]] = [[] for _ in batches]
    preempt: list[list[int]] = [[] for _ in batches]
    for i, event in enumerate(events):
        for start, stop in event.decodes:
            for t in range(max(start, low), min(stop, high)):
                process[place[t]].append((i, 1))
        for t, tokens in event.fills:
            if low <= t < high:
                process[place[t]].append((i, tokens))
        for t in event.evictions:
            if low <= t < high:
                preempt[place[t]].append(i)
    return Schedule(tuple(Batch(tuple(p), tuple(e)) for p, e in zip(process, preempt, strict=True)))
