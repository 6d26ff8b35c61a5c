"""Window re-optimisation: what it makes of different schedules of the same workload in so many CPU seconds.

    python tests/benchmarks/window_gains.py [--seconds S]

Traces with the schedules of `bound` are in `trace_intervals.py`; here are those that schedulers leave, with preemption,
and workloads of equal requests.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bounds.interval import first_schedule
from bounds.table import format_table
from bounds.upper.windows import improved
from sim.cost.model import load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.replay import Replay, replay
from sim.workload import TraceOptions, instance_from_trace

LINEAR = load_cost_model("linear/llama2-7b-a100")
STARTS = ("vllm", "vllm_srf", "lookahead", "best plan")


def workloads() -> list[tuple[str, Instance]]:
    """Names and instances."""
    lengths = np.random.default_rng(0).integers([1, 4], [33, 64], size=(300, 2))
    short = Instance(tuple(Request(int(i), int(o)) for i, o in lengths), 300)
    trace = instance_from_trace("azure-conv-2000", TraceOptions(20_000, 4096, first=500, max_tokens=4096, offline=True))
    equal = Instance((Request(32, 32),) * 1024, 1000)
    return [("300 x (1-32, 4-63), M = 300", short), ("azure-conv 500, M = 20,000", trace),
            ("1,024 x (32, 32), M = 1,000", equal)]  # fmt: skip


def first(instance: Instance, start: str) -> Replay:
    """What the windows start from."""
    if start in STARTS[:-1]:
        return simulate(instance, start, cost=LINEAR).replay
    found = first_schedule(instance, LINEAR, [], [], 10.0).best
    assert found is not None
    return found


def polish(start: Replay, seconds: float) -> tuple[Replay, float]:
    """The best schedule after so many CPU seconds, and those it took."""
    began = time.process_time()
    best = start
    for schedule in improved(start, LINEAR, "makespan", lambda: time.process_time() - began > seconds):
        best = replay(start.instance, schedule, cost=LINEAR)
    return best, time.process_time() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    header = ["workload", "start", "ms", "preemptions", "after, ms", "preemptions", "less by", "CPU s"]
    rows = []
    for name, instance in workloads():
        for start in STARTS:
            before = first(instance, start)
            after, took = polish(before, args.seconds)
            less = 1 - after.makespan_ticks / before.makespan_ticks
            rows.append([name, start, f"{before.makespan_ms:,.1f}", str(sum(before.preemptions)),
                         f"{after.makespan_ms:,.1f}", str(sum(after.preemptions)), f"{less:.2%}",
                         f"{took:.0f}"])  # fmt: skip
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print(format_table(header, rows))


if __name__ == "__main__":
    main()
