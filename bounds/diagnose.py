"""Questions engineers ask about a slow service, answered with certified numbers.

Everything is measured on one scheduler, run on the workload; the certificate is the lower bound that holds for every
schedule: what it leaves is the most that any change of scheduler, victim rule or limit can save.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from bounds.interval import find_interval
from bounds.lower import QUICK, all_bounds
from csp.result import Bound
from sim.clock import ms_from_ticks
from sim.cost.model import CostModel, load_cost_model
from sim.engine import Simulation, simulate
from sim.errors import InputError, StoppedError
from sim.instance import SCHEMA_VERSION, Instance
from sim.metrics import Metrics, measure
from sim.preemption import __name__ as VICTIMS
from sim.registry import names
from sim.schedulers import make_scheduler, parse_name
from sim.whatif import parse_what_if

RESERVATIONS = ("_pf", "_lookahead", "_ratio")
WATERMARKS = ("_watermark", ":watermark=0.01", ":watermark=0.05")
SWAPPER = "sarathi_cs"
"""Stands in for schedulers that cannot swap."""
WHAT_IFS = ("kv=2", "bandwidth=2", "compute=2")
SEARCH_S, _SEARCH_SHARE = 60.0, 0.6
"""For bounds and good schedules: without a time limit, and as a share of one."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The scheduler with one thing changed.

    Parameters
    ----------
    makespan_ms
        None where it does not finish.
    above
        At most this fraction above the optimum (of the unchanged workload's rules and limits).
    """

    what: str
    group: str
    makespan_ms: float | None
    preemptions: int
    recompute_ms: float
    above: float | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"what": self.what, "group": self.group, "makespan_ms": self.makespan_ms,
                "preemptions": self.preemptions, "recompute_ms": self.recompute_ms,
                "above_optimum_at_most": self.above}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """The workload on other hardware.

    Parameters
    ----------
    makespan_ms
        Of the same scheduler there.
    lower_bound_ms
        Below which no scheduler can get there.
    faster_at_most
        Fraction of the present makespan that any scheduler could save there.
    """

    what: str
    makespan_ms: float | None
    lower_bound_ms: float
    faster_at_most: float | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"what": self.what, "makespan_ms": self.makespan_ms, "lower_bound_ms": self.lower_bound_ms,
                "faster_at_most": self.faster_at_most}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Swap:
    """A scheduler that recomputes what it preempts, and the same one swapping it to host memory and back."""

    scheduler: str
    recompute_ms: float
    swap_ms: float
    preemptions: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"scheduler": self.scheduler, "recompute_makespan_ms": self.recompute_ms,
                "swap_makespan_ms": self.swap_ms, "preemptions": self.preemptions}  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """All answers for one workload and scheduler; times in ms."""

    instance: Instance
    scheduler: str
    infeasible: tuple[str, ...]
    stalled: int
    metrics: Metrics
    makespan_ms: float
    lower_bound: Bound
    best_ms: float
    best_by: str
    variants: tuple[Variant, ...]
    what_ifs: tuple[WhatIfAnswer, ...]
    swap: Swap | None
    skipped: tuple[str, ...] = ()
    """What was not simulated because time was over."""
    runtime_s: float = field(compare=False, default=0.0)

    @property
    def most_to_save(self) -> float | None:
        """Fraction of the makespan that no change of scheduling can exceed; None where requests are never finished."""
        return None if self.stalled else max(0.0, 1 - self.lower_bound.value_ms / self.makespan_ms)

    def best(self, group: str) -> Variant | None:
        """The variant of a group nearest the optimum."""
        finished = [v for v in self.variants if v.group == group and v.makespan_ms is not None]
        return min(finished, key=lambda v: v.makespan_ms or 0.0, default=None)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "schema_version": SCHEMA_VERSION, "scheduler": self.scheduler, "requests": len(self.instance.requests),
            "infeasible": list(self.infeasible), "stalled": self.stalled, "makespan_ms": self.makespan_ms,
            "preemptions": self.metrics.summary.preemptions, "recompute_ms": self.metrics.recompute_ms,
            "lower_bound_ms": self.lower_bound.value_ms, "lower_bound_source": self.lower_bound.name,
            "best_schedule_ms": self.best_ms, "best_schedule_by": self.best_by,
            "scheduling_can_save_at_most": self.most_to_save,
            "variants": [v.to_dict() for v in self.variants], "what_ifs": [w.to_dict() for w in self.what_ifs],
            "swap": None if self.swap is None else self.swap.to_dict(), "skipped": list(self.skipped),
            "runtime_s": self.runtime_s,
        }  # fmt: skip


def diagnose(
    instance: Instance,
    scheduler: str = "vllm-v1-0.33",
    *,
    time_limit_s: float | None = None,
    tell: Callable[[str], None] = lambda text: None,
    stop: threading.Event | None = None,
) -> Diagnosis:
    """Answer all questions for a workload; requests that can never fit are reported and left out.

    Parameters
    ----------
    scheduler
        The one in use; victim rules, reservations and limits are varied around it.
    time_limit_s
        After which, or once ``stop`` is set, no more is simulated; the scheduler itself always is. None: a minute for
        the search for bounds and good schedules, and as long as it takes for the rest.
    tell
        Called with a line of progress.

    Raises
    ------
    sim.errors.InputError
        If the scheduler is unknown or no request can ever fit.
    """
    began = time.monotonic()
    parse_name(scheduler)
    infeasible = set(instance.infeasible())
    if len(infeasible) == len(instance.requests):
        raise InputError("no request can ever fit in kv_capacity_tokens", field="requests")
    left_out = tuple(instance.ids[i] for i in sorted(infeasible))
    kept = tuple(r for i, r in enumerate(instance.requests) if i not in infeasible)
    served = instance.replace(requests=tuple(replace(r, id=None) for r in kept)) if infeasible else instance
    cost = load_cost_model(served.cost_model)
    tell(f"simulating {scheduler}")
    base = simulate(served, scheduler, cost=cost)
    metrics = measure(base, cost=cost)
    tell("searching for bounds and good schedules")
    seconds = SEARCH_S if time_limit_s is None else _SEARCH_SHARE * time_limit_s
    comparison = find_interval(served, [scheduler], time_limit_s=seconds, cost=cost, stop=stop)
    result = comparison.result
    lower = max(comparison.result.bounds, key=lambda bound: bound.value_ticks)
    best = ms_from_ticks(result.objective_ticks) if result.objective_ticks is not None else base.replay.makespan_ms
    left_s = math.inf if time_limit_s is None else (1 - _SEARCH_SHARE) * time_limit_s
    trials = _Trials(time.monotonic() + left_s, stop or threading.Event(), tell)
    variants = tuple(_variants(served, scheduler, cost, lower, trials))
    what_ifs = tuple(_what_ifs(served, scheduler, base, trials))
    swap = _swap(served, scheduler, cost, trials)
    return Diagnosis(
        served, scheduler, left_out, len(base.stalled), metrics, base.replay.makespan_ms, lower, best,
        result.found_by or scheduler, variants, what_ifs, swap, tuple(trials.skipped), time.monotonic() - began,
    )  # fmt: skip


@dataclass
class _Trials:
    """Simulations while there is time."""

    deadline: float
    stop: threading.Event
    tell: Callable[[str], None]
    skipped: list[str] = field(default_factory=list)

    def over(self) -> bool:
        """Whether to simulate no more."""
        return self.stop.is_set() or time.monotonic() >= self.deadline

    def run(self, what: str, instance: Instance, scheduler: str, cost: CostModel) -> Simulation | None:
        """None, and noted, if time is over before it is done."""
        if not self.over():
            self.tell(f"simulating {what}")
            try:
                return simulate(instance, scheduler, cost=cost, until=self.over)
            except StoppedError:
                pass
        self.skipped.append(what)
        return None


def _variants(
    served: Instance, scheduler: str, cost: CostModel, lower: Bound, trials: _Trials
) -> Iterable[Variant]:  # fmt: skip
    """Victim rules, reservations and caps on the number of sequences, one change at a time."""
    words = {"victim rule": tuple(f"_{word}" for word in names(VICTIMS)), "reservation": RESERVATIONS,
             "watermark": WATERMARKS}  # fmt: skip
    changes = [(group, name, name, served) for group, endings in words.items()
               for name in (scheduler + ending for ending in endings) if _works(name, served)]  # fmt: skip
    most = min(len(served.requests), served.max_num_seqs or math.inf)
    changes += [("max_num_seqs", f"max_num_seqs = {cap}", scheduler, served.replace(max_num_seqs=cap))
                for cap in (8, 16, 32, 64, 128, 256) if cap < most]  # fmt: skip
    for group, what, name, instance in changes:
        run = trials.run(what, instance, name, cost)
        if run is not None:
            yield _variant(run, what, group, cost, lower)


def _works(name: str, instance: Instance) -> bool:
    try:
        make_scheduler(name, instance)
    except InputError:
        return False
    return True


def _variant(run: Simulation, what: str, group: str, cost: CostModel, lower: Bound) -> Variant:
    metrics = measure(run, cost=cost)
    if run.stalled:
        return Variant(what, group, None, metrics.summary.preemptions, metrics.recompute_ms, None)
    makespan = run.replay.makespan_ms
    above = makespan / lower.value_ms - 1 if lower.value_ms else None
    return Variant(what, group, makespan, metrics.summary.preemptions, metrics.recompute_ms, above)


def _what_ifs(
    served: Instance, scheduler: str, base: Simulation, trials: _Trials
) -> Iterable[WhatIfAnswer]:  # fmt: skip
    for text in WHAT_IFS:
        instance, cost = parse_what_if(text).apply(served)
        run = trials.run(f"what if {text}", instance, scheduler, cost)
        lower = all_bounds(instance, cost, only=[name for name in QUICK if name != "sequences"])[0]
        makespan = None if run is None or run.stalled else run.replay.makespan_ms
        most = None if base.stalled else max(0.0, 1 - lower.value_ms / base.replay.makespan_ms)
        yield WhatIfAnswer(text, makespan, lower.value_ms, most)


def _swap(served: Instance, scheduler: str, cost: CostModel, trials: _Trials) -> Swap | None:
    """Victims' KVs swapped to host memory instead; None where the link of the hardware is not known."""
    plain = scheduler if _works(f"{scheduler}_swap", served) else SWAPPER
    if not _works(f"{plain}_swap", served):
        return None
    try:
        swapping = trials.run(f"{plain}_swap", served, f"{plain}_swap", cost)
    except InputError:
        return None
    recomputing = None if swapping is None else trials.run(plain, served, plain, cost)
    if swapping is None or recomputing is None or swapping.stalled or recomputing.stalled:
        return None
    return Swap(plain, recomputing.replay.makespan_ms, swapping.replay.makespan_ms,
                sum(recomputing.replay.preemptions))  # fmt: skip
