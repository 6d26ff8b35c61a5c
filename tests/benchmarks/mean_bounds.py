"""Mean completion by load: `volume`, `crowding` and the best tuned service on a trace at several times its rate.

    python tests/benchmarks/mean_bounds.py [--trace servegen-chat] [--rates 0.25,0.5,1] [--seconds S] [--traces DIR]

CPU seconds per service. Traces are looked for as in `trace_intervals`.
"""

from __future__ import annotations

import argparse
import sys
import time
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bounds.lower import iter_bounds
from bounds.table import format_table
from bounds.upper import tuned
from csp.objectives import load_objective
from sim.clock import ms_from_ticks
from sim.cost.model import load_cost_model
from sim.replay import replay
from sim.workload import TraceOptions, instance_from_trace
from tests.benchmarks.trace_intervals import FILES, TOKEN_BUDGET, TRACES

OBJECTIVE = "mean_completion"


def row(trace: str, folder: Path, rate: float, seconds: float) -> list[str]:
    """Rate, both bounds and the best service in seconds, and the gap in percent."""
    file, excerpt = FILES[trace]
    budget = TOKEN_BUDGET[trace]
    options = TraceOptions(100_000, budget, rate_scale=rate, max_tokens=budget)
    instance = instance_from_trace(folder / file if (folder / file).exists() else excerpt, options)
    cost = load_cost_model(instance.cost_model)
    lower = {b.name: b.value_ticks for b in iter_bounds(instance, cost, objective=OBJECTIVE)}
    until = time.process_time() + seconds
    found = tuned.schedules(instance, cost, OBJECTIVE, lambda: time.process_time() > until, float("inf"))
    objective = load_objective(OBJECTIVE)
    best = min(objective.value(replay(instance, schedule, cost=cost), cost) for schedule, _ in found)
    gap = float(100 * (1 - Fraction(max(lower.values())) / Fraction(best)))
    shown = [f"{ms_from_ticks(x) / 1000:.3f}" for x in (lower["volume"], lower["crowding"], best)]
    return [f"{rate:g}", *shown, f"{gap:.1f}"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", choices=FILES, default="servegen-chat")
    parser.add_argument("--rates", default="0.25,0.5,0.75,1,2,4")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--traces", type=Path, default=TRACES)
    args = parser.parse_args()
    rows = [row(args.trace, args.traces, float(rate), args.seconds) for rate in args.rates.split(",")]
    print(format_table(["rate", "volume s", "crowding s", "best s", "gap %"], rows))


if __name__ == "__main__":
    main()
