"""Any scheduler that says how long its batches stay the same: formed where they change, repeated where they do not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features
from sim.cost.runs import RunTimer
from sim.errors import StoppedError
from sim.instance import Instance
from sim.replay import DECODE, BatchRecord, Rules, State
from sim.runs import Run, RunBuilder
from sim.scheduling import Livelock, Scheduler


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
    infeasible = set(instance.infeasible())
    arrivals = deque(sorted((i for i in range(len(instance.requests)) if i not in infeasible),
                            key=state.arrival_ticks.__getitem__))  # fmt: skip
    idle_until: int | None = None
    livelock = Livelock()
    while state.unfinished > len(infeasible):
        if until is not None and until():
            raise StoppedError
        now = state.now_ticks if idle_until is None else idle_until * TICKS_PER_NS
        while arrivals and state.arrival_ticks[arrivals[0]] <= now:
            scheduler.add(arrivals.popleft(), state)
        state.release_completed()
        batch = scheduler.form_batch(state)
        if batch is None:
            if not arrivals:
                break
            idle_until = instance.requests[arrivals[0]].arrival_ns
            continue
        if idle_until is not None:
            batch, idle_until = batch.starting(idle_until), None
        record = state.apply(batch)
        scheduler.update(record, state)
        decodes = [e.request for e in record.entries if e.kind == DECODE]
        times = 0
        if len(decodes) == len(record.entries) and not (record.preempted or record.completed):
            times = _times(scheduler, state, record, timer, state.arrival_ticks[arrivals[0]] if arrivals else None)
        if times:
            state.repeat(record, times, timer)
            scheduler.repeated(state)
        builder.add(batch, decodes, 1 + times)
        if livelock.after(record, state) and not arrivals:
            break
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
