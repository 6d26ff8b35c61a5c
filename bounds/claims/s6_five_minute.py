"""The five-minute rule for KVs: break-even intervals and reuse intervals (section 6)."""

from __future__ import annotations

from collections.abc import Sequence

from bounds.claims import NO_SCHEDULE, NOT_REPRODUCED, REPRODUCED, Cell, Effort, Row, Verdict, across, grade, worst
from bounds.claims._grid import left_on_table, lower_bound
from bounds.five_minute import break_even_s, five_minute, reuses
from sim.cost import load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request

SECTION = "6"
PUBLISHED = "linear/llama2-7b-a100"
KV_CAPACITY = 100_000
SIZES = (1, 4, 16, 64, 256, 1024, 4096)


def cells(effort: Effort) -> Sequence[Cell]:
    """Break-even intervals per cost model; reuse intervals of schedules."""
    count, lengths = (128, (32, 512)) if effort == "quick" else (1024, (32, 256, 1024))
    wanted: list[Cell] = []
    for cost_model in (PUBLISHED, "max-affine/llama2-7b-a100", "roofline/llama2-7b-a100"):
        wanted.append({"what": "break-even", "cost_model": cost_model})
        wanted += [{"what": "reuse", "cost_model": cost_model, "scheduler": s, "inputs": i, "outputs": o, "count": count}
                   for s in ("vllm", "sarathi") for i in lengths for o in lengths]  # fmt: skip
    return wanted


def measure(
    what: str, cost_model: str, scheduler: str = "", inputs: int = 0, outputs: int = 0, count: int = 0
) -> list[Row]:
    """T_break over m, or the reuses of one schedule against it."""
    cost = load_cost_model(cost_model)
    if what == "break-even":
        return [
            {"what": what, "cost_model": cost_model, "m": m, "seconds": break_even_s(cost, m, KV_CAPACITY)}
            for m in SIZES
        ]
    instance = Instance((Request(inputs, outputs),) * count, KV_CAPACITY, cost_model=cost_model)
    run = simulate(instance, scheduler)
    found = five_minute(scheduler, cost, KV_CAPACITY, reuses(run.replay))
    longest = None if found.interval_s is None else found.interval_s[-1]
    return [{"what": what, "cost_model": cost_model, "scheduler": scheduler, "I": inputs, "O": outputs, "M": KV_CAPACITY,
             "reuses": found.count, "past": found.past, "longest_s": longest, "share": found.longest_share,
             "makespan_ms": run.replay.makespan_ms, "stalled": len(run.stalled),
             "lower_bound_ms": lower_bound(instance, "quick")[0]}]  # fmt: skip


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """The interval of break-evens, and whether any reuse came later."""
    return across(rows, _judge_one)


def _judge_one(rows: list[Row]) -> list[Verdict]:
    span = [r["seconds"] for r in rows if r["what"] == "break-even"]
    low, high = min(span), max(span)
    reuse = [r for r in rows if r["what"] == "reuse"]
    past, total = sum(r["past"] for r in reuse), sum(r["reuses"] for r in reuse)
    share = max(r["share"] for r in reuse if r["share"] is not None)
    return [
        Verdict(
            "Break-even intervals for keeping KVs lie in [0.33 s, 130 s] at M = 100K", SECTION, "[0.33, 130] s",
            f"[{low:.2f}, {high:.1f}] s for m in [1, {SIZES[-1]}]",
            worst([grade(low, 0.33), grade(high, 130)]),
            "T_break(m) = t_recompute(m) M / m. The paper's ends do not follow from its published coefficients: by them one "
            f"KV alone takes {high * 1000 / KV_CAPACITY:.2f} ms to recompute, not 1.3 ms, and long fills stay above "
            f"{low:.1f} s.",
            "A KV is worth its place in GPU memory if it is used again within that time. For short requests that is many "
            "minutes, for long ones some seconds.", NO_SCHEDULE,
        ),
        Verdict(
            "All reuse intervals lie below the break-even intervals", SECTION, "all",
            f"{past:,} of {total:,} reuses came later; the longest took {share:.1%} of its break-even",
            REPRODUCED if past == 0 else NOT_REPRODUCED,
            "Reuses of resident KVs, from batch to batch, under vLLM and Sarathi on offline grids.",
            "Running requests use their KVs every batch, so keeping them is right; the rule does not say whom to throw out "
            "when not all fit.", left_on_table(reuse),
        ),
    ]  # fmt: skip
