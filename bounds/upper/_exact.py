"""Windows solved exactly: a few batches between the states they begin and end in, as an integer program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bounds.upper._events import Events, read, write
from bounds.upper._part import Part, part_of, standing, trail_of
from csp.boundary import Standing, replay_between, solve_between
from csp.solvers import Control, StopWhen
from sim.clock import ms_from_ticks
from sim.cost.model import CostModel
from sim.replay import DECODE, Replay, replay

_LENGTHS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_FIRST, _LEAST, _MOST = 600.0, 200.0, 20_000.0
"""Variables of a window's program: the limit adapts between these."""
_GROWS, _EASY, _HARD = 1.5, 1.02, 0.8
"""The limit's factors after a sweep that gained little, a window that was proven, and one that was not."""
_LIMIT_S = 4.0
"""For one window."""
_WORTH = 1e-4
"""A sweep that gains less of the makespan gained little. If most of its windows are not proven, it was the last."""
_REPLAYED_EVERY_S = 1.0


@dataclass(slots=True)
class Tally:
    """What became of exact windows.

    Attributes
    ----------
    solved, proven, improved
        Windows handed to the solver; proven best given their ends and where fills may be interrupted; made faster.
    settled
        Windows that a simple bound proves best, not handed to it.
    longest
        Batches of the longest that was proven best.
    gained_ticks
        By all of them.
    variables
        Most that a window's program may have at the moment.
    """

    solved: int = 0
    proven: int = 0
    improved: int = 0
    settled: int = 0
    longest: int = 0
    gained_ticks: int = 0
    variables: float = _FIRST

    @property
    def total(self) -> int:
        """Windows looked at."""
        return self.solved + self.settled

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        counts = {name: getattr(self, name) for name in ("settled", "solved", "proven", "improved")}
        return counts | {"longest_proven_batches": self.longest, "gained_ms": ms_from_ticks(self.gained_ticks)}


def improved_exactly(
    start: Replay, cost: CostModel, random: np.random.Generator, until: Callable[[], bool], tally: Tally
) -> Iterator[Replay]:  # fmt: skip
    """Ever better schedules, replayed, until all windows up to the size that can be solved are proven best."""
    windows = Exact(start, cost, tally)
    if not windows.applies:
        return
    shown, shown_at = 0, time.monotonic()
    while not until():
        before = replace(tally)
        for _ in windows.sweep(random, until):
            if windows.gained_ticks > shown and time.monotonic() > shown_at + _REPLAYED_EVERY_S:
                yield windows.replayed()
                shown, shown_at = windows.gained_ticks, time.monotonic()
        if windows.gained_ticks > shown:
            yield windows.replayed()
            shown, shown_at = windows.gained_ticks, time.monotonic()
        if tally.gained_ticks - before.gained_ticks < _WORTH * start.makespan_ticks:
            if tally.variables >= _MOST or tally.proven - before.proven < (tally.solved - before.solved) / 2:
                return
            tally.variables = min(_MOST, _GROWS * tally.variables)


class Exact:
    """A schedule whose windows are solved one after the other."""

    def __init__(self, start: Replay, cost: CostModel, tally: Tally) -> None:
        self.instance, self.cost, self.tally = start.instance, cost, tally
        self.events, self.makespan_ticks, self.gained_ticks = read(start), start.makespan_ticks, 0
        self.applies = self.instance.offline
        self.trails = [trail_of(r, e) for r, e in zip(self.instance.requests, self.events, strict=True)]
        self.first = np.array([e.fills[0][0] for e in self.events])
        self.last = np.array([last_batch(e) for e in self.events])
        self.busy = np.ones(len(start.schedule), bool)
        """Batches that process something: a window may come out with fewer."""
        self.proven = np.zeros(len(start.schedule), np.int64)
        """Where the window ends that begins in a batch and is known to be the best; 0 for none."""

    def sweep(self, random: np.random.Generator, until: Callable[[], bool]) -> Iterator[None]:
        """Solve windows that hold a fill or an eviction, one behind the other, from a random one on."""
        found = {t for e in self.events for t in (*(t for t, _ in e.fills), *e.evictions)}
        marks = np.roll(sorted(found), -int(random.integers(len(found)))).tolist()
        share = float(random.random())
        low = high = -1
        for mark in marks:
            if until():
                return
            if low <= mark < high:
                continue
            part = self._around(mark, share)
            low, high = (part.low, part.high) if part else (mark, mark + 1)
            if part and self.proven[max(0, low - _LENGTHS[-1]) : low + 1].max() < high:
                self.solve(part, random, until)
                yield

    def solve(self, part: Part, random: np.random.Generator, until: Callable[[], bool]) -> None:
        """Solve a window, unless a simple bound says that it is the best."""
        present = replay_between(part.instance, part.present, part.boundary, self.cost)
        if part.least_ticks(self.cost) >= present.makespan_ticks:
            self.tally.settled += 1
            self.proven[part.low] = part.high
            return
        control = Control(time.monotonic() + _LIMIT_S, 1, int(random.integers(2**31)), StopWhen(until))
        found, proven = solve_between(part.instance, present, part.boundary, self.cost, control)
        gain = present.makespan_ticks - found.makespan_ticks
        self.tally.solved += 1
        self.tally.proven += proven
        if gain:
            self.tally.improved += 1
            self.tally.gained_ticks += gain
            self.gained_ticks += gain
            near = self.proven[max(0, part.low - _LENGTHS[-1]) : part.high]
            near[near > part.low] = 0
            self._put(part, found)
        if proven:
            self.tally.longest = max(self.tally.longest, len(part.batches))
            self.proven[part.low] = max(self.proven[part.low], part.high)
        if proven or not until():
            limit = self.tally.variables * (_EASY if proven else _HARD)
            self.tally.variables = min(_MOST, max(_LEAST, limit))

    def _around(self, anchor: int, share: float) -> Part | None:
        """The longest window whose program is small enough, with the anchor after that share of it."""
        found = None
        for length in _LENGTHS:
            low = max(0, anchor - int(share * length))
            part = self._part(low, min(low + length, len(self.busy)))
            if part is None or part.variables > self.tally.variables:
                break
            found = part
        return found

    def _part(self, low: int, high: int) -> Part | None:
        """A window as an instance of its own; None if nobody generates a token there."""
        batches = (low + np.flatnonzero(self.busy[low:high])).tolist()
        near = np.flatnonzero((self.first < high) & (self.last >= low)).tolist()
        ends = {i: (self._standing(i, low), self._standing(i, high)) for i in near}
        return part_of(self.instance, self.events, self.trails, ends, batches, low, high,
                       spread=not self.cost.additive)  # fmt: skip

    def _standing(self, i: int, t: int) -> Standing:
        return standing(self.instance.requests[i], self.events[i], self.trails[i], t)

    def _put(self, part: Part, found: Replay) -> None:
        """Write a window's new batches into the events."""
        for i in part.requests:
            cut(self.events[i], part.low, part.high)
        for t, record in zip(part.batches, found.records, strict=False):
            for entry in record.entries:
                events = self.events[part.requests[entry.request]]
                if entry.kind == DECODE:
                    events.decodes.append((t, t + 1))
                else:
                    events.fills.append((t, entry.tokens))
            for i, _ in record.preempted:
                self.events[part.requests[i]].evictions.append(t)
        for i in part.requests:
            tidy(self.events[i])
            self.trails[i] = trail_of(self.instance.requests[i], self.events[i])
            self.first[i], self.last[i] = self.events[i].fills[0][0], last_batch(self.events[i])
        self.busy[part.batches[len(found.records) :]] = False

    def replayed(self) -> Replay:
        """The whole schedule as it is now."""
        made = replay(self.instance, write(self.events, len(self.busy)), cost=self.cost)
        if made.makespan_ticks != self.makespan_ticks - self.gained_ticks:
            raise AssertionError("windows gain something else than the whole schedule")
        return made


def last_batch(events: Events) -> int:
    """Batch of a request's last token."""
    return max([events.fills[-1][0], *(stop - 1 for _, stop in events.decodes[-1:])])


def cut(events: Events, low: int, high: int) -> None:
    """Take out what happens from batch low to batch high - 1."""
    events.fills = [(t, tokens) for t, tokens in events.fills if not low <= t < high]
    events.evictions = [t for t in events.evictions if not low <= t < high]
    before = [(start, min(stop, low)) for start, stop in events.decodes if start < low]
    after = [(max(start, high), stop) for start, stop in events.decodes if stop > high]
    events.decodes = before + after


def tidy(events: Events) -> None:
    """Sort, and join stretches of decode steps that follow each other."""
    events.fills.sort()
    events.evictions.sort()
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(events.decodes):
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, stop))
    events.decodes = joined
