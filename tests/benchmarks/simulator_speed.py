"""How fast the simulator is: CPU seconds of one thread, with loading, replay, metrics and writing counted apart.

    python tests/benchmarks/simulator_speed.py [--trace FILE] [--quick] [--plots DIR] [--json FILE]

The trace is the Azure 2023 conversation hour (19,366 requests, AzureLLMInferenceTrace_conv.csv), trimmed to
I + O <= 4,096. It is looked for beside the repository; without it the shipped excerpt of 200 requests stands in. There
is nothing to compile. Figures are the least of several runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bounds.table import format_table
from sim.cost.model import load_cost_model
from sim.engine import Simulation
from sim.events import compact_runs
from sim.instance import Instance, Request
from sim.metrics import measure
from sim.replay import ENGINE_RULES, replay
from sim.runs import RunBatches
from sim.schedule import Schedule
from sim.schedulers import make_scheduler
from sim.tables import requests_table, table_bytes
from sim.timeline import timeline_json
from sim.workload import TraceOptions, instance_from_trace

FULL_TRACE = Path(__file__).resolve().parents[2] / "../shared/data/traces/AzureLLMInferenceTrace_conv.csv"
OPTIONS = TraceOptions(118_784, 4096, max_tokens=4096)
SCHEDULERS = [
    "vllm",
    "sarathi",
    "vllm_srf",
    "sarathi_srf",
    "vllm_pf",
    "vllm_hy",
    "sarathi_nocp",
    "vllm-v1-0.33",
    "vllm-v0",
]
T = TypeVar("T")


def cpu_seconds(work: Callable[[], T], repeats: int = 1) -> tuple[T, float]:
    """The work's result and the least CPU time it took."""
    least = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        least = min(least, time.process_time() - start)
    return result, least


def simulation_seconds(instance: Instance, name: str, repeats: int) -> tuple[RunBatches, float]:
    """The compact schedule, and the time to make it: the simulation itself."""
    cost = load_cost_model(instance.cost_model)

    def work() -> RunBatches:
        runs = compact_runs(make_scheduler(name, instance), instance, cost)
        assert runs is not None
        return RunBatches(runs)

    return cpu_seconds(work, repeats)


def row(label: str, instance: Instance, name: str, repeats: int) -> list[Any]:
    """One line of the speed table."""
    batches, simulation = simulation_seconds(instance, name, repeats)
    result, replaying = cpu_seconds(
        lambda: replay(instance, Schedule(batches), rules=ENGINE_RULES, complete=False), repeats
    )
    run = Simulation(name, result, (), ())
    _, measuring = cpu_seconds(lambda: measure(run))
    _, table = cpu_seconds(lambda: table_bytes(requests_table(run), "t.parquet"))
    _, timeline = cpu_seconds(lambda: timeline_json([run]))
    return [label, name, len(instance.requests), len(batches), len(batches.runs), sum(result.preemptions), simulation,
            replaying, measuring, table, timeline]  # fmt: skip


def growth(repeats: int) -> dict[str, list[tuple[int, float, int]]]:
    """Time of the simulation itself against requests, output length and M: (value, seconds, batches)."""

    def point(instance: Instance, name: str) -> tuple[float, int]:
        batches, seconds = simulation_seconds(instance, name, repeats)
        return seconds, len(batches)

    base = Instance(tuple(Request(128, 128) for _ in range(1024)), 100_000)
    found: dict[str, list[tuple[int, float, int]]] = {}
    for name in ("vllm", "sarathi"):
        found[f"requests, {name}"] = [
            (n, *point(base.replace(requests=base.requests[:1] * n), name)) for n in (256, 1024, 4096, 16384)
        ]
        found[f"output tokens, {name}"] = [
            (o, *point(base.replace(requests=(replace(base.requests[0], output_tokens=o),) * 1024), name))
            for o in (32, 128, 512, 2048, 3500)
        ]
        found[f"M, {name}"] = [
            (m, *point(base.replace(kv_capacity_tokens=m), name)) for m in (1_000, 10_000, 100_000, 1_000_000)
        ]
    return found


def plot(found: dict[str, list[tuple[int, float, int]]], folder: Path) -> Path:
    """The growth figures: one panel per quantity."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), constrained_layout=True)
    titles = {"requests": "requests (128, 128), M = 100,000", "output tokens": "O; 1,024 x (128, O), M = 100,000",
              "M": "M; 1,024 x (128, 128)"}  # fmt: skip
    for axes, (quantity, title) in zip(panels, titles.items(), strict=True):
        for name, colour, marker in (("vllm", "#0072B2", "o"), ("sarathi", "#D55E00", "s")):
            points = found[f"{quantity}, {name}"]
            axes.loglog([v for v, _, _ in points], [s for _, s, _ in points], color=colour, marker=marker, label=name)
        axes.set_xlabel(title)
        axes.set_ylabel("CPU seconds")
        axes.grid(True, which="both", alpha=0.25)
        axes.legend()
    path = folder / "simulator_growth.png"
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", default=str(FULL_TRACE) if FULL_TRACE.exists() else "azure-conv-200")
    parser.add_argument("--quick", action="store_true", help="vllm and sarathi only, one repeat, no growth")
    parser.add_argument("--plots", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    repeats = 1 if args.quick else 3
    trace, loading = cpu_seconds(lambda: instance_from_trace(args.trace, OPTIONS))
    offline = Instance(tuple(Request(128, 128) for _ in range(1024)), 100_000)
    rows = []
    for label, instance in (("azure hour" if len(trace.requests) > 1000 else "azure excerpt", trace),
                            ("1024 x (128,128)", offline)):  # fmt: skip
        for name in SCHEDULERS[: 2 if args.quick else None]:
            rows.append(row(label, instance, name, repeats))
    header = ["workload", "scheduler", "requests", "batches", "runs", "preempt.", "simulation", "replay", "metrics",
              "table", "timeline"]  # fmt: skip
    print(f"CPU seconds, one thread; loading {args.trace}: {loading:.3f}; compilation: none")
    print(format_table(header, rows))
    found = {} if args.quick else growth(repeats)
    if found:
        print()
        print(format_table(["growth with", "value", "CPU s", "batches"],
                           [[what, *point] for what, points in found.items() for point in points]))  # fmt: skip
    if args.plots and found:
        args.plots.mkdir(parents=True, exist_ok=True)
        print(plot(found, args.plots))
    if args.json:
        args.json.write_text(
            json.dumps({"loading_s": loading, "header": header, "rows": rows, "growth": found}, indent=1)
        )


if __name__ == "__main__":
    main()
