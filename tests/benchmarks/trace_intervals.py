"""Real traces: the interval the optimum lies in, each scheduler's certified distance from it, and the time it took.

    python tests/benchmarks/trace_intervals.py [--only TEXT] [--time-limit S] [--until-gap G] [--schedulers A,B]
                                               [--traces DIR] [--markdown FILE]

Windows of the first 500, 1,000 and 2,000 requests offline (all there from the start; makespan), and whole traces online
at 1x and 4x their rate (makespan, mean completion, mean TTFT). Traces are looked for beside the repository; the shipped
excerpts stand in for those that are missing. Requests that can never fit are left out. Half an hour of one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bounds.compare import DEFAULT_SCHEDULERS, Comparison
from bounds.interval import find_interval
from bounds.table import format_table
from sim.clock import ms_from_ticks
from sim.workload import TraceOptions, instance_from_trace

TRACES = Path(__file__).resolve().parents[2] / "../shared/data/traces"
FILES = {
    "azure-conv": ("AzureLLMInferenceTrace_conv.csv", "azure-conv-2000"),
    "servegen-chat": ("servegen_chat_15rps.csv", "servegen-chat-15rps"),
    "servegen-reason": ("servegen_reason_2rps.csv", "servegen-reason-2rps"),
}
SCHEDULERS = (*DEFAULT_SCHEDULERS, "lookahead")
TOKEN_BUDGET = {"azure-conv": 4096, "servegen-chat": 4096, "servegen-reason": 32_768}
"""Requests of more tokens have their prompts trimmed; reasoning is long, and a preempted request is refilled whole."""

LEAST_BUDGET = 4096
"""The schedulers' own; those that do not chunk need as much as the longest request."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table."""

    trace: str
    objective: str
    kv_capacity: int
    first: int | None = None
    rate_scale: float | None = None
    """None: offline."""

    @property
    def name(self) -> str:
        """For the table and --only."""
        how = "offline" if self.rate_scale is None else f"online {self.rate_scale:g}x"
        return f"{self.trace} {how} {self.first or 'all'} M={self.kv_capacity} {self.objective}"


def cases() -> Iterator[Case]:
    """Everything that is measured."""
    for trace in FILES:
        for first in (500, 1000, 2000):
            if trace == "servegen-reason" and first == 2000:
                continue
            for kv_capacity in (20_000, 50_000, 100_000):
                yield Case(trace, "makespan", kv_capacity, first)
        for rate in (1.0, 4.0):
            for objective in ("makespan", "mean_completion", "mean_ttft"):
                yield Case(trace, objective, 100_000, None, rate)


def run(case: Case, folder: Path, time_limit_s: float, until_gap: float, names: list[str]) -> tuple[Comparison, float]:
    """The interval of a case and the seconds it took, reading the trace included."""
    file, excerpt = FILES[case.trace]
    path = folder / file
    budget = TOKEN_BUDGET[case.trace]
    began = time.monotonic()
    options = TraceOptions(case.kv_capacity, budget, first=case.first, rate_scale=case.rate_scale or 1.0,
                           max_tokens=budget, offline=case.rate_scale is None)  # fmt: skip
    instance = instance_from_trace(path if path.exists() else excerpt, options)
    too_large = set(instance.infeasible())
    if too_large:
        instance = instance.replace(requests=tuple(r for i, r in enumerate(instance.requests) if i not in too_large))
    if budget > LEAST_BUDGET:
        names = [f"{name}:token_budget={budget}" if name.startswith("vllm") else name for name in names]
    left = time_limit_s - (time.monotonic() - began)
    found = find_interval(instance, names, objective=case.objective, time_limit_s=left, until_gap=until_gap)
    return found, time.monotonic() - began


def line(case: Case, found: Comparison, took_s: float) -> list[str]:
    """A row of the table; distances are certified: how much longer than any schedule's lower bound."""
    result = found.result
    assert result.objective_ticks is not None and result.lower_bound_ticks is not None and result.gap is not None
    distances = [f"{name}: {gap:.1%}" for name, gap in ((r.simulation.scheduler, r.gap) for r in found.rows)
                 if gap is not None]  # fmt: skip
    how = "offline" if case.rate_scale is None else f"online {case.rate_scale:g}x"
    return [
        case.trace, how, f"{len(found.instance.requests):,}", f"{case.kv_capacity:,}", case.objective,
        _seconds(result.lower_bound_ticks), _seconds(result.objective_ticks), f"{result.gap:.2%}",
        str(result.lower_bound_source), str(result.found_by), f"{took_s:.0f}", ", ".join(distances),
    ]  # fmt: skip


def _seconds(ticks: int | Fraction) -> str:
    return f"{ms_from_ticks(ticks) / 1000:,.3f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name contains this, e.g. 'azure-conv offline'")
    parser.add_argument("--time-limit", type=float, default=120.0)
    parser.add_argument("--until-gap", type=float, default=0.0)
    parser.add_argument("--schedulers", default=",".join(SCHEDULERS))
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    header = ["trace", "arrivals", "requests", "M", "objective", "lower s", "best s", "gap", "lower bound", "found by",
              "took s", "schedulers' distance"]  # fmt: skip
    rows = []
    for case in cases():
        if args.only not in case.name:
            continue
        found, took_s = run(case, args.traces, args.time_limit, args.until_gap, args.schedulers.split(","))
        rows.append(line(case, found, took_s))
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print(format_table(header, rows))
    if args.markdown is not None:
        lines = [header, ["---"] * len(header), *rows]
        args.markdown.write_text("\n".join("| " + " | ".join(row) + " |" for row in lines) + "\n")


if __name__ == "__main__":
    main()
