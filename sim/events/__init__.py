"""The event engine: from one change to the next instead of token by token, with the same schedules as `sim.engine`.

Between arrivals, completions, evictions and admissions every batch repeats the one before it, and its time grows by a
constant. A step costs what changes in it, not what it holds.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.cost.model import CostModel
from sim.events.decode_first import DecodeFirst
from sim.events.prefill_first import PrefillFirst
from sim.events.stepping import is_steady, stepped_runs
from sim.events.traits import traits_of
from sim.instance import Instance
from sim.replay import ENGINE_RULES, Rules
from sim.runs import Run
from sim.scheduling import Scheduler


def compact_runs(
    scheduler: Scheduler,
    instance: Instance,
    cost: CostModel,
    rules: Rules = ENGINE_RULES,
    until: Callable[[], bool] | None = None,
) -> list[Run] | None:
    """The schedule a fresh scheduler would make, as runs; None if only the step engine can tell.

    Schedulers with known `traits_of` are not run at all, their decisions are made here in `DecodeFirst` or
    `PrefillFirst`, within a moment. Others that say how long their batches stay the same are run batch by batch where
    they change, until ``until()`` says stop.
    """
    traits = traits_of(scheduler, instance)
    if traits is None:
        compact = is_steady(scheduler) and rules.swap is None and not rules.abandon
        return stepped_runs(scheduler, instance, cost, rules, until) if compact else None
    return (DecodeFirst if traits.decode_first else PrefillFirst)(instance, cost, traits).run()
