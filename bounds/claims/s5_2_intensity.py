"""Intensity of attention, and which batches are compute-bound (section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bounds.claims import NO_SCHEDULE, NOT_REPRODUCED, REPRODUCED, Cell, Effort, Row, Verdict, grade
from sim.cost.roofline import Slice, attention_intensity, operators
from sim.cost.setups import find_setup

SECTION = "5.2"
_LONG_PREFILL = 4096
_A100 = "llama2-7b-a100"
_BATCHES = {
    "prefill 64": [Slice(64)],
    "prefill 2048": [Slice(2048)],
    "decode x 8 at 1024": [Slice(1, 1024, 8, decode=True)],
    "decode x 512 at 64": [Slice(1, 64, 512, decode=True)],
    "decode x 512 at 4096": [Slice(1, 4096, 512, decode=True)],
}


def cells(effort: Effort) -> Sequence[Cell]:
    """One cell per GPU."""
    return [{"setup": f"llama2-7b-{gpu}"} for gpu in ("a100", "h100")]


def measure(setup: str) -> list[Row]:
    """Intensities in the limit, and time by what binds it for a few batches."""
    found = find_setup(setup)
    rows: list[Row] = [
        {"setup": setup, "what": "intensity", "batch": batch, "value": attention_intensity(found, tokens)}
        for batch, tokens in (("prefill", _LONG_PREFILL), ("decode", 1))
    ]
    for name, slices in _BATCHES.items():
        costs = operators(found, slices)
        total = sum(cost.time_ms for cost in costs)
        compute = sum(cost.time_ms for cost in costs if cost.bound == "compute")
        attention = {cost.bound for cost in costs if "attention" in cost.name}
        rows.append({"setup": setup, "what": "compute share", "batch": name, "value": compute / total,
                     "attention": "/".join(sorted(attention))})  # fmt: skip
    return rows


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Intensity against 128 and 2; attention memory-bound; matmuls of large batches compute-bound."""
    value: dict[tuple[Any, ...], float] = {(r["setup"], r["what"], r["batch"]): r["value"] for r in rows}
    prefill, decode = value[_A100, "intensity", "prefill"], value[_A100, "intensity", "decode"]
    verdict = grade(prefill, 128) if grade(prefill, 128) != REPRODUCED else grade(decode, 2)
    attention = {r["attention"] for r in rows if r["what"] == "compute share" and r["setup"] == _A100}
    shares = {batch: value[_A100, "compute share", batch] for batch in _BATCHES}
    bound = attention == {"memory"} and shares["prefill 2048"] > 0.5 > shares["prefill 64"]
    decodes = shares["decode x 512 at 64"] > 0.5 > shares["decode x 512 at 4096"]
    return [
        Verdict(
            "Attention intensity converges to 128 (prefill) and about 2 (decode) on Llama-2-7B", SECTION,
            "128 and about 2 FLOPs per element", f"{prefill:.1f} and {decode:.2f} FLOPs per element", verdict,
            "Same formula (equations 2 and 3). It counts elements, not bytes: per byte of bf16 it is half.",
            "Attention does few operations per number it reads, so it waits for memory. Prefill attention does 64 times "
            "as many per number as decode attention, yet both stay below what a GPU needs to be busy computing.", NO_SCHEDULE,
        ),
        Verdict(
            "Attention is memory-bound; only matmuls of large enough batches are compute-bound, decode batches too",
            SECTION, "all attention points left of the roofline's turning point; decode batches can be compute-bound",
            "share of time bound by compute on A100: " + ", ".join(f"{b}: {s:.0%}" for b, s in shares.items()),
            REPRODUCED if bound and decodes else NOT_REPRODUCED,
            f"Roofline of data sheets; attention is bound by {', '.join(sorted(attention))} in every batch tried.",
            "A batch becomes compute-bound through its matrix products: many tokens share one load of the weights. Long "
            "contexts undo it, because every decode step has to read all its KVs.", NO_SCHEDULE,
        ),
    ]  # fmt: skip
