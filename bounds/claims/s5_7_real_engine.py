"""The same on the real engine's scheduler, vLLM 0.6.3 (section 5.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bounds.claims import NOT_TESTABLE, Cell, Effort, Row, Verdict, grade, worst
from bounds.claims._grid import PUBLISHED, index, left_on_table, measure_cell

SECTION = "5.7"
OUTPUTS = 32
INPUTS = {"quick": (4, 32), "full": (1, 4, 16, 20, 32)}
CAPACITIES = {"quick": (100, 1_000), "full": (100, 1_000, 10_000, 100_000)}
SCHEDULER = "vllm-v0"


def cells(effort: Effort) -> Sequence[Cell]:
    """vLLM's own scheduler, as is and preemption-free."""
    return [{"scheduler": s, "inputs": i, "outputs": OUTPUTS, "kv_capacity": m}
            for m in CAPACITIES[effort] for i in INPUTS[effort] for s in (SCHEDULER, f"{SCHEDULER}_pf")]  # fmt: skip


def measure(**cell: Any) -> list[Row]:
    """One scheduler at one capacity."""
    return measure_cell(**cell)


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Largest gain at small M and largest loss at larger M."""
    at = index(rows)
    lengths = sorted({r["I"] for r in rows})
    ratio = {(m, i): at[f"{SCHEDULER}_pf", i, OUTPUTS, m, PUBLISHED]["makespan_ms"]
             / at[SCHEDULER, i, OUTPUTS, m, PUBLISHED]["makespan_ms"]
             for m in sorted({r["M"] for r in rows}) for i in lengths}  # fmt: skip
    small = max(v for (m, _), v in ratio.items() if m <= 1000)
    loss = max(1 / v for (m, _), v in ratio.items() if m > 100)
    return [
        Verdict(
            "On the real engine preempting is up to 2.3x faster at M = 100 and 1K, up to 1.5x slower above", SECTION,
            "2.3x faster, 1.5x slower",
            f"vLLM 0.6.3's scheduler: up to {small:.2f}x faster at M <= 1K, up to {loss:.2f}x slower at M > 100",
            worst([grade(small - 1, 1.3), grade(loss - 1, 0.5)]),
            "The scheduler is reproduced step by step, its batches are timed by the published linear costs instead of a GPU.",
            "The real scheduler shows the same turn: throwing out pays when hardly anything fits, and costs beyond.",
            left_on_table(rows),
        ),
        Verdict(
            "Simulated latencies are within 6 % on average and 12 % at most of the real engine", SECTION, "6 % / 12 %",
            "-", NOT_TESTABLE, "Needs a GPU and the engine.",
            "We cannot measure batch times here; we take the published coefficients and our own fits of public profiles.",
        ),
    ]  # fmt: skip
