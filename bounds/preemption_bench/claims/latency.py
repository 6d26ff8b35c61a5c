"""Time to first token of urgent requests with and without preemption."""

from __future__ import annotations

from itertools import pairwise

from bounds.preemption_bench.claims import (
    ALWAYS_PREEMPT,
    DIRECTION,
    NOT,
    REPRODUCED,
    UNDECIDED,
    Claim,
    Evidence,
    show,
    untested,
)  # fmt: skip
from bounds.preemption_bench.statistics import interval
from sim.clock import TICKS_PER_MS
from sim.cost.model import load_cost_model
from sim.interrupts import constants

POSITION = 1
ORIGINAL_MS = {"long_decode_tail": 998, "kv_pressure_urgent": 747, "high_resume_prob": 417}
WITH_PREEMPTION_MS = 12
FIGURE = "urgent_ttft_p95_ms"


def claims(evidence: Evidence) -> list[Claim]:
    """Per workload, and the order of the workloads."""
    return [*(_workload(evidence, name) for name in ORIGINAL_MS), _order(evidence)]


def _workload(evidence: Evidence, workload: str) -> Claim:
    results = evidence.results
    statement = f"{workload}: urgent p95 TTFT falls from no preemption to any preemption"
    original = f"{ORIGINAL_MS[workload]} ms to < {WITH_PREEMPTION_MS} ms"
    if not results.has([*ALWAYS_PREEMPT, "no_preemption"], [workload]):
        return untested(statement, original)
    without = results.mean("no_preemption", FIGURE, [workload])
    with_means = [m.mean for p in ALWAYS_PREEMPT if (m := results.mean(p, FIGURE, [workload])) is not None]
    savings = [results.difference("no_preemption", p, FIGURE, [workload]) for p in ALWAYS_PREEMPT]
    ours = f"{show(without)} to {min(with_means):.3g}-{max(with_means):.3g} ms"
    if all(s is not None and s.positive for s in savings):
        verdict = REPRODUCED if max(with_means) < WITH_PREEMPTION_MS else DIRECTION
    else:
        verdict = NOT if any(s is not None and s.negative for s in savings) else UNDECIDED
    cost = load_cost_model(evidence.cost_model)
    longest = constants.prefill_ticks(cost, constants.TOKEN_BUDGET) / TICKS_PER_MS
    floor = results.mean("no_preemption", "urgent_ttft_p95_floor_ms", [workload])
    why = (f"a batch is never cut: the one under way may prefill {constants.TOKEN_BUDGET} tokens ({longest:.0f} ms); "
           f"own prefill alone: {show(floor)} ms at p95")  # fmt: skip
    return Claim(statement, original, ours, verdict, "" if verdict == REPRODUCED else why)


def _order(evidence: Evidence) -> Claim:
    results, order = evidence.results, list(ORIGINAL_MS)
    statement = "Without preemption urgent p95 TTFT is longest in long_decode_tail, then kv_pressure_urgent"
    original = " > ".join(f"{ORIGINAL_MS[w]}" for w in order) + " ms"
    if not results.has(["no_preemption"], order):
        return untested(statement, original)
    values = [results.per_seed("no_preemption", FIGURE, [w]) for w in order]
    means = [show(results.mean("no_preemption", FIGURE, [w])) for w in order]
    steps = [interval(a - b for a, b in zip(x, y, strict=True) if a is not None and b is not None)
             for x, y in pairwise(values)]  # fmt: skip
    if all(s is not None and s.positive for s in steps):
        verdict = REPRODUCED
    else:
        verdict = NOT if any(s is not None and s.negative for s in steps) else UNDECIDED
    why = "the wait is for the next free slot: it depends on the load, the number of slots and the outputs' lengths"
    return Claim(statement, original, ", ".join(means) + " ms", verdict, "" if verdict == REPRODUCED else why)
