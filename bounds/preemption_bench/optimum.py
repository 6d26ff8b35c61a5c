"""Every policy beside the optimum, on shortened workloads.

Two optima, both proven (`csp.urgent`): least maximum urgent TTFT, then least overhead; first whatever it does to the
rest, then among schedules that end no later than the run without preemption. The first needs no work: whoever knows the
arrivals keeps the server idle for them. The second is what an operator could ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
MOST_LABELS = 60_000


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


def optimum_rows(
    workload: str, seed: int, policies: Sequence[str], cost_model: str = constants.COST_MODEL
) -> list[dict[str, Any]]:
    """One row per policy of one shortened workload, with both optima in each."""
    drawn = draw_short(workload, seed, cost_model=cost_model)
    baseline = run_policy(drawn, "no_preemption").simulation.replay.makespan_ticks
    free, bounded = _optimum(drawn, None), _optimum(drawn, baseline)
    floor = max_ttft_floor_ticks(drawn.instance, load_cost_model(cost_model))
    common: dict[str, Any] = {"workload": workload, "seed": seed, "floor_ttft_ms": _ms(floor)}
    for name, found in (("optimum", free), ("optimum_in_time", bounded)):
        common |= {f"{name}_ttft_ms": _ms(None if found is None else found.max_ttft_ticks),
                   f"{name}_overhead_ms": _ms(None if found is None else found.overhead_ticks),
                   f"{name}_makespan_ms": None if found is None else found.replay.makespan_ms}  # fmt: skip
    rows = []
    for policy in policies:
        outcome = measure(run_policy(drawn, policy))
        rows.append(common | {"policy": policy, "ttft_ms": outcome.classes[constants.URGENT].ttft_max_ms,
                              "overhead_ms": outcome.overhead_ms, "makespan_ms": outcome.makespan_ms,
                              "interrupts": outcome.interrupts})  # fmt: skip
    return rows


def _optimum(drawn: Drawn, limit_ticks: int | None) -> UrgentOptimum | None:
    rules = replace(server_rules(constants.swap_link()), allow_empty=False, chunking=False, abandon=False)
    return least_urgent_ttft(drawn.instance, rules=rules, makespan_limit_ticks=limit_ticks, most_labels=MOST_LABELS)


def _ms(ticks: int | None) -> float | None:
    return None if ticks is None else ticks / TICKS_PER_MS


def optimum_table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """optimum.csv."""
    import pandas as pd

    first = ["workload", "seed", "policy", "ttft_ms", "optimum_ttft_ms", "optimum_in_time_ttft_ms", "floor_ttft_ms"]
    table = pd.DataFrame(rows)
    return table[[*first, *(column for column in table.columns if column not in first)]] if rows else table


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
