"""Every policy beside the optimum, on shortened workloads.

Two optima, both proven (`csp.urgent`): least maximum urgent TTFT, then least overhead; first whatever it does to the
rest, then among schedules that end no later than the policy itself (or than the run without preemption, whichever is
later). The first is easy: whoever knows the arrivals keeps the server idle for them. The second is what an operator
could ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bounds.preemption_bench.floors import max_ttft_floor_ticks
from csp.urgent import UrgentOptimum, least_urgent_ttft
from sim.clock import TICKS_PER_MS
from sim.cost.model import load_cost_model
from sim.interrupts import constants
from sim.interrupts.run import measure, run_policy, server_rules
from sim.interrupts.workload import Drawn, draw_short

if TYPE_CHECKING:
    import pandas as pd

MOST_SEEDS = 200
MOST_LABELS = {True: 60_000, False: 500}
"""By whether the cost is additive. Where it is not, no eviction can be left out, each label takes much longer, and the
overhead is left open."""


def contested_seeds(workload: str, count: int, cost_model: str = constants.COST_MODEL) -> list[int]:
    """The first seeds in which an urgent request finds no room: elsewhere all policies do the same."""
    found: list[int] = []
    for seed in range(MOST_SEEDS):
        if len(found) == count:
            break
        drawn = draw_short(workload, seed, cost_model=cost_model)
        urgent = any(r.priority == constants.URGENT for r in drawn.instance.requests)
        if urgent and run_policy(drawn, "oldest_checkpoint").interrupts:
            found.append(seed)
    return found


@dataclass(frozen=True, slots=True)
class OptimumCase:
    """One shortened workload."""

    workload: str
    seed: int
    policies: tuple[str, ...]
    cost_model: str = constants.COST_MODEL

    @property
    def key(self) -> str:
        """Name of its file."""
        return f"{self.workload}--optimum--{self.seed}"

    def run(self) -> list[dict[str, Any]]:
        """One row per policy, with both optima in each; None where the search gave up."""
        drawn = draw_short(self.workload, self.seed, cost_model=self.cost_model)
        baseline = run_policy(drawn, "no_preemption").simulation.replay.makespan_ticks
        free = _columns("optimum", _optimum(drawn, None))
        floor = max_ttft_floor_ticks(drawn.instance, load_cost_model(self.cost_model))
        in_time: dict[int, dict[str, float | None]] = {}
        rows = []
        for policy in self.policies:
            run = run_policy(drawn, policy)
            outcome, limit = measure(run), max(baseline, run.simulation.replay.makespan_ticks)
            if limit not in in_time:
                in_time[limit] = _columns("optimum_in_time", _optimum(drawn, limit))
            row: dict[str, Any] = {"workload": self.workload, "seed": self.seed, "policy": policy}
            row |= {"ttft_ms": outcome.classes[constants.URGENT].ttft_max_ms, "overhead_ms": outcome.overhead_ms,
                    "makespan_ms": outcome.makespan_ms, "interrupts": outcome.interrupts,
                    "floor_ttft_ms": _ms(floor)}  # fmt: skip
            rows.append(row | free | in_time[limit])
        return rows


def _columns(name: str, found: UrgentOptimum | None) -> dict[str, float | None]:
    return {f"{name}_ttft_ms": _ms(None if found is None else found.max_ttft_ticks),
            f"{name}_overhead_ms": _ms(None if found is None else found.overhead_ticks),
            f"{name}_makespan_ms": None if found is None else found.replay.makespan_ms}  # fmt: skip


def _optimum(drawn: Drawn, limit_ticks: int | None) -> UrgentOptimum | None:
    rules = replace(server_rules(constants.swap_link()), allow_empty=False, chunking=False, abandon=False)
    most_labels = MOST_LABELS[load_cost_model(drawn.instance.cost_model).additive]
    return least_urgent_ttft(drawn.instance, rules=rules, makespan_limit_ticks=limit_ticks, most_labels=most_labels)


def _ms(ticks: int | None) -> float | None:
    return None if ticks is None else ticks / TICKS_PER_MS


def optimum_table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """optimum.csv."""
    import pandas as pd

    return pd.DataFrame(rows)


def distance_table(table: pd.DataFrame) -> pd.DataFrame:
    """Per policy over all shortened workloads: mean excess over the optimum in ms, and mean ratio to it."""
    import pandas as pd

    rows = []
    for policy, group in table.groupby("policy", sort=False):
        row: dict[str, Any] = {"policy": policy, "cases": len(group)}
        for name in ("optimum", "optimum_in_time"):
            known = group.dropna(subset=[f"{name}_ttft_ms", "ttft_ms"])
            row[f"ttft_over_{name}"] = (known["ttft_ms"] / known[f"{name}_ttft_ms"]).mean()
            row[f"ttft_above_{name}_ms"] = (known["ttft_ms"] - known[f"{name}_ttft_ms"]).mean()
            row[f"overhead_above_{name}_ms"] = (known["overhead_ms"] - known[f"{name}_overhead_ms"]).mean()
        rows.append(row)
    return pd.DataFrame(rows)
