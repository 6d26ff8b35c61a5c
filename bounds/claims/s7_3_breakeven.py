"""When preempting pays: F_p(x + 1) < F_d(x) (section 7.3)."""

from __future__ import annotations

from collections.abc import Sequence

from bounds.breakeven import breakeven
from bounds.claims import DIRECTION, NO_SCHEDULE, NOT_REPRODUCED, REPRODUCED, Cell, Effort, Row, Verdict
from sim.cost import cost_model_names, load_cost_model

SECTION = "7.3"
PUBLISHED = "linear/llama2-7b-a100"


def cells(effort: Effort) -> Sequence[Cell]:
    """One cell per cost model."""
    return [{"cost_model": name} for name in cost_model_names()]


def measure(cost_model: str) -> list[Row]:
    """Both readings."""
    found = breakeven(load_cost_model(cost_model))
    return [{"cost_model": cost_model, "literal": found.literal.holds, "marginal": found.marginal.holds,
             "marginal_crossover": found.marginal.crossover, "entry_crossover": found.marginal_entry.crossover}]  # fmt: skip


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """The published set's crossover against 47, the others beside it."""
    published = next(r for r in rows if r["cost_model"] == PUBLISHED)
    near = [r for r in rows if r["cost_model"].endswith("/llama2-7b-a100") and r is not published]
    found = {r["cost_model"]: r["marginal_crossover"] for r in rows if r["marginal_crossover"] is not None}
    others = [f"{r['cost_model']}: {r['marginal']} ({_grade(r)})" for r in near]
    if found:
        low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        others.append(f"over all {len(rows)} cost models from {found[low]:.0f} ({low}) to {found[high]:.0f} ({high})")
    verdict = _grade(published)
    return [
        Verdict(
            "Preempting and refilling a request of x tokens pays for x < 47", SECTION, "x < 47",
            f"{PUBLISHED}: literal reading (both whole batches): {published['literal']}; marginal reading: {published['marginal']}"
            + (f", with the charge per prefill entry x < {published['entry_crossover']:.2f}" if verdict != NOT_REPRODUCED else ""),
            verdict,
            "The published coefficients give this crossover exactly; 47 does not follow from them in either reading.",
            "A short request is cheap to throw out and compute again, and doing so can save a whole decode batch. Up to "
            "some forty tokens that trade pays on this setup; where the line is depends on what small batches cost.",
            NO_SCHEDULE + " Exact optima (section 7.2) stop preempting where the marginal reading says.",
            "\n".join(others) or None,
        )
    ]  # fmt: skip


def _grade(row: Row) -> str:
    x = row["marginal_crossover"]
    return NOT_REPRODUCED if x is None else REPRODUCED if abs(x - 47) <= 0.02 * 47 else DIRECTION
