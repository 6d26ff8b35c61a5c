"""Figures about cost models: break-even, swap, five-minute rule, roofline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bounds.breakeven import Breakeven, sides_ms
from sim.cost.roofline import OperatorCost
from sim.cost.setups import Setup
from sim.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")


def new_axes(ax: Axes | None) -> Axes:
    """The given axes, or those of a new figure that no window shows."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=(7.0, 4.2), layout="constrained").add_subplot()


def save_plot(ax: Axes, folder: Path, name: str) -> Path:
    """Save a figure as ``name``.png in a folder, which is made if missing.

    Raises
    ------
    InputError
        If the folder or the file cannot be written.
    """
    path = folder / f"{name}.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure = ax.get_figure(root=True)
        assert figure is not None
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
    return path


def plot_breakeven(found: Breakeven, *, ax: Axes | None = None, kv_tokens: Sequence[int] | None = None) -> Axes:
    """Both sides of the break-even over the KVs that a request holds."""
    ax = new_axes(ax)
    crossing = found.marginal.crossover
    last = 100 if crossing is None else min(4096, max(100, round(2 * crossing)))
    xs = list(kv_tokens) if kv_tokens is not None else sorted({1, *range(1, last + 1, max(1, last // 100))})
    rows = [sides_ms(found.cost, x, found.base_tokens) for x in xs]
    styles = ("-", "-", "--", "-")
    for label, colour, style in zip(rows[0], OKABE_ITO, styles, strict=False):
        ax.plot(xs, [row[label] for row in rows], color=colour, linestyle=style, label=label)
    for reading, style in ((found.marginal, "-"), (found.marginal_entry, "--")):
        if reading.crossover is not None and reading.crossover <= xs[-1]:
            ax.axvline(reading.crossover, color="#666666", linewidth=0.8, linestyle=style)
            ax.annotate(f"{reading.crossover:.2f}", (reading.crossover, 0.0), rotation=90, fontsize=8, color="#666666",
                        xytext=(2 if style == "-" else -10, 4), textcoords="offset points")  # fmt: skip
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("KVs held by the preempted request, x (tokens)")
    ax.set_ylabel("time per layer (ms)")
    ax.set_title(f"Break-even of preempting, {found.cost.name}")
    ax.legend(loc="best", fontsize=8)
    return ax


def plot_roofline(setup: Setup, costs: dict[str, list[OperatorCost]], *, ax: Axes | None = None) -> Axes:
    """The roofline of a GPU with the least time of every operator of some batches on it (paper, figure 7).

    Points lie on the roof by construction; their height is the FLOPS that the data sheet allows at that intensity.
    """
    ax = new_axes(ax)
    peak, bandwidth = setup.gpu.flops / 1e12, setup.gpu.bandwidth / 1e12
    left, right = 0.5, 5e3
    ax.plot([left, peak / bandwidth, right], [left * bandwidth, peak, peak], color="#666666", label="data sheet")
    names = [name for name in ("QKV_proj", "O_proj", "UG_proj", "D_proj", "prefill attention", "decode attention")
             if any(cost.name == name for found in costs.values() for cost in found)]  # fmt: skip
    for name, colour, marker in zip(names, OKABE_ITO, "osD^vP", strict=False):
        points = [cost for found in costs.values() for cost in found if cost.name == name]
        ax.scatter([p.intensity for p in points], [p.flops / p.time_ms / 1e9 for p in points], s=36, color=colour,
                   marker=marker, label=name, zorder=3)  # fmt: skip
    ax.axvline(peak / bandwidth, color="#666666", linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("intensity (FLOPs per byte)")
    ax.set_ylabel("attainable rate (TFLOPS)")
    ax.set_title(f"Roofline, {setup.name}: left of the dotted line memory binds")
    ax.legend(loc="lower right", fontsize=8)
    return ax
