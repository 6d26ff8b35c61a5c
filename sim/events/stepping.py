"""Any scheduler that says how long its batches stay the same: formed where they change, repeated where they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from sim.cost.model import CostModel, Features
from sim.cost.runs import RunTimer
from sim.instance import Instance
from sim.replay import DECODE, BatchRecord, Rules, State
from sim.runs import Run, RunBuilder
from sim.scheduling import Scheduler, Service


@runtime_checkable
class Steady(Protocol):
    """A scheduler that declares how long its batches stay the same; see `sim.scheduling.Scheduler`."""

    def unchanged_batches(self, state: State) -> int:
        """How often the batch of decode steps just carried out would be formed again."""

    def repeated(self, state: State) -> None:
        """The batch has been carried out more often; bring your own books up to date."""


def is_steady(scheduler: object) -> bool:
    """Whether a scheduler declares it for itself: what a class outside this project inherits may not hold for it."""
    own = type(scheduler).__module__.startswith("sim.schedulers.") or "unchanged_batches" in vars(type(scheduler))
    return own and isinstance(scheduler, Steady) and not getattr(scheduler, "needs_swap", False)


def stepped_runs(
    scheduler: Scheduler, instance: Instance, cost: CostModel, rules: Rules, until: Callable[[], bool] | None = None
) -> list[Run]:
    """The schedule of a scheduler that `is_steady`, as runs; `StoppedError` once ``until()`` is true."""
    assert isinstance(scheduler, Steady)
    state, timer, builder = State(instance, cost, rules), RunTimer(cost), RunBuilder()
    service = Service(scheduler, state, until)
    for batch, record in service.batches():
        decodes = [e.request for e in record.entries if e.kind == DECODE]
        times = 0
        if len(decodes) == len(record.entries) and not (record.preempted or record.completed):
            times = _times(scheduler, state, record, timer, service.next_arrival_ticks)
        if times:
            state.repeat(record, times, timer)
            scheduler.repeated(state)
        builder.add(batch, decodes, 1 + times)
    return builder.runs


def _times(scheduler: Steady, state: State, record: BatchRecord, timer: RunTimer, arrival_ticks: int | None) -> int:
    """How often the batch can be repeated before somebody completes or arrives."""
    requests = [entry.request for entry in record.entries]
    times = min(state.outputs[i] - state.generated[i] for i in requests) - 1
    if times > 0:
        times = min(times, scheduler.unchanged_batches(state))
    if times <= 0 or arrival_ticks is None:
        return max(0, times)
    if arrival_ticks <= state.now_ticks:
        return 0
    n = len(requests)
    first = Features(1, 0, 1, 0, n, n, 0, 0, sum(state.kv[i] for i in requests))
    return timer.batches_until(first, Features(0, 0, 0, 0, 0, 0, 0, 0, n), times, arrival_ticks - state.now_ticks)
