"""The event engine: from one change to the next instead of token by token, with the same schedules as `sim.engine`.

Between arrivals, completions, evictions and admissions every batch repeats the one before it, and its time grows by a
constant. A step costs what changes in it, not what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.cost.model import CostModel
from sim.events.decode_first import DecodeFirst
from sim.events.prefill_first import PrefillFirst
from sim.events.traits import traits_of
from sim.instance import Instance
from sim.runs import Run

if TYPE_CHECKING:
    from sim.engine import Scheduler


def compact_runs(scheduler: Scheduler, instance: Instance, cost: CostModel) -> list[Run] | None:
    """The schedule a fresh scheduler would make, as runs; None if only the step engine can tell."""
    traits = traits_of(scheduler, instance)
    if traits is None:
        return None
    return (DecodeFirst if traits.decode_first else PrefillFirst)(instance, cost, traits).run()
