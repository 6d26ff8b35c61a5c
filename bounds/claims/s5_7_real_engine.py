"""The same on the real engine's scheduler, vLLM 0.6.3 (section 5.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bounds.claims import NOT_TESTABLE, Cell, Effort, Row, Verdict, across, grade, worst
from bounds.claims._grid import PUBLISHED, bounds_for, left_on_table, measure_cell
from bounds.claims.s5_6_capacity import OUTPUTS, inputs_at, ratios
from sim.clock import TICKS_PER_MS
from sim.cost import load_cost_model
from sim.cost.model import Features

SECTION = "5.7"
CAPACITIES = {"quick": (100, 1_000, 10_000), "full": (100, 1_000, 10_000, 100_000)}
SCHEDULER = "vllm-v0"


def cells(effort: Effort) -> Sequence[Cell]:
    """vLLM's own scheduler, as is and preemption-free, on the lengths of section 5.6, whose instances these are: quick bounds."""
    from bounds.claims._models import beside

    return [{"scheduler": s, "inputs": i, "outputs": OUTPUTS, "kv_capacity": m, "cost_model": c, "bounds": bounds_for("quick", s)}
            for c in beside(PUBLISHED) for m in CAPACITIES[effort] for i in inputs_at(m, effort)
            for s in (SCHEDULER, f"{SCHEDULER}_pf")]  # fmt: skip


def measure(**cell: Any) -> list[Row]:
    """One scheduler at one capacity."""
    return measure_cell(**cell)


def _small_batch_ms(cost_model: str) -> float:
    return load_cost_model(cost_model).batch_ticks(Features(1, 0, 1, 0, 3, 3, 0, 0, 150)) / TICKS_PER_MS


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Largest gain at small M and largest loss at larger M."""
    return across(rows, _judge_one)


def _judge_one(rows: list[Row]) -> list[Verdict]:
    found = {(m, i): ratio for m in sorted({r["M"] for r in rows}) for i, ratio in ratios(rows, SCHEDULER, m).items()}
    gain = max((v, m, i) for (m, i), v in found.items() if m <= 1000)
    loss = max((1 / v, m, i) for (m, i), v in found.items() if m > 1000)
    left = left_on_table(rows)
    return [
        Verdict(
            "On the real engine preempting is up to 2.3x faster at M = 100 and 1K, up to 1.5x slower above", SECTION,
            "2.3x faster, 1.5x slower",
            f"vLLM 0.6.3's scheduler: up to {gain[0]:.2f}x faster (M = {gain[1]:,}, I = {gain[2]}), up to {loss[0]:.2f}x slower "
            f"(M = {loss[1]:,}, I = {loss[2]})",
            worst([grade(gain[0] - 1, 1.3), grade(loss[0] - 1, 0.5)]),
            "The scheduler is reproduced step by step, its batches are timed by a cost model instead of a GPU. How much a "
            f"saved batch is worth decides: a batch of three decode steps takes {_small_batch_ms(PUBLISHED):.1f} ms by the published "
            f"line and {_small_batch_ms('max-affine/llama2-7b-a100'):.1f} ms by the measured profiles (max-affine), so the gain "
            "is larger and the loss smaller there.",
            "The real scheduler shows the same turn: throwing out pays when hardly anything fits, and costs beyond.", left,
        ),
        Verdict(
            "Simulated latencies are within 6 % on average and 12 % at most of the real engine", SECTION, "6 % / 12 %",
            "-", NOT_TESTABLE, "Needs a GPU and the engine.",
            "We cannot measure batch times here; we take the published coefficients and our own fits of public profiles.",
            "Nothing is run here, so there is nothing to bound.",
        ),
    ]  # fmt: skip
