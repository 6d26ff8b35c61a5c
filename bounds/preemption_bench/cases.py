"""One case of the benchmark: a policy on a workload with a seed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from bounds.preemption_bench.floors import max_ttft_floor_ticks, ttft_floors_ticks
from sim.clock import TICKS_PER_MS
from sim.cost.model import load_cost_model
from sim.interrupts import constants
from sim.interrupts.run import measure, run_policy
from sim.interrupts.workload import draw


@dataclass(frozen=True, slots=True)
class Case:
    """What is run.

    Parameters
    ----------
    requests
        How many; the workload's own number by default.
    """

    workload: str
    policy: str
    seed: int
    cost_model: str = constants.COST_MODEL
    requests: int | None = None

    @property
    def key(self) -> str:
        """Name of its file."""
        return f"{self.workload}--{self.policy}--{self.seed}"

    def run(self) -> list[dict[str, Any]]:
        """Simulate and measure; one flat row: the case, its outcome, each class's outcome by prefix, and the floors."""
        drawn = draw(self.workload, self.seed, requests=self.requests, cost_model=self.cost_model)
        outcome = measure(run_policy(drawn, self.policy))
        row: dict[str, Any] = {"workload": self.workload, "policy": self.policy, "seed": self.seed}
        row |= {f.name: getattr(outcome, f.name) for f in dataclasses.fields(outcome) if f.name != "classes"}
        count = outcome.interrupts
        row["overhead_ms"] = outcome.overhead_ms
        row["overhead_per_interrupt_ms"] = outcome.overhead_ms / count if count else None
        row["prompt_only_per_interrupt_ms"] = outcome.prompt_only_ms / count if outcome.recomputes else None
        for service, figures in zip(constants.CLASSES, outcome.classes, strict=True):
            row |= {f"{service.name}_{key}": value for key, value in dataclasses.asdict(figures).items()}
        cost = load_cost_model(self.cost_model)
        floors = sorted(ttft_floors_ticks(drawn.instance, cost))
        highest = max_ttft_floor_ticks(drawn.instance, cost)
        row["urgent_ttft_p95_floor_ms"] = floors[-(-len(floors) * 95 // 100) - 1] / TICKS_PER_MS if floors else None
        row["urgent_ttft_max_floor_ms"] = None if highest is None else highest / TICKS_PER_MS
        return [row]
