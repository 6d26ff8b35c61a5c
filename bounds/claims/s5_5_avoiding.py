"""Avoiding preemption at O = 1024: latency, TTFT, TPOT, batch size (section 5.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bounds.claims import Cell, Effort, Row, Verdict, across, grade, times, worst
from bounds.claims._grid import PUBLISHED, bounds_for, index, left_in, left_on_table, measure_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTION = "5.5"
KV_CAPACITY, OUTPUTS = 100_000, 1024
BASES = ("vllm", "sarathi", "sarathi_cs")
LENGTHS = {"quick": (1, 32, 1024), "full": (1, 4, 16, 32, 64, 256, 1024)}
_LATENCY = {"vllm": 0.17, "sarathi": 0.10, "sarathi_cs": 0.14}
_TTFT = {"vllm": 1000.0, "sarathi": 1.7, "sarathi_cs": 1000.0}
_TPOT = {"vllm": 13.0, "sarathi": 7.4, "sarathi_cs": 13.0}


def cells(effort: Effort) -> Sequence[Cell]:
    """Every scheduler as is and preemption-free."""
    from bounds.claims._models import beside

    return [{"scheduler": s, "inputs": i, "outputs": OUTPUTS, "kv_capacity": KV_CAPACITY, "cost_model": c,
             "bounds": bounds_for(effort, s)}
            for c in beside(PUBLISHED) for b in BASES for s in (b, f"{b}_pf") for i in LENGTHS[effort]]  # fmt: skip


def measure(**cell: Any) -> list[Row]:
    """One scheduler on one input length."""
    return measure_cell(**cell)


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Ratios of preempting to preemption-free, the largest over I."""
    return across(rows, _judge_one)


def _judge_one(rows: list[Row]) -> list[Verdict]:
    at = index(rows)
    lengths = sorted({r["I"] for r in rows})

    def largest(key: str, *, free_over: bool = False) -> dict[str, float]:
        found = {}
        for base in BASES:
            pairs = [
                (at[base, i, OUTPUTS, KV_CAPACITY][key], at[f"{base}_pf", i, OUTPUTS, KV_CAPACITY][key])
                for i in lengths
            ]
            found[base] = max(free / own if free_over else own / free for own, free in pairs)
        return found

    latency = {b: v - 1 for b, v in largest("makespan_ms").items()}
    ttft, tpot, restart = largest("ttft_ms", free_over=True), largest("tpot_ms"), largest("tpot_restart_ms")
    sizes = {i: at["vllm_pf", i, OUTPUTS, KV_CAPACITY]["batch_size"] for i in (1, 1024)}
    left = left_on_table(rows)
    return [
        Verdict(
            "Without preemption latency is up to 17 / 10 / 14 % lower (vLLM / Sarathi / Sarathi with C = S)", SECTION,
            "17 / 10 / 14 %", _listed(latency, "{:.1%}") + " as worse / better - 1, saving "
            + _listed({b: 1 - 1 / (1 + v) for b, v in latency.items()}, "{:.1%}"),
            worst([grade(latency[b], _LATENCY[b], tolerance=0.1) for b in BASES]),
            "The paper's reduction is worse / better - 1; as a saving it is smaller.",
            "With long outputs the preempting schedulers admit too many and pay for refills. Reserving the peak avoids "
            "that, if one knew the output lengths.", left,
        ),
        Verdict(
            "Without preemption TTFT is up to 1000x worse (vLLM, Sarathi C = S) and 1.7x (Sarathi)", SECTION,
            "1000x / 1.7x / 1000x", ", ".join(f"{b} {times(v)}" for b, v in ttft.items()),
            worst([grade(ttft[b] - 1, _TTFT[b] - 1, tolerance=0.1) for b in BASES]),
            "Ratio of mean TTFTs, largest over I.",
            "A scheduler that keeps room for what is to come lets most requests wait before their first token.",
            left_in(rows, "ttft"),
        ),
        Verdict(
            "Without preemption TPOT is up to 13x lower (vLLM, Sarathi C = S) and 7.4x (Sarathi)", SECTION,
            "13x / 7.4x / 13x", _listed(tpot, "{:.1f}x") + "; as the authors count it " + _listed(restart, "{:.1f}x"),
            worst([grade(tpot[b] - 1, _TPOT[b] - 1, tolerance=0.1) for b in BASES]),
            "Plain TPOT is (completion - first token) / (O - 1). The authors' simulator divides by the tokens left after "
            "the last restart, which charges a preempted request twice; counted so, under the published costs, the published "
            "ratios come out.",
            "Once a request runs, nothing interrupts it: its tokens come several times as fast.", left_in(rows, "tpot"),
        ),
        Verdict(
            "Preemption-free schedulers reach mean batch sizes of about M / (I + O): 98 at I = 1, 49 at I = 1024",
            SECTION, "98 and 49", f"vllm_pf: {sizes[1]:.1f} at I = 1, {sizes[1024]:.1f} at I = 1024",
            worst([grade(sizes[1], 98, tolerance=0.07), grade(sizes[1024], 49, tolerance=0.07)]),
            "Mean over batches, filling up and draining included.",
            "How many requests run side by side is memory over the peak of one request; batch size follows from that.", left,
        ),
    ]  # fmt: skip


def _listed(values: dict[str, float], form: str) -> str:
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


def figures(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """Makespan, TTFT and TPOT against I, each scheduler with its preemption-free version."""
    import matplotlib.pyplot as plt

    from bounds.claims._style import COLOURS, MARKERS

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    published = [r for r in rows if r["cost_model"] == PUBLISHED]
    for ax, (key, label, scale) in zip(axes, (("makespan_ms", "makespan (s)", 1000), ("ttft_ms", "mean TTFT (s)", 1000),
                                              ("tpot_ms", "mean TPOT (ms)", 1)), strict=True):  # fmt: skip
        for name in [s for b in BASES for s in (b, f"{b}_pf")]:
            mine = sorted((r["I"], r[key] / scale) for r in published if r["scheduler"] == name)
            ax.plot(*zip(*mine, strict=True), color=COLOURS[name], marker=MARKERS[name], label=name,
                    linestyle="--" if name.endswith("_pf") else "-")  # fmt: skip
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xlabel("I (tokens)")
        ax.set_ylabel(label)
    axes[0].legend(fontsize=8)
    yield "preemption-free", figure
