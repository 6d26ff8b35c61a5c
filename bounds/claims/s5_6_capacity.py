"""KV capacity from 100 to 1M tokens at O = 32: where preemption helps (section 5.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bounds.claims import NOT_REPRODUCED, REPRODUCED, Cell, Effort, Row, Verdict, grade, worst
from bounds.claims._grid import PUBLISHED, bounds_for, index, left_on_table, measure_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTION = "5.6"
OUTPUTS = 32
INPUTS = {"quick": (1, 4, 32), "full": (1, 2, 4, 8, 16, 20, 32, 64)}
DRAWN = (1, 32)
CAPACITIES = {"quick": (100, 1_000, 100_000, 1_000_000), "full": (100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000)}
BASES = ("vllm", "sarathi")


def cells(effort: Effort) -> Sequence[Cell]:
    """Both schedulers as is and preemption-free; Sarathi with C = S for its KV use."""
    from bounds.claims._models import beside

    names = [s for b in BASES for s in (b, f"{b}_pf")]
    return [{"scheduler": s, "inputs": i, "outputs": OUTPUTS, "kv_capacity": m, "cost_model": c, "bounds": bounds_for(effort, s)}
            for c in beside(PUBLISHED) for m in CAPACITIES[effort] for i in INPUTS[effort]
            for s in (*names, *(("sarathi_cs",) if m == 1_000_000 else ()))]  # fmt: skip


def measure(**cell: Any) -> list[Row]:
    """One scheduler at one capacity."""
    return measure_cell(**cell)


def best_ratio(rows: Sequence[Row], base: str, kv_capacity: int, cost_model: str = PUBLISHED) -> float:
    """Largest makespan of the preemption-free version over the preempting one, over I."""
    at = index(rows)
    return max(float(at[f"{base}_pf", i, OUTPUTS, kv_capacity, cost_model]["makespan_ms"]
               / at[base, i, OUTPUTS, kv_capacity, cost_model]["makespan_ms"]) for i in sorted({r["I"] for r in rows}))  # fmt: skip


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Ratios at M = 100 and M = 1K; KV use at 1M."""
    small = {b: best_ratio(rows, b, 100) for b in BASES}
    mid = {b: best_ratio(rows, b, 1000) for b in BASES}
    use = {f"{r['scheduler']} I={r['I']}": r["kv_use"] for r in rows
           if r["M"] == 1_000_000 and r["scheduler"] in ("sarathi", "sarathi_cs") and r["cost_model"] == PUBLISHED}  # fmt: skip
    others = [c for c in dict.fromkeys(r["cost_model"] for r in rows) if c != PUBLISHED]
    fitted = "".join(f"; {c}: " + ", ".join(f"{b} {best_ratio(rows, b, 100, c):.2f}x" for b in BASES) for c in others)
    return [
        Verdict(
            "At M = 100 preempting is 1.9x (vLLM) and 2x (Sarathi) faster than preemption-free", SECTION, "1.9x, 2x",
            ", ".join(f"{b} {v:.2f}x" for b, v in small.items()) + fitted,
            worst([grade(small["vllm"] - 1, 0.9), grade(small["sarathi"] - 1, 1.0)]),
            f"Largest over I in {{{', '.join(str(i) for i in sorted({r['I'] for r in rows}))}}}. The ratio jumps with how many "
            "requests of I + O - 1 tokens fit in 100: just past a length at which one fewer fits, preempting gains most.",
            "When only a few requests fit, reserving for the future leaves memory idle. Starting more and throwing some out "
            "is then faster.", left_on_table(rows),
        ),
        Verdict(
            "At M = 1K preempting is 1.3x (vLLM) and 1.1x (Sarathi) faster", SECTION, "1.3x, 1.1x",
            ", ".join(f"{b} {v:.2f}x" for b, v in mid.items()),
            worst([grade(mid["vllm"] - 1, 0.3), grade(mid["sarathi"] - 1, 0.1)]),
            "Below 1 preempting is slower. The text of the paper says the opposite of what its rules give here: with "
            "a thousand slots some thirty requests fit, refills cost more than the batches they save.",
            "Whether throwing out pays turns quickly with memory: at a thousand slots it already costs.",
        ),
        Verdict(
            "At M = 1M Sarathi and Sarathi with C = S use less than 20 % of the KV cache", SECTION, "< 20 %",
            ", ".join(f"{name} {value:.1%}" for name, value in use.items()),
            REPRODUCED if use and max(use.values()) < 0.2 else NOT_REPRODUCED,
            "Mean share of KV slots in use over batches.",
            "More memory than the admission rule can fill does not help; bandwidth then decides.",
        ),
    ]  # fmt: skip


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
        bound = sorted({(r["M"], r["lower_bound_ms"] / 1000) for r in published if r["I"] == i})
        ax.plot(*zip(*bound, strict=True), color="black", linestyle=":", label="lower bound")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("KV capacity M (tokens)")
        ax.set_title(f"I = {i}, O = {OUTPUTS}, 1,024 requests")
    axes[0].set_ylabel("makespan (s)")
    axes[0].legend(fontsize=8)
    yield "capacity", figure
