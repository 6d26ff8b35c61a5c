"""Window re-optimisation: what it makes of different schedules of the same workload in so many CPU seconds.

    python tests/benchmarks/window_gains.py [--seconds S] [--exact-seconds S] [--only WORD] [--traces DIR]

Traces with the schedules of `bound` are in `trace_intervals.py`; here are those that schedulers leave, with preemption,
and workloads of equal requests. After all kinds of windows have taken turns, exact ones go on alone: how many windows
of the schedule then are proven best between their ends, and what the others gain. Under max-affine cost there are only
exact ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bounds.interval import first_schedule
from bounds.table import format_table
from bounds.upper import cycles
from bounds.upper._exact import Tally, improved_exactly
from bounds.upper.windows import improved
from sim.cost.model import CostModel, load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.replay import Replay, replay
from sim.workload import TraceOptions, instance_from_trace

COSTS = ("linear/llama2-7b-a100", "max-affine/llama2-7b-a100")
STARTS = ("vllm", "vllm_srf", "lookahead", "best plan")
TRACES = Path(__file__).resolve().parents[2] / "../shared/data/traces"
HEADER = ["workload", "cost", "start", "ms", "preemptions", "after, ms", "preemptions", "less by", "CPU s",
          "exact windows", "less by", "exact alone", "less by", "CPU s"]  # fmt: skip


def workloads(traces: Path = TRACES) -> list[tuple[str, Instance, tuple[str, ...], tuple[str, ...]]]:
    """Names, instances, cost models and starts."""
    lengths = np.random.default_rng(0).integers([1, 4], [33, 64], size=(300, 2))
    short = Instance(tuple(Request(int(i), int(o)) for i, o in lengths), 300)
    trace = instance_from_trace("azure-conv-2000", TraceOptions(20_000, 4096, first=500, max_tokens=4096, offline=True))
    found = [
        ("300 x (1-32, 4-63), M = 300", short, COSTS[:1], STARTS),
        ("azure-conv 500, M = 20,000", trace, COSTS, STARTS),
        ("1,024 x (32, 32), M = 1,000", Instance((Request(32, 32),) * 1024, 1000), COSTS[:1], STARTS),
        ("1,024 x (1, 32), M = 100", Instance((Request(1, 32),) * 1024, 100), COSTS[:1], ("vllm", "best cycles")),
    ]
    file = traces / "servegen_reason_2rps.csv"
    options = TraceOptions(20_000, 32_768, first=500, max_tokens=32_768, offline=True)
    reason = instance_from_trace(file if file.exists() else "servegen-reason-2rps", options)
    too_large = set(reason.infeasible())
    reason = reason.replace(requests=tuple(r for i, r in enumerate(reason.requests) if i not in too_large))
    found.append(("servegen-reason 500, M = 20,000", reason, COSTS[:1], STARTS[-1:]))
    for inputs in (1, 32, 1024):
        grid = Instance((Request(inputs, 256),) * 1024, 100_000)
        found.append((f"1,024 x ({inputs:,}, 256), M = 100,000", grid, COSTS[1:], ("vllm", "best plan")))
    return found


def first(instance: Instance, cost: CostModel, start: str) -> Replay:
    """What the windows start from."""
    if not start.startswith("best"):
        return simulate(instance, start, cost=cost).replay
    found = first_schedule(instance, cost, [], [], 10.0).best
    assert found is not None
    if start == "best cycles":
        until = time.monotonic() + 20.0
        for schedule, _ in cycles.schedules(instance, cost, "makespan", lambda: time.monotonic() > until,
                                            found.makespan_ticks):  # fmt: skip
            found = min(found, replay(instance, schedule, cost=cost), key=lambda run: run.makespan_ticks)
    return found


def within(seconds: float) -> Callable[[], bool]:
    """Whether so many CPU seconds are over."""
    until = time.process_time() + seconds
    return lambda: time.process_time() > until


def line(name: str, start: str, before: Replay, cost: CostModel, seconds: float, exact_seconds: float) -> list[str]:
    """A row of the table."""
    tally, alone, began = Tally(), Tally(), time.process_time()
    after = before
    for schedule in improved(before, cost, "makespan", within(seconds), tally=tally):
        after = replay(before.instance, schedule, cost=cost)
    took, began = time.process_time() - began, time.process_time()
    for _ in improved_exactly(after, cost, np.random.default_rng(1), within(exact_seconds), alone):
        pass
    return [
        name, cost.kind, start, f"{before.makespan_ms:,.1f}", str(sum(before.preemptions)),
        f"{after.makespan_ms:,.1f}", str(sum(after.preemptions)),
        f"{1 - after.makespan_ticks / before.makespan_ticks:.2%}", f"{took:.0f}",
        counts(tally), f"{tally.gained_ticks / before.makespan_ticks:.3%}",
        counts(alone), f"{alone.gained_ticks / after.makespan_ticks:.3%}", f"{time.process_time() - began:.0f}",
    ]  # fmt: skip


def counts(tally: Tally) -> str:
    """All, those proven best, those made faster, and batches of the longest one proven by the solver."""
    return f"{tally.total}: {tally.settled + tally.proven} proven, {tally.improved} faster, <= {tally.longest}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--exact-seconds", type=float, default=30.0)
    parser.add_argument("--only", default="", help="workloads, cost models or starts with this in their name")
    parser.add_argument("--traces", type=Path, default=TRACES)
    args = parser.parse_args()
    rows = []
    for name, instance, costs, starts in workloads(args.traces):
        for cost in map(load_cost_model, costs):
            for start in starts:
                if args.only in f"{name} {cost.name} {start}":
                    before = first(instance, cost, start)
                    rows.append(line(name, start, before, cost, args.seconds, args.exact_seconds))
                    print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print(format_table(HEADER, rows))


if __name__ == "__main__":
    main()
