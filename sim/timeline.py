"""Timelines as Chrome-trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Per scheduler two groups of tracks: the machine (batches, with runs of equal batches as one slice, and counters of KV
tokens and requests in the batch) and the requests (queued, prefill, refill, decode, hold; a marker where one is
preempted). A decode slice lasts as long as the request is among the decoders, prefill-only batches included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sim.clock import TICKS_PER_NS
from sim.cost.runs import stretch_ticks
from sim.engine import Simulation
from sim.run_log import RunRecord, run_log, schedule_runs
from sim.runs import Run

Event = dict[str, Any]


def timeline_json(runs: Sequence[Simulation]) -> str:
    """The trace of one or several runs, an event per line."""
    lines = ",\n".join(json.dumps(e, separators=(",", ":")) for k, run in enumerate(runs) for e in timeline(run, k))
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'


def timeline(run: Simulation, number: int = 0) -> Iterator[Event]:
    """The trace events of a run.

    Parameters
    ----------
    number
        Of the run in a trace of several; gives its tracks their own process ids.
    """
    machine, requests = 2 * number + 1, 2 * number + 2
    yield _name(machine, f"{run.scheduler}: machine")
    yield _name(requests, f"{run.scheduler}: requests")
    yield _name(machine, "batches", thread=0)
    replay = run.replay
    for i, label in enumerate(replay.instance.ids):
        r = replay.instance.requests[i]
        yield _name(requests, f"{label} ({r.input_tokens} in, {r.output_tokens} out)", thread=i)
    tracks = _Requests(run, requests)
    for step, record in zip(schedule_runs(replay), run_log(replay).records, strict=True):
        end = _end(record)
        yield _batch(machine, record, end)
        yield from _counters(machine, record, end)
        yield from tracks.events(step, record, end)
    yield from tracks.rest()


class _Requests:
    """What each request is doing, and since when (ticks)."""

    def __init__(self, run: Simulation, process: int) -> None:
        self.process = process
        left_out = set(run.infeasible)
        requests = run.replay.instance.requests
        self.doing: dict[int, tuple[str, int]] = {
            i: ("queued", r.arrival_ns * TICKS_PER_NS) for i, r in enumerate(requests) if i not in left_out
        }
        self.ready: set[int] = set()
        self.end = 0

    def events(self, step: Run, record: RunRecord, end: int) -> Iterator[Event]:
        """Slices that this run ends."""
        start = record.start_ticks
        for i in step.left:
            # Whoever completed has been closed already; whoever is held back waits with its KVs.
            if i in self.doing and i not in step.preempt:
                yield from self._turn(i, "hold", start)
        for i, kv in record.preempted:
            yield {"name": "preempted", "ph": "i", "s": "t", "pid": self.process, "tid": i, "ts": _us(start),
                   "args": {"dropped KV tokens": kv}}  # fmt: skip
            yield from self._turn(i, "queued", start)
        for _, i in step.joined:
            yield from self._turn(i, "decode", start)
        for entry in record.fills:
            yield from self._turn(entry.request, entry.kind, start)
            if entry.generates:
                yield from self._turn(entry.request, "hold", end)
        for i in record.completed:
            yield from self._turn(i, None, end)
        self.end = end

    def _turn(self, i: int, to: str | None, at: int) -> Iterator[Event]:
        what, since = self.doing.pop(i)
        if what == to:
            self.doing[i] = (what, since)
            return
        if at > since:
            yield {"name": what, "cat": what, "ph": "X", "pid": self.process, "tid": i, "ts": _us(since),
                   "dur": _us(at - since)}  # fmt: skip
        if to is not None:
            self.doing[i] = (to, at)

    def rest(self) -> Iterator[Event]:
        """Slices of those that never finish."""
        for i in list(self.doing):
            yield from self._turn(i, None, self.end)


def _batch(process: int, record: RunRecord, end: int) -> Event:
    f = record.features
    kind = "mixed" if f.n_prefill and f.n_decode else "prefill" if f.n_prefill else "decode" if f.n_decode else "empty"
    times = f" x{record.repeat}" if record.repeat > 1 else ""
    arguments = {"first batch": record.first_batch, "batches": record.repeat, "prefills": f.n_prefill,
                 "decode steps": f.n_decode, "tokens per batch": f.tokens}  # fmt: skip
    return {"name": kind + times, "cat": kind, "ph": "X", "pid": process, "tid": 0, "ts": _us(record.start_ticks),
            "dur": _us(end - record.start_ticks), "args": arguments}  # fmt: skip


def _counters(process: int, record: RunRecord, end: int) -> Iterator[Event]:
    f, last = record.features, record.kv_tokens + (record.repeat - 1) * record.features.tokens
    yield _counter(process, "KV tokens", record.start_ticks, record.kv_tokens)
    if record.repeat > 1:
        yield _counter(process, "KV tokens", end - record.stretches[-1][1], last)
    yield _counter(process, "requests in batch", record.start_ticks, f.n_prefill + f.n_decode)


def _counter(process: int, name: str, ticks: int, value: int) -> Event:
    return {"name": name, "ph": "C", "pid": process, "ts": _us(ticks), "args": {name: value}}


def _name(process: int, name: str, thread: int | None = None) -> Event:
    event: Event = {"ph": "M", "pid": process, "name": "process_name" if thread is None else "thread_name"}
    if thread is not None:
        event["tid"] = thread
    return event | {"args": {"name": name}}


def _end(record: RunRecord) -> int:
    return record.start_ticks + sum(stretch_ticks(*stretch) for stretch in record.stretches)


def _us(ticks: int) -> float:
    """Microseconds, as the format wants."""
    return ticks / (1000 * TICKS_PER_NS)
