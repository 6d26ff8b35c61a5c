"""Simulations as tables for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from bounds.table import format_table
from sim.engine import Simulation
from sim.metrics import Distribution, Metrics


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scheduler's run under one what-if (None: the workload as it is), measured."""

    run: Simulation
    what_if: str | None
    metrics: Metrics

    @property
    def label(self) -> str:
        """Scheduler and what-if."""
        return self.run.scheduler if self.what_if is None else f"{self.run.scheduler} [{self.what_if}]"

    @property
    def title(self) -> str:
        """The label, marked where the times are those of a part of the requests."""
        return self.label + (f" (stalled: {len(self.run.stalled)})" if self.run.stalled else "")


def report(outcomes: list[Outcome]) -> str:
    """All tables."""
    tables = [_runs(outcomes), _latencies(outcomes), _use(outcomes)]
    if any(len(o.metrics.by_priority) > 1 for o in outcomes):
        tables.append(_priorities(outcomes))
    return "\n\n".join(tables)


def _runs(outcomes: list[Outcome]) -> str:
    header = ["scheduler", "makespan ms", "batches", "preempt.", "refilled", "recompute %", "TTFT ms", "TPOT ms",
              "req/s", "out tok/s"]  # fmt: skip
    rows = []
    for o in outcomes:
        m, s = o.metrics, o.metrics.summary
        makespan = None if o.run.stalled else s.makespan_ms
        rows.append([o.title, makespan, s.batches, s.preemptions, s.refilled_tokens, _percent(m.recompute_share),
                     s.ttft_mean_ms, s.tpot_mean_ms, m.requests_per_s, m.output_tokens_per_s])  # fmt: skip
    return format_table(header, rows)


def _latencies(outcomes: list[Outcome]) -> str:
    rows = []
    for o in outcomes:
        every = o.metrics.latencies
        figures = {"TTFT": every.ttft, "TPOT": every.tpot, "ITL": o.metrics.itl, "E2E": every.e2e}
        rows += [[o.title, name, *_values(found)] for name, found in figures.items()]
    return format_table(["scheduler", "latency (ms)", "mean", "p50", "p95", "p99", "max"], rows)


def _use(outcomes: list[Outcome]) -> str:
    header = ["scheduler", "batch size", "max", "tokens/batch", "KV %", "max KV %", "busy %", "goodput/s", "good %",
              "Jain", "max slowdown", "overtaken %"]  # fmt: skip
    rows = []
    for o in outcomes:
        m = o.metrics
        rows.append([o.title, m.batch_requests_mean, m.batch_requests_max, m.batch_tokens_mean,
                     _percent(m.kv_mean_share), _percent(m.kv_max_share), _percent(m.busy_share),
                     m.good_requests_per_s, _percent(m.latencies.good_share), m.slowdown_jain, m.slowdown_max,
                     _percent(m.order_inversions)])  # fmt: skip
    return format_table(header, rows)


def _priorities(outcomes: list[Outcome]) -> str:
    header = ["scheduler", "priority", "requests", "completed", "TTFT ms", "p99", "TPOT ms", "p99", "E2E ms", "p99",
              "good %"]  # fmt: skip
    rows = []
    for o in outcomes:
        for priority, m in o.metrics.by_priority.items():
            ends = [x for found in (m.ttft, m.tpot, m.e2e) for x in (found and found.mean, found and found.p99)]
            rows.append([o.title, priority, m.requests, m.completed, *ends, _percent(m.good_share)])
    return format_table(header, rows)


def _values(found: Distribution | None) -> list[float | None]:
    return [None] * 5 if found is None else [found.mean, found.p50, found.p95, found.p99, found.max]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def left_out_texts(outcome: Outcome) -> list[str]:
    """A line for the requests that can never fit, and one for those that were never finished."""
    run, texts = outcome.run, []
    ids = run.replay.instance.ids
    for what, who in (("can never fit in memory", run.infeasible), ("never finished", run.stalled)):
        if who:
            named = ", ".join(ids[i] for i in who[:5]) + (", ..." if len(who) > 5 else "")
            why = f" ({run.why_stalled})" if what == "never finished" else ""
            texts.append(f"{outcome.label}: {len(who)} of {len(ids)} requests {what}: {named}{why}")
    return texts


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    """The JSON form: the key figures that every comparison has, then all metrics."""
    run, metrics = outcome.run, asdict(outcome.metrics)
    key = metrics.pop("summary")
    metrics["by_priority"] = {str(p): m for p, m in metrics["by_priority"].items()}

    def named(who: Iterable[int]) -> list[str]:
        return [run.replay.instance.ids[i] for i in who]

    return {"name": run.scheduler, "what_if": outcome.what_if, **key, "infeasible": named(run.infeasible),
            "stalled": named(run.stalled), "metrics": metrics}  # fmt: skip
