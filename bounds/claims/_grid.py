"""Offline grids of identical requests: one measured cell, shared by the claims of sections 5.4 to 5.7."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from bounds.claims import Row, times
from bounds.lower import QUICK, all_bounds
from bounds.lower._systems import decode_path_ticks
from sim.clock import TICKS_PER_MS
from sim.cost import load_cost_model
from sim.cost.model import CostModel
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.metrics import summary
from sim.replay import Replay, replay

REQUESTS = 1024
PUBLISHED = "linear/llama2-7b-a100"
BOUND_SECONDS = 10.0
PLAN_SECONDS = {"plan": 1.0, "all": 10.0}
BASES = ("vllm", "vllm-v0")
"""Schedulers beside which a cell computes what belongs to the instance, so that it is computed once."""

Bounds = Literal["quick", "plan", "all"]


def measure_cell(
    scheduler: str,
    inputs: int,
    outputs: int,
    kv_capacity: int,
    cost_model: str = PUBLISHED,
    *,
    bounds: Bounds = "quick",
) -> list[Row]:
    """Run one scheduler on 1,024 identical requests.

    Parameters
    ----------
    bounds
        "quick" for the bounds that take milliseconds, "plan" for a search for a quicker schedule and bounds on TTFT and
        TPOT beside them, "all" for every bound with ten seconds at most each.
    """
    requests = (Request(inputs, outputs),) * REQUESTS
    instance = Instance(requests, kv_capacity, cost_model=cost_model)
    if instance.infeasible():
        return []
    run = simulate(instance, scheduler)
    s = summary(run)
    lower, source = lower_bound(instance, "all" if bounds == "all" else "quick")
    return [{
        "scheduler": scheduler, "I": inputs, "O": outputs, "M": kv_capacity, "cost_model": cost_model,
        "makespan_ms": s.makespan_ms, "ttft_ms": s.ttft_mean_ms, "tpot_ms": s.tpot_mean_ms,
        "tpot_restart_ms": restart_tpot_ms(run.replay), "preemptions": s.preemptions,
        "refilled_tokens": s.refilled_tokens, "batches": s.batches, **use(run.replay), "lower_bound_ms": lower,
        "lower_bound_source": source, "stalled": len(run.stalled), **_of_instance(instance, bounds),
    }]  # fmt: skip


def bounds_for(effort: str, scheduler: str) -> Bounds:
    """What a cell computes besides the run: more once per instance, beside vLLM, and most in a full run."""
    if scheduler not in BASES:
        return "quick"
    return "all" if effort == "full" else "plan"


def _of_instance(instance: Instance, bounds: Bounds) -> Row:
    """Best schedule found and bounds on mean TTFT and TPOT."""
    if bounds == "quick":
        return {}
    cost = load_cost_model(instance.cost_model)
    first_token = all_bounds(instance, cost, objective="mean_ttft", time_limit_s=BOUND_SECONDS)
    return {
        "plan_ms": plan_ms(instance, cost, PLAN_SECONDS[bounds]),
        "ttft_bound_ms": first_token[0].value_ms if first_token else None,
        "tpot_bound_ms": tpot_bound_ms(instance.requests[0], cost),
    }


@lru_cache(maxsize=8)
def lower_bound(instance: Instance, bounds: str) -> tuple[float, str]:
    """The best lower bound on the makespan and its name."""
    cost = load_cost_model(instance.cost_model)
    found = all_bounds(instance, cost, only=QUICK if bounds == "quick" else None, time_limit_s=BOUND_SECONDS)
    return found[0].value_ms, found[0].name


def plan_ms(instance: Instance, cost: CostModel, seconds: float) -> float | None:
    """Makespan of the best plan found within a time (`bounds.upper`), replayed; None if there is none."""
    from bounds.upper.staggered import best_plan

    until = time.perf_counter() + seconds
    found = best_plan(instance, cost, "makespan", lambda: time.perf_counter() > until)
    return None if found is None else replay(instance, found[1].schedule(), cost=cost).makespan_ms


def tpot_bound_ms(request: Request, cost: CostModel) -> float | None:
    """Least mean TPOT of a request under any schedule; None for O = 1."""
    steps = request.output_tokens - 1
    return decode_path_ticks(request, cost) / steps / TICKS_PER_MS if steps else None


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


def index(rows: Sequence[Row]) -> dict[tuple[str, int, int, int], Row]:
    """Rows of one cost model by (scheduler, I, O, M)."""
    return {(r["scheduler"], r["I"], r["O"], r["M"]): r for r in rows}


def _instances(rows: Sequence[Row], by: Sequence[str]) -> list[list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in by), []).append(row)
    return list(found.values())


def best_known(rows: Sequence[Row], x: str) -> tuple[list[float], list[float], list[float]]:
    """For a figure: values of column ``x``, the best makespan known there and the strongest lower bound, in seconds."""
    cells = sorted(_instances(rows, (x,)), key=lambda cell: float(cell[0][x]))
    known = [
        min(r[key] for r in cell for key in ("makespan_ms", "plan_ms") if r.get(key) is not None) for cell in cells
    ]
    lower = [max(r["lower_bound_ms"] for r in cell) for cell in cells]
    return [float(cell[0][x]) for cell in cells], [v / 1000 for v in known], [v / 1000 for v in lower]


def left_on_table(rows: Sequence[Row], *, by: Sequence[str] = ("I", "O", "M"), name: str = "scheduler") -> str:
    """Makespan that schedulers lose for certain, and at most; rows of one cost model.

    Parameters
    ----------
    by
        Columns that tell instances apart.
    name
        Column that names the scheduler or policy.

    Raises
    ------
    RuntimeError
        If a schedule is quicker than the lower bound.
    """
    losses: dict[str, list[tuple[float, float]]] = {}
    gaps = []
    for cell in _instances(rows, by):
        plans = [r["plan_ms"] for r in cell if r.get("plan_ms") is not None]
        known = min([*plans, *(r["makespan_ms"] for r in cell)])
        lower = max(r["lower_bound_ms"] for r in cell if r["lower_bound_ms"] is not None)
        if known < lower * (1 - 1e-12):
            raise RuntimeError(f"a schedule of {known} ms is quicker than the lower bound {lower}: {cell[0]}")
        gaps.append(1 - lower / known)
        for r in cell:
            losses.setdefault(r[name], []).append((1 - known / r["makespan_ms"], 1 - lower / r["makespan_ms"]))
    worst = ", ".join(
        f"{who} {max(pairs)[0]:.1%} / {max(most for _, most in pairs):.1%}" for who, pairs in losses.items()
    )
    return (f"makespan lost for certain / at most, each in its worst case: {worst}; best known schedule within {max(gaps):.1%} "
            f"of the optimum, in the median {np.median(gaps):.1%}, over {len(gaps)} cases")  # fmt: skip


def left_in(rows: Sequence[Row], key: str, *, by: Sequence[str] = ("I", "O", "M"), name: str = "scheduler") -> str:
    """How many times the least possible mean TTFT ("ttft"), TPOT ("tpot") or latency ("e2e") each has, at most."""
    ratios: dict[str, list[float]] = {}
    for cell in _instances(rows, by):
        least = max((r[f"{key}_bound_ms"] for r in cell if r.get(f"{key}_bound_ms")), default=None)
        for r in cell if least else ():
            if r[f"{key}_ms"] is not None:
                ratios.setdefault(r[name], []).append(r[f"{key}_ms"] / least)
    each = ", ".join(
        f"{who} {times(max(values))} (median {times(float(np.median(values)))})" for who, values in ratios.items()
    )
    alone = " (a request alone on the machine)" if key == "tpot" else ""
    return f"mean {key.upper()} over its lower bound{alone}, at most: {each}"
