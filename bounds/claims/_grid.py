"""Offline grids of identical requests: one measured cell, shared by the claims of sections 5.4 to 5.7."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bounds.claims import Row
from bounds.lower import QUICK, all_bounds
from sim.clock import TICKS_PER_MS
from sim.cost import load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.metrics import summary
from sim.replay import Replay

REQUESTS = 1024
PUBLISHED = "linear/llama2-7b-a100"
BOUND_SECONDS = 10.0


def measure_cell(
    scheduler: str, inputs: int, outputs: int, kv_capacity: int, cost_model: str = PUBLISHED, *, bounds: str = "quick"
) -> list[Row]:
    """Run one scheduler on 1,024 identical requests.

    Parameters
    ----------
    bounds
        "quick" for the bounds that take milliseconds, "all" for every bound with ten seconds at most each.
    """
    requests = (Request(inputs, outputs),) * REQUESTS
    instance = Instance(requests, kv_capacity, cost_model=cost_model)
    if instance.infeasible():
        return []
    run = simulate(instance, scheduler)
    s = summary(run)
    lower, source = lower_bound(instance, bounds)
    return [{
        "scheduler": scheduler, "I": inputs, "O": outputs, "M": kv_capacity, "cost_model": cost_model,
        "makespan_ms": s.makespan_ms, "ttft_ms": s.ttft_mean_ms, "tpot_ms": s.tpot_mean_ms,
        "tpot_restart_ms": restart_tpot_ms(run.replay), "preemptions": s.preemptions,
        "refilled_tokens": s.refilled_tokens, "batches": s.batches, **use(run.replay), "lower_bound_ms": lower,
        "lower_bound_source": source, "stalled": len(run.stalled),
    }]  # fmt: skip


def bounds_for(effort: str, scheduler: str) -> str:
    """Which bounds a cell computes: all of them once per instance, beside vLLM, in a full run; else the quick ones."""
    return "all" if effort == "full" and scheduler == "vllm" else "quick"


@lru_cache(maxsize=8)
def lower_bound(instance: Instance, bounds: str) -> tuple[float, str]:
    """The best lower bound on the makespan and its name."""
    cost = load_cost_model(instance.cost_model)
    found = all_bounds(instance, cost, only=QUICK if bounds == "quick" else None, time_limit_s=BOUND_SECONDS)
    return found[0].value_ms, found[0].name


def use(replay: Replay) -> dict[str, float]:
    """Mean batch size and mean share of KV memory in use, over batches."""
    capacity = replay.instance.kv_capacity_tokens
    if replay.log is not None:
        parts = [(r.repeat, r.features.n_prefill + r.features.n_decode,
                  r.kv_tokens + r.features.tokens * (r.repeat - 1) / 2) for r in replay.log.records]  # fmt: skip
    else:
        parts = [(1, len(r.entries), float(r.kv_tokens)) for r in replay.records]
    weight, size, kv = (np.array(column, float) for column in zip(*parts, strict=True))
    return {"batch_size": float(size @ weight / weight.sum()), "kv_use": float(kv @ weight / weight.sum()) / capacity}


def restart_tpot_ms(replay: Replay) -> float | None:
    """TPOT as the authors' simulator counts it: divided by the tokens left after the last restart.

    A request that was preempted is charged its whole time since the first token but credited only with the tokens it
    decodes after its last refill, so the figure grows with preemptions beyond what a user sees.
    """
    left = [r.output_tokens - 1 for r in replay.instance.requests]
    fills: Iterable[Any] = (
        (entry for record in replay.log.records for entry in record.fills)
        if replay.log is not None
        else (entry for record in replay.records for entry in record.entries)
    )
    for entry in fills:
        if entry.kind == "refill" and entry.generates:
            request = replay.instance.requests[entry.request]
            left[entry.request] = request.output_tokens - (entry.kv_before + entry.tokens - request.input_tokens) - 1
    values = [(last - first) / (TICKS_PER_MS * tokens)
              for first, last, tokens in zip(replay.first_token_ticks, replay.completed_ticks, left, strict=True)
              if first is not None and last is not None and tokens > 0]  # fmt: skip
    return float(np.mean(values)) if values else None


def index(rows: Sequence[Row]) -> dict[tuple[str, int, int, int, str], Row]:
    """Rows by (scheduler, I, O, M, cost model)."""
    return {(r["scheduler"], r["I"], r["O"], r["M"], r["cost_model"]): r for r in rows}


def left_on_table(rows: Sequence[Row]) -> str:
    """How far the best scheduler of every cell is from the lower bound, at most, per cost model."""
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["cost_model"], row["I"], row["O"], row["M"]), []).append(row)
    parts = []
    for cost_model in dict.fromkeys(key[0] for key in cells):
        gaps = []
        for key, found in cells.items():
            if key[0] == cost_model:
                best = min(r["makespan_ms"] for r in found)
                gaps.append(1 - max(r["lower_bound_ms"] for r in found) / best)
        parts.append(f"{cost_model}: from {min(gaps):.1%} to {max(gaps):.1%} over {len(gaps)} cells")
    return "The best scheduler run here is within the certified gap of the optimum: " + "; ".join(parts) + "."
