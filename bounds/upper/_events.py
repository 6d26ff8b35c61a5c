"""What each request does in a schedule, as its events: fills, stretches of decode steps, evictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sim.instance import Instance
from sim.replay import DECODE, Replay
from sim.runs import Run, RunBatches, RunBuilder
from sim.schedule import Schedule


@dataclass(slots=True)
class Events:
    """One request's.

    Attributes
    ----------
    fills
        (batch, tokens).
    decodes
        (first batch, batch after the last) of stretches of decode steps.
    evictions
        Batches.
    """

    fills: list[tuple[int, int]] = field(default_factory=list)
    decodes: list[tuple[int, int]] = field(default_factory=list)
    evictions: list[int] = field(default_factory=list)


def read(replay: Replay) -> list[Events]:
    """Events of each request, in order of batch."""
    events = [Events() for _ in replay.instance.requests]
    running: dict[int, int] = {}
    t = 0
    decoding = True
    for run in runs_of(replay):
        for i in run.left:
            start = running.pop(i)
            if start < t:
                events[i].decodes.append((start, t))
        for _, i in run.joined:
            running[i] = t
        if run.decode != decoding:
            decoding = run.decode
            for i, start in running.items():
                if not decoding and start < t:
                    events[i].decodes.append((start, t))
        if not decoding:
            running = dict.fromkeys(running, t + run.repeat)
        for i in run.preempt:
            events[i].evictions.append(t)
        for u in range(t, t + run.repeat):
            for i, tokens in run.fills:
                events[i].fills.append((u, tokens))
        t += run.repeat
    for i, start in running.items():
        if start < t:
            events[i].decodes.append((start, t))
    return events


def runs_of(replay: Replay) -> Sequence[Run]:
    """The schedule as runs of equal batches."""
    batches = replay.schedule.batches
    if isinstance(batches, RunBatches):
        return batches.runs
    builder = RunBuilder()
    for batch, record in zip(batches, replay.records, strict=True):
        builder.add(batch, [entry.request for entry in record.entries if entry.kind == DECODE])
    return builder.runs


def write(events: Iterable[Events], batches: int) -> Schedule:
    """The compact schedule of events; what processes nothing is left out, evictions then happen later."""
    cuts = {0, batches}
    fills: dict[int, list[tuple[int, int]]] = defaultdict(list)
    joins: dict[int, list[int]] = defaultdict(list)
    leaves: dict[int, list[int]] = defaultdict(list)
    evictions: dict[int, list[int]] = defaultdict(list)
    for i, event in enumerate(events):
        for t, tokens in event.fills:
            fills[t].append((i, tokens))
            cuts |= {t, t + 1}
        for start, stop in event.decodes:
            joins[start].append(i)
            leaves[stop].append(i)
            cuts |= {start, stop}
        for t in event.evictions:
            evictions[t].append(i)
            cuts |= {t, t + 1}
    runs: list[Run] = []
    running = 0
    left: list[int] = []
    evicted: list[int] = []
    for t, following in pairwise(sorted(cuts)):
        left += leaves[t]
        evicted += evictions[t]
        running -= len(leaves[t])
        joined = tuple((running + place, i) for place, i in enumerate(joins[t]))
        running += len(joined)
        if running or fills[t]:
            runs.append(Run(following - t, running > 0, tuple(left), joined, tuple(fills[t]),
                            preempt=tuple(evicted)))  # fmt: skip
            left, evicted = [], []
    return Schedule(RunBatches(runs))


def occupied(events: Events, instance: Instance, i: int, batches: int) -> npt.NDArray[np.int64]:
    """Blocks of a request after each batch."""
    request = instance.requests[i]
    kv = np.zeros(batches + 1, np.int64)
    for t, tokens in events.fills:
        kv[t] += tokens
    for start, stop in events.decodes:
        kv[start:stop] += 1
    ends = [*events.evictions, _last(events) + 1]
    began = 0
    for end in ends:
        kv[began:end] = np.cumsum(kv[began:end])
        began = end
    assert kv.max() <= request.peak_kv_tokens + 1
    return -(-kv[:batches] // instance.block_size)


def _last(events: Events) -> int:
    """Batch of the last token."""
    return max([t for t, _ in events.fills[-1:]] + [stop - 1 for _, stop in events.decodes[-1:]])
