"""Figures about cost models: break-even, swap, five-minute rule, roofline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bounds.breakeven import Breakeven, sides_ms
from bounds.five_minute import FiveMinute, Reuses, break_even_s
from bounds.roofline import Bar, Measured
from bounds.swap import Comparison, gpu_read_ms, recompute_ms
from sim.clock import ms_from_ticks
from sim.cost.model import CostModel, Features
from sim.cost.roofline import OperatorCost
from sim.cost.setups import Setup

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
    """Save the figure of some axes as ``name``.png in a folder, which is made if missing.

    Raises
    ------
    InputError
        If the folder or the file cannot be written.
    """
    from bounds.plot import save_figure

    figure = ax.get_figure(root=True)
    assert figure is not None
    return save_figure(figure, folder, name)


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


_KIND_STYLES = {"linear": ("#000000", "P", "linear, published"), "linear-fit": ("#0072B2", "s", "linear, fitted"),
                "max-affine": ("#D55E00", "o", "max-affine, fitted"),
                "roofline": ("#009E73", "^", "roofline (theory)")}  # fmt: skip


def plot_breakevens(found: Sequence[Breakeven], stops: Sequence[int | None], *, ax: Axes | None = None) -> Axes:
    """Crossovers of several cost models by LLM and GPU, with the I at which the exact optimum stops preempting."""
    setups = sorted({one.cost.name.rpartition("/")[2] for one in found}, reverse=True)
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(7.5, 1.6 + 0.3 * len(setups)), layout="constrained").add_subplot()
    seen: set[str] = set()
    for one, stop in zip(found, stops, strict=True):
        prefix, _, setup = one.cost.name.rpartition("/")
        colour, marker, label = _KIND_STYLES.get(prefix, ("#CC79A7", "D", prefix or "other"))
        y = setups.index(setup)
        crossing = one.marginal_entry.crossover
        if crossing is not None:
            ax.plot(crossing, y, marker=marker, color=colour, linestyle="", markersize=7, alpha=0.85,
                    label=None if label in seen else label)  # fmt: skip
            seen.add(label)
        if stop is not None:
            ax.plot(stop, y, marker="|", color=colour, markersize=16, markeredgewidth=1.6, linestyle="",
                    label=None if "optimum" in seen else "optimum of the 7.2 family stops")  # fmt: skip
            seen.add("optimum")
    ax.axvline(47, color="#999999", linewidth=0.8, linestyle=":", label="the paper's 47")
    ax.set_yticks(range(len(setups)), setups, fontsize=8)
    ax.set_xlim(left=0)
    ax.set_xlabel("KVs up to which preempting pays, x (tokens)")
    ax.set_title("Marginal break-even, entry charged, by cost model", fontsize=10)
    ax.grid(axis="x", color="#e0e0e0", linewidth=0.6)
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.45, -0.12), ncols=3, frameon=False)
    return ax


_OPERATORS = ("QKV_proj", "O_proj", "UG_proj", "D_proj", "prefill attention", "decode attention", "elementwise")


def plot_roofline(
    setup: Setup,
    costs: dict[str, list[OperatorCost]],
    measured: Sequence[Measured] = (),
    *,
    ax: Axes | None = None,
) -> Axes:
    """The roofline of a GPU, with measured operators below it, or batches on it where none are given (figure 7)."""
    ax = new_axes(ax)
    peak, bandwidth = setup.gpu.flops / 1e12, setup.gpu.bandwidth / 1e12
    left, right = 0.5, 5e3
    ax.plot([left, peak / bandwidth, right], [left * bandwidth, peak, peak], color="#666666", label="data sheet")
    points: dict[str, list[tuple[float, float]]] = {}
    for one in measured:
        points.setdefault(one.theory.name, []).append((one.theory.intensity, one.theory.flops / one.measured_ms / 1e9))
    if not measured:
        for found in costs.values():
            for cost in found:
                points.setdefault(cost.name, []).append((cost.intensity, cost.flops / max(cost.time_ms, 1e-300) / 1e9))
    for name, colour, marker in zip(_OPERATORS, OKABE_ITO, "osD^vPX", strict=False):
        xy = [(x, y) for x, y in points.get(name, []) if x > 0]
        if xy:
            xs, ys = [x for x, _ in xy], [y for _, y in xy]
            ax.scatter(xs, ys, s=14 if measured else 36, color=colour, marker=marker, label=name, zorder=3,
                       linewidths=0)  # fmt: skip
    ax.axvline(peak / bandwidth, color="#666666", linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("intensity (FLOPs per byte)")
    ax.set_ylabel("rate reached (TFLOPS)" if measured else "attainable rate (TFLOPS)")
    ax.set_title(f"Roofline, {setup.name}: left of the dotted line memory binds")
    ax.legend(loc="lower right", fontsize=8)
    return ax


def plot_theory_practice(setup: Setup, found: Sequence[Bar], *, ax: Axes | None = None) -> Axes:
    """Time of some batches by operator, in theory (left bar) and measured (right bar) (figure 6)."""
    ax = new_axes(ax)
    for place, bar in enumerate(found):
        total = sum(bar.measured_ms.values())
        for side, times in ((-0.21, bar.theory_ms), (0.21, bar.measured_ms)):
            bottom = 0.0
            for name, colour in zip(_OPERATORS, OKABE_ITO, strict=False):
                if name in times:
                    share = times[name] / total
                    ax.bar(place + side, share, 0.38, bottom=bottom, color=colour, edgecolor="white", linewidth=0.4,
                           hatch="//" if side < 0 else None, label=name if side > 0 else None)  # fmt: skip
                    bottom += share
        ax.annotate(f"{total:.3g} ms", (place + 0.21, 1.01), ha="center", fontsize=7)
    ax.set_xticks(range(len(found)), [bar.label for bar in found], fontsize=8)
    ax.set_ylabel("time per layer / measured time")
    ax.set_title(f"Theory (hatched) and measurement per operator, {setup.name}", fontsize=10)
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    ax.legend(handles.values(), handles.keys(), fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4,
              frameon=False)  # fmt: skip
    return ax


def plot_batch_times(costs: Sequence[CostModel], *, decode_kv_tokens: int = 0, ax: Axes | None = None) -> Axes:
    """Time of a batch over its tokens: one whole fill, or (with ``decode_kv_tokens``) decode steps at so many KVs."""
    ax = new_axes(ax)
    sizes = sorted({round(2 ** (i / 8)) for i in range(8 * 12 + 1)})
    for cost, colour in zip(costs, OKABE_ITO, strict=False):
        times = [
            cost.batch_ticks(Features(1, 0, 1, 0, t, t, 0, 0, t * decode_kv_tokens) if decode_kv_tokens
                             else Features(1, 1, 0, 1, 0, t, t * t, 0, 0)) for t in sizes
        ]  # fmt: skip
        ax.plot(sizes, [ms_from_ticks(time) for time in times], color=colour, label=cost.name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    what = f"decode steps at {decode_kv_tokens:,} KVs each" if decode_kv_tokens else "one whole fill"
    ax.set_xlabel(f"tokens in the batch ({what})")
    ax.set_ylabel("time of the batch (ms)")
    ax.legend(fontsize=8)
    return ax


def plot_swap(cost: CostModel, setup: Setup, found: Sequence[Comparison], *, ax: Axes | None = None) -> Axes:
    """Time to get m KVs back: recomputed, swapped in over each link, or never dropped (paper, figure 8)."""
    ax = new_axes(ax)
    ms = sorted({round(10 ** (i / 10)) for i in range(46)})
    ax.plot(ms, [recompute_ms(cost, m) for m in ms], color="#000000", linewidth=2, label="recompute, own batch")
    ax.plot(ms, [recompute_ms(cost, m, joined=True) for m in ms], color="#000000", linestyle="--",
            label="recompute, joining a batch")  # fmt: skip
    for one, colour in zip(found, OKABE_ITO, strict=False):
        ax.plot(ms, [one.swap.time_ms(m) for m in ms], color=colour, label=f"swap in, {one.swap.link.title}")
    ax.plot(ms, [gpu_read_ms(setup, m) for m in ms], color="#999999", linestyle=":", label="read from GPU memory")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("KVs needed again, m (tokens)")
    ax.set_ylabel("time, whole LLM (ms)")
    how = "".join([
        "" if found[0].swap.trips == 1 else ", out and in",
        "" if found[0].swap.block_tokens is None else f", blocks of {found[0].swap.block_tokens}",
    ]) if found else ""  # fmt: skip
    ax.set_title(f"Recompute or swap, {cost.name}{how}")
    ax.legend(fontsize=8)
    return ax


def plot_five_minute(found: FiveMinute, seen: Reuses, *, ax: Axes | None = None) -> Axes:
    """Reuse intervals of a schedule under the break-even interval T_break(m) (paper, figure 15)."""
    import numpy as np

    ax = new_axes(ax)
    largest = int(seen.kv_tokens.max()) if found.count else 1000
    ms = sorted({round(largest ** (i / 60)) for i in range(61)})
    capacity = found.kv_capacity_tokens
    for joined, style, label in ((False, "-", "own batch"), (True, "--", "joining a batch")):
        ax.plot(ms, [break_even_s(found.cost, m, capacity, joined=joined) for m in ms], color="#D55E00",
                linestyle=style, label=f"break-even T_break(m), {label}")  # fmt: skip
    if found.count:
        pick = np.random.default_rng(0).permutation(found.count)[:4000]
        ax.scatter(seen.kv_tokens[pick], np.maximum(seen.interval_s[pick], 1e-6), s=6, color="#0072B2", alpha=0.4,
                   linewidths=0, label=f"reuse ({min(found.count, 4000):,} of {found.count:,})")  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("KVs reused, m (tokens)")
    ax.set_ylabel("interval (s)")
    ax.set_title(f"Five-minute rule, {found.cost.name}, {found.scheduler}")
    ax.legend(fontsize=8)
    return ax
