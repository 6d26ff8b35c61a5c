"""Figures of whole runs: memory over time and latencies. Matplotlib is imported when a figure is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from sim.clock import TICKS_PER_MS
from sim.engine import Simulation
from sim.metrics import Floats, e2e_ms, tpot_ms, ttft_ms
from sim.run_log import run_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe-Ito without yellow, which is too light for lines; line styles tell the second round apart. Earlier lines are
# wider, so that runs that coincide are all seen.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES = ("-", "--", ":")
LATENCIES: dict[str, Callable[..., Floats]] = {"TTFT": ttft_ms, "TPOT": tpot_ms, "E2E": e2e_ms}


def _looks(runs: Sequence[Simulation]) -> list[tuple[Simulation, str, str, float]]:
    pairs = [(colour, style) for style in STYLES for colour in COLOURS]
    widths = np.linspace(1 + 1.2 * min(len(runs) - 1, 4), 1, len(runs))
    return [(run, *look, float(width)) for run, look, width in zip(runs, cycle(pairs), widths, strict=False)]


def plot_kv(runs: Sequence[Simulation], *, ax: Axes | None = None) -> Axes:
    """KV tokens resident over time, a line per run, and M.

    Parameters
    ----------
    runs
        At least one; the first one's M is drawn.
    ax
        Axes to draw on; a new figure by default.
    """
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(8, 3.5), constrained_layout=True)
    for run, colour, style, width in _looks(runs):
        times, tokens = [0.0], [0]
        for record in run_log(run.replay).records:
            start = record.start_ticks
            if start / TICKS_PER_MS / 1000 > times[-1]:
                # Idle: nobody runs, nothing is held.
                times += [times[-1], start / TICKS_PER_MS / 1000]
                tokens += [0, 0]
            times.append(start / TICKS_PER_MS / 1000)
            tokens.append(record.kv_tokens)
            took = sum(n * first + growth * (n * (n - 1) // 2) for n, first, growth in record.stretches)
            times.append((start + took) / TICKS_PER_MS / 1000)
            tokens.append(record.kv_tokens + (record.repeat - 1) * record.features.tokens)
        ax.plot(times, tokens, color=colour, linestyle=style, linewidth=width, label=run.scheduler)
    capacity = runs[0].replay.instance.kv_capacity_tokens
    ax.axhline(capacity, color="#777777", linewidth=1, label=f"capacity M = {capacity:,}")
    ax.set(xlabel="time (s)", ylabel="KV tokens resident")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize="small")
    return ax


def plot_latency(runs: Sequence[Simulation], latency: str = "TTFT", *, ax: Axes | None = None) -> Axes:
    """Share of requests with at most so much latency, a line per run, on a logarithmic axis.

    Parameters
    ----------
    latency
        "TTFT", "TPOT" or "E2E".
    ax
        Axes to draw on; a new figure by default.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if ax is None:
        _, ax = plt.subplots(figsize=(5, 3.5), constrained_layout=True)
    every = np.concatenate([LATENCIES[latency](run.replay) for run in runs])
    for run, colour, style, width in _looks(runs):
        values = np.sort(LATENCIES[latency](run.replay))
        if len(values):
            share = np.arange(1, len(values) + 1) / len(values)
            ax.step([values[0], *values], [0.0, *(100 * share)], where="post", color=colour, linestyle=style,
                    linewidth=width, label=run.scheduler)  # fmt: skip
    wide = len(every) > 0 and every.max() > 100 * every.min()
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set(xlabel=f"{latency} (ms)", ylabel="requests at or below (%)", ylim=(0, 102))
    ax.grid(True, which="both", alpha=0.25)
    ax.legend(fontsize="small")
    return ax
