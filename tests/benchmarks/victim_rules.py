"""Which requests to preempt: SRF and every other victim rule against NRF, on offline grids and traces.

    python tests/benchmarks/victim_rules.py [--schedulers A,B] [--kv 100000,50000,20000] [--first N] [--workloads TEXT]
                                            [--traces DIR] [--csv FILE] [--markdown FILE]

Kim et al. (sections 7.4 and 8.1) claim that preempting the shortest request beats preempting the newest, without
regression and without losing fairness. The script prints, per workload, memory size M and scheduler, how SRF does
against NRF, and for every rule how often and by how much it is faster or slower. Traces are looked for beside the
repository; the shipped excerpt of 200 requests stands in for those that are missing. Several minutes of one core.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bounds.table import format_table
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.metrics import measure
from sim.registry import names
from sim.workload import TraceOptions, instance_from_trace

TRACES = Path(__file__).resolve().parents[2] / "../shared/data/traces"
FILES = {
    "azure-conv": "AzureLLMInferenceTrace_conv.csv",
    "servegen-chat": "servegen_chat_15rps.csv",
    "servegen-reason": "servegen_reason_2rps.csv",
    "mooncake": "mooncake_conversation_2000.jsonl",
}
TOKEN_BUDGET = 4096
"""Requests of more tokens are trimmed, or left out where the output alone is longer."""
SAME = 0.005
"""Makespans and latencies closer than this share count as equal."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run; times in seconds, except TPOT in ms."""

    workload: str
    kv_capacity: int
    scheduler: str
    rule: str
    requests: int
    makespan_s: float
    e2e_s: float
    ttft_s: float
    tpot_ms: float
    preemptions: int
    refilled_tokens: int
    recompute_share: float
    jain: float
    slowdown_max: float
    inversions: float


def identical(input_tokens: int, output_tokens: int) -> Callable[[int, int, Path], Instance]:
    """As in the paper's offline grid: equal requests at time zero, at most 1,024."""
    return lambda kv, first, _: Instance((Request(input_tokens, output_tokens),) * min(1024, first), kv, TOKEN_BUDGET)


def mixed(kv: int, first: int, _: Path) -> Instance:
    """512 requests at time zero, inputs and outputs log-uniform from 8 to 2,048 (seed 3)."""
    rng = np.random.default_rng(3)
    lengths = np.exp(rng.uniform(np.log(8), np.log(2048), (min(512, first), 2))).astype(int)
    return Instance(tuple(Request(int(i), int(o)) for i, o in lengths), kv, TOKEN_BUDGET)


def trace(name: str, *, offline: bool = False, output_scale: float = 1.0) -> Callable[[int, int, Path], Instance]:
    """The first requests of a trace, trimmed to the context size of 4,096."""

    def build(kv: int, first: int, folder: Path) -> Instance:
        path = folder / FILES[name]
        options = TraceOptions(kv, TOKEN_BUDGET, first=first, output_scale=output_scale, offline=offline)
        full = instance_from_trace(path if path.exists() else "azure-conv-200", options)
        kept = [Request(min(r.input_tokens, TOKEN_BUDGET - r.output_tokens), r.output_tokens, r.arrival_ns)
                for r in full.requests if r.output_tokens < TOKEN_BUDGET]  # fmt: skip
        return full.replace(requests=tuple(kept))

    return build


WORKLOADS: dict[str, Callable[[int, int, Path], Instance]] = {
    "grid 32-512": identical(32, 512),
    "grid 512-512": identical(512, 512),
    "mixed offline": mixed,
    "azure-conv offline": trace("azure-conv", offline=True),
    "azure-conv": trace("azure-conv"),
    "azure-conv O x2": trace("azure-conv", output_scale=2.0),
    "servegen-chat": trace("servegen-chat"),
    "servegen-reason": trace("servegen-reason"),
    "mooncake": trace("mooncake"),
}


def run(workload: str, instance: Instance, scheduler: str, rule: str) -> Row:
    """Simulate and measure."""
    simulation = simulate(instance, f"{scheduler}_{rule}")
    m = measure(simulation)
    latencies = m.latencies
    assert latencies.ttft is not None and latencies.e2e is not None
    return Row(
        workload, instance.kv_capacity_tokens, scheduler, rule, latencies.completed, m.summary.makespan_ms / 1e3,
        latencies.e2e.mean / 1e3, latencies.ttft.mean / 1e3, m.summary.tpot_mean_ms or 0.0, m.summary.preemptions,
        m.summary.refilled_tokens, m.recompute_share or 0.0, m.slowdown_jain or 1.0, m.slowdown_max or 1.0,
        m.order_inversions or 0.0,
    )  # fmt: skip


Cell = tuple[str, int, str]


def by_cell(rows: Iterable[Row]) -> dict[Cell, dict[str, Row]]:
    """Rows by workload, M and scheduler, then by rule; only where NRF preempts at all."""
    cells: dict[Cell, dict[str, Row]] = {}
    for row in rows:
        cells.setdefault((row.workload, row.kv_capacity, row.scheduler), {})[row.rule] = row
    return {cell: rules for cell, rules in cells.items() if rules["nrf"].preemptions}


def change(new: float, old: float) -> str:
    """Relative change."""
    return f"{new / old - 1:+.1%}" if old else "-"


PAIR_HEADER = ["workload", "M", "scheduler", "makespan s", "SRF", "E2E", "TTFT", "TPOT", "preempt. NRF", "SRF",
               "recompute NRF", "SRF", "Jain NRF", "SRF", "max slowdown NRF", "SRF"]  # fmt: skip


def pair_table(cells: dict[Cell, dict[str, Row]]) -> list[list[object]]:
    """NRF's makespan and how SRF changes every figure."""
    table: list[list[object]] = []
    for (workload, kv, scheduler), rules in cells.items():
        n, s = rules["nrf"], rules["srf"]
        table.append([
            workload, f"{kv:,}", scheduler, f"{n.makespan_s:,.1f}", change(s.makespan_s, n.makespan_s),
            change(s.e2e_s, n.e2e_s), change(s.ttft_s, n.ttft_s), change(s.tpot_ms, n.tpot_ms), f"{n.preemptions:,}",
            f"{s.preemptions:,}", f"{n.recompute_share:.1%}", f"{s.recompute_share:.1%}", f"{n.jain:.2f}",
            f"{s.jain:.2f}", f"{n.slowdown_max:,.0f}", f"{s.slowdown_max:,.0f}",
        ])  # fmt: skip
    return table


RULE_HEADER = ["rule", "cells", "faster", "slower", "median", "best", "worst", "E2E median", "E2E worst",
               "recompute median", "Jain median"]  # fmt: skip


def rule_table(cells: dict[Cell, dict[str, Row]]) -> list[list[object]]:
    """Per rule: cells in which the makespan is shorter or longer than NRF's by more than `SAME`, and by how much."""
    table: list[list[object]] = []
    for rule in sorted({rule for rules in cells.values() for rule in rules}, key=lambda r: (r != "nrf", r != "srf", r)):
        pairs = [(rules[rule], rules["nrf"]) for rules in cells.values() if rule in rules]
        spans = [r.makespan_s / n.makespan_s - 1 for r, n in pairs]
        waits = [r.e2e_s / n.e2e_s - 1 for r, n in pairs]
        table.append([
            rule, len(pairs), sum(x < -SAME for x in spans), sum(x > SAME for x in spans),
            f"{statistics.median(spans):+.1%}", f"{min(spans):+.1%}", f"{max(spans):+.1%}",
            f"{statistics.median(waits):+.1%}", f"{max(waits):+.1%}",
            f"{statistics.median(r.recompute_share for r, _ in pairs):.1%}",
            f"{statistics.median(r.jain for r, _ in pairs):.2f}",
        ])  # fmt: skip
    return table


def markdown(header: list[str], table: list[list[object]]) -> str:
    """A table as docs show it."""
    lines = [header, ["---"] * len(header), *table]
    return "\n".join("| " + " | ".join(str(x) for x in line) + " |" for line in lines) + "\n"


def main() -> None:
    """Run all cells, print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedulers", default="vllm,sarathi_cs", metavar="A,B")
    parser.add_argument("--kv", default="100000,50000,20000", metavar="M,M")
    parser.add_argument("--first", type=int, default=600, metavar="N", help="requests of a workload (default 600)")
    parser.add_argument("--workloads", default="", metavar="TEXT", help="only workloads whose name contains TEXT")
    parser.add_argument("--traces", type=Path, default=TRACES, metavar="DIR")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="every run, one line each")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="both tables")
    args = parser.parse_args()
    rules = [rule for rule in names("sim.preemption") if rule != "lowest_priority"]
    rows: list[Row] = []
    for workload, build in WORKLOADS.items():
        if args.workloads not in workload:
            continue
        for kv in (int(text) for text in args.kv.split(",")):
            instance = build(kv, args.first, args.traces)
            for scheduler in args.schedulers.split(","):
                base = run(workload, instance, scheduler, "nrf")
                rows.append(base)
                if base.preemptions:
                    rows += [run(workload, instance, scheduler, rule) for rule in rules if rule != "nrf"]
                print(f"{workload}, M = {kv:,}, {scheduler}: {base.preemptions:,} preemptions", file=sys.stderr)
    cells = by_cell(rows)
    print(format_table(PAIR_HEADER, pair_table(cells)))
    print()
    print(format_table(RULE_HEADER, rule_table(cells)))
    if args.markdown:
        args.markdown.write_text(
            markdown(PAIR_HEADER, pair_table(cells)) + "\n" + markdown(RULE_HEADER, rule_table(cells))
        )
    if args.csv:
        with args.csv.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(Row.__slots__)
            writer.writerows([getattr(row, name) for name in Row.__slots__] for row in rows)


if __name__ == "__main__":
    main()
