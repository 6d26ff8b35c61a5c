"""KV capacity from 100 to 1M tokens at O = 32: where preemption helps (section 5.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.claims import NOT_REPRODUCED, REPRODUCED, Cell, Effort, Row, Verdict, across, grade, worst
from bounds.claims._grid import PUBLISHED, best_known, bounds_for, index, left_on_table, measure_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTION = "5.6"
OUTPUTS = 32
INPUTS = {"quick": (1, 4, 32), "full": (1, 4, 16, 32, 64, 256)}
DRAWN = (1, 32)
CAPACITIES = {"quick": (100, 1_000, 100_000, 1_000_000), "full": (100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000)}
BOUNDED = (100, 1_000, 1_000_000)
"""Capacities a verdict is about; the others, drawn only, get the quick bounds in a full run too."""
BASES = ("vllm", "sarathi")


def just_past(kv_capacity: int) -> tuple[int, ...]:
    """Least input lengths of which only 1, 2 or 3 requests fit at their peak: there reserving wastes most.

    >>> just_past(100), just_past(1000)
    ((20, 3), (470, 303, 220))
    """
    lengths = (kv_capacity // (fitting + 1) - OUTPUTS + 2 for fitting in (1, 2, 3))
    return tuple(length for length in lengths if length >= 1)


def inputs_at(kv_capacity: int, effort: Effort) -> list[int]:
    """Input lengths tried at a capacity: the grid and, where few requests fit, those just past a number that fits."""
    few = just_past(kv_capacity) if kv_capacity <= 1000 else ()
    return sorted({i for i in (*INPUTS[effort], *few) if i + OUTPUTS - 1 <= kv_capacity})


def cells(effort: Effort) -> Sequence[Cell]:
    """Both schedulers as is and preemption-free; Sarathi with C = S for its KV use."""
    from bounds.claims._models import beside

    wanted: list[Cell] = []
    for c in beside(PUBLISHED):
        for m in CAPACITIES[effort]:
            names = [s for b in BASES for s in (b, f"{b}_pf")] + (["sarathi_cs"] if m == 1_000_000 else [])
            wanted += [
                {"scheduler": s, "inputs": i, "outputs": OUTPUTS, "kv_capacity": m, "cost_model": c,
                 "bounds": bounds_for(effort if m in BOUNDED else "quick", s)}
                for i in inputs_at(m, effort) for s in names
            ]  # fmt: skip
    return wanted


def measure(**cell: Any) -> list[Row]:
    """One scheduler at one capacity."""
    return measure_cell(**cell)


def ratios(rows: Sequence[Row], base: str, kv_capacity: int) -> dict[int, float]:
    """Makespan of the preemption-free version over the preempting one, by I; rows of one cost model."""
    at = index(rows)
    return {i: float(at[f"{base}_pf", i, OUTPUTS, kv_capacity]["makespan_ms"] / at[base, i, OUTPUTS, kv_capacity]["makespan_ms"])
            for i in sorted({r["I"] for r in rows if r["M"] == kv_capacity})}  # fmt: skip


def largest(found: dict[int, float]) -> tuple[float, int]:
    """The largest ratio and where."""
    best = max(found, key=found.__getitem__)
    return found[best], best


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Ratios at M = 100 and M = 1K; KV use at 1M."""
    return across(rows, _judge_one)


def _judge_one(rows: list[Row]) -> list[Verdict]:
    found = {m: {b: ratios(rows, b, m) for b in BASES} for m in (100, 1000)}
    best = {m: {b: largest(found[m][b]) for b in BASES} for m in found}
    words = {m: ", ".join(f"{b} {v:.2f}x at I = {i}" for b, (v, i) in best[m].items()) for m in best}
    mean = {b: float(np.median(list(found[1000][b].values()))) for b in BASES}
    use = {f"{r['scheduler']} I={r['I']}": r["kv_use"] for r in rows
           if r["M"] == 1_000_000 and r["scheduler"] in ("sarathi", "sarathi_cs")}  # fmt: skip
    left = {m: left_on_table([r for r in rows if r["M"] == m]) for m in (100, 1_000, 1_000_000)}
    return [
        Verdict(
            "At M = 100 preempting is 1.9x (vLLM) and 2x (Sarathi) faster than preemption-free", SECTION, "1.9x, 2x",
            words[100], worst([grade(best[100]["vllm"][0] - 1, 0.9), grade(best[100]["sarathi"][0] - 1, 1.0)]),
            f"Largest over I in {{{_listed(found[100])}}}. The ratio jumps with how many requests of I + O - 1 tokens fit in "
            "100: just past a length at which one fewer fits, preempting gains most. The paper's I are not known.",
            "When only a few requests fit, reserving for the future leaves memory idle. Starting more and throwing some out "
            "is then faster.", left[100],
        ),
        Verdict(
            "At M = 1K preempting is 1.3x (vLLM) and 1.1x (Sarathi) faster", SECTION, "1.3x, 1.1x", words[1000],
            worst([grade(best[1000]["vllm"][0] - 1, 0.3), grade(best[1000]["sarathi"][0] - 1, 0.1)]),
            f"Largest over I in {{{_listed(found[1000])}}}; in the median over them vllm {mean['vllm']:.2f}x and sarathi "
            f"{mean['sarathi']:.2f}x (below 1 preempting is slower). The gain is there just past a length at which one fewer "
            "request fits, as I = 470, of which one fits where two would at 469; for short prompts, of which thirty fit, "
            "preempting costs.",
            "Whether throwing out pays turns with how many requests fit: with one or two it can, with thirty it costs.",
            left[1000],
        ),
        Verdict(
            "At M = 1M Sarathi and Sarathi with C = S use less than 20 % of the KV cache", SECTION, "< 20 %",
            ", ".join(f"{name} {value:.1%}" for name, value in use.items()),
            REPRODUCED if use and max(use.values()) < 0.2 else NOT_REPRODUCED,
            "Mean share of KV slots in use over batches.",
            "More memory than the admission rule can fill does not help; bandwidth then decides.", left[1_000_000],
        ),
    ]  # fmt: skip


def _listed(found: dict[str, dict[int, float]]) -> str:
    return ", ".join(str(i) for i in found["vllm"])


def figures(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """Makespan against M, a panel per I, with the lower bound."""
    import matplotlib.pyplot as plt

    from bounds.claims._style import COLOURS, MARKERS

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    published = [r for r in rows if r["cost_model"] == PUBLISHED]
    for ax, i in zip(axes, DRAWN, strict=True):
        for name in [s for b in BASES for s in (b, f"{b}_pf")]:
            mine = sorted(
                (r["M"], r["makespan_ms"] / 1000) for r in published if r["scheduler"] == name and r["I"] == i
            )
            ax.plot(*zip(*mine, strict=True), color=COLOURS[name], marker=MARKERS[name], label=name,
                    linestyle="--" if name.endswith("_pf") else "-")  # fmt: skip
        capacities, known, lower = best_known([r for r in published if r["I"] == i], "M")
        ax.plot(capacities, known, color="gray", linestyle="-.", label="best known schedule")
        ax.plot(capacities, lower, color="black", linestyle=":", label="lower bound")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("KV capacity M (tokens)")
        ax.set_title(f"I = {i}, O = {OUTPUTS}, 1,024 requests")
    axes[0].set_ylabel("makespan (s)")
    axes[0].legend(fontsize=8)
    yield "capacity", figure
