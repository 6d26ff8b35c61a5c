"""Preemptive schedulers over I and O: latency, TPOT, preemptions, KV use (section 5.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bounds.claims import DIRECTION, NOT_REPRODUCED, REPRODUCED, Cell, Effort, Row, Verdict, across, grade, times
from bounds.claims._grid import PUBLISHED, best_known, bounds_for, index, left_in, left_on_table, measure_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTION = "5.4"
KV_CAPACITY = 100_000
LENGTHS = {"quick": (1, 32, 256, 1024), "full": (1, 4, 16, 32, 64, 256, 1024)}
SCHEDULERS = ("vllm", "sarathi", "sarathi_cs")


def cells(effort: Effort) -> Sequence[Cell]:
    """Every pair of lengths, every scheduler, under the published and a max-affine cost model."""
    from bounds.claims._models import beside

    lengths = LENGTHS[effort]
    return [{"scheduler": s, "inputs": i, "outputs": o, "kv_capacity": KV_CAPACITY, "cost_model": c, "bounds": bounds_for(effort, s)}
            for c in beside(PUBLISHED) for s in SCHEDULERS for i in lengths for o in lengths]  # fmt: skip


def measure(**cell: Any) -> list[Row]:
    """One scheduler on one pair of lengths."""
    return measure_cell(**cell)


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Latency and TPOT of Sarathi against vLLM; growth of preemptions; KV use at O = 1024."""
    return across(rows, _judge_one)


def _judge_one(rows: list[Row]) -> list[Verdict]:
    at = index(rows)
    pairs = sorted({(r["I"], r["O"]) for r in rows})
    cell = {(s, i, o): at[s, i, o, KV_CAPACITY] for s in SCHEDULERS for i, o in pairs}

    def most(key: str, over: str, under: str, least_output: int = 2) -> tuple[float, int, int]:
        return max((float(cell[over, i, o][key] / cell[under, i, o][key]), i, o) for i, o in pairs if o >= least_output)

    slower = most("makespan_ms", "sarathi", "vllm", 1)
    tpot, restart = (most(key, "vllm", "sarathi") for key in ("tpot_ms", "tpot_restart_ms"))
    by_output = {o: most("tpot_ms", "vllm", "sarathi", o)[0] for o in sorted({o for _, o in pairs}) if 2 <= o <= 64}
    growth = all(cell[s, i, a]["preemptions"] <= cell[s, i, b]["preemptions"]
                 for s in SCHEDULERS for i, a in pairs for j, b in pairs if i == j and a < b)  # fmt: skip
    longest = max(o for _, o in pairs)
    use = {s: [cell[s, i, o]["kv_use"] for i, o in pairs if o == longest] for s in SCHEDULERS}
    preempted = {s: max(r["preemptions"] for r in rows if r["scheduler"] == s) for s in SCHEDULERS}
    kv_low = min(min(values) for values in use.values())
    left = left_on_table(rows)
    return [
        Verdict(
            "Sarathi is up to 13 % slower than vLLM over I, O in 1..1024", SECTION, "up to 13 %",
            f"up to {slower[0] - 1:.1%} (I = {slower[1]}, O = {slower[2]})", grade(slower[0] - 1, 0.13),
            f"Ratio of makespans, worse / better - 1, largest over the grid; with O = 1 it is "
            f"{max(cell['sarathi', i, 1]['makespan_ms'] / cell['vllm', i, 1]['makespan_ms'] for i, o in pairs if o == 1) - 1:.1%}.",
            "Small batches of at most 512 tokens load the weights more often, so the whole workload takes a little "
            "longer.", left,
        ),
        Verdict(
            "Sarathi's TPOT is up to 5.3x lower than vLLM's", SECTION, "up to 5.3x",
            f"up to {tpot[0]:.1f}x (I = {tpot[1]}, O = {tpot[2]}); as the authors count it up to {restart[0]:.1f}x",
            grade(tpot[0], 5.3),
            "Mean TPOT, (completion - first token) / (O - 1), largest ratio over the grid; the authors' simulator divides by "
            "the tokens left after the last restart. It hangs on the shortest outputs counted, which wait for others' prefills "
            "with few tokens to share it: " + ", ".join(f"{times(v)} over O >= {o}" for o, v in by_output.items()) + ".",
            "Sarathi admits slowly and never stops decoding for prefills, so tokens of one request follow each other "
            "faster.", left_in(rows, "tpot"),
        ),
        Verdict(
            "Preemptions grow with O", SECTION, "growing with O",
            f"monotone in O for every I and scheduler: {'yes' if growth else 'no'}; most: "
            + ", ".join(f"{s} {n:,}" for s, n in preempted.items()), REPRODUCED if growth else NOT_REPRODUCED,
            "Same rules and the same M = 100,000 as the paper's simulator.",
            "What a request needs in the end is decided by its output; a scheduler that looks only at the prompt admits "
            "too many, and the longer the outputs the more of them it has to throw out.", left,
        ),
        Verdict(
            "KV use is over 90 % at O = 1024 for all schedulers", SECTION, "> 90 %",
            "mean over batches, by I: " + "; ".join(f"{s} " + ", ".join(f"{v:.0%}" for v in values)
                                                    for s, values in use.items()),
            REPRODUCED if kv_low > 0.9 else DIRECTION if kv_low > 0.8 else NOT_REPRODUCED,
            f"Lowest mean use is {kv_low:.1%}: the mean over all batches includes filling up and draining.",
            "With long outputs memory is the scarce resource: whoever admits, it is nearly always full.", left,
        ),
    ]  # fmt: skip


def figures(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """Makespan and TPOT against O, a panel per I."""
    import matplotlib.pyplot as plt

    from bounds.claims._style import COLOURS, MARKERS

    inputs = sorted({r["I"] for r in rows if r["I"] in (1, 32, 256, 1024)})
    figure, axes = plt.subplots(2, len(inputs), figsize=(3.1 * len(inputs), 6), sharex=True, layout="constrained")
    published = [r for r in rows if r["cost_model"] == PUBLISHED]
    for column, i in enumerate(inputs):
        for s in SCHEDULERS:
            mine = sorted((r for r in published if r["scheduler"] == s and r["I"] == i), key=lambda r: r["O"])
            for line, key in enumerate(("makespan_ms", "tpot_ms")):
                points = [(r["O"], r[key] / (1000 if key == "makespan_ms" else 1)) for r in mine if r[key] is not None]
                axes[line][column].plot(*zip(*points, strict=True), color=COLOURS[s], marker=MARKERS[s], label=s)
        outputs, known, lower = best_known([r for r in published if r["I"] == i], "O")
        axes[0][column].plot(outputs, known, color="gray", linestyle="-.", label="best known schedule")
        axes[0][column].plot(outputs, lower, color="black", linestyle="--", label="lower bound")
        axes[0][column].set_title(f"I = {i}")
        axes[1][column].set_xlabel("O (tokens)")
        for line in (0, 1):
            axes[line][column].set_xscale("log", base=2)
            axes[line][column].set_yscale("log")
    axes[0][0].set_ylabel("makespan (s)")
    axes[1][0].set_ylabel("mean TPOT (ms)")
    axes[0][0].legend(fontsize=8)
    yield "grid", figure
