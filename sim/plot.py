"""Figures of single schedules. Matplotlib is imported when a figure is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sim.clock import ms_from_ticks
from sim.replay import DECODE, PREFILL, REFILL, Replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WAITING, HOLD, PREEMPTED, DONE = "waiting", "hold", "preempted", "done"
CODES = {WAITING: 0, PREFILL: 1, REFILL: 2, DECODE: 3, HOLD: 4, PREEMPTED: 5, DONE: 6}
# Okabe-Ito: tells apart under all common forms of colour blindness.
COLOURS = {
    WAITING: "#EDEDED",
    PREFILL: "#0072B2",
    REFILL: "#E69F00",
    DECODE: "#56B4E9",
    HOLD: "#F0E442",
    PREEMPTED: "#000000",
    DONE: "#FFFFFF",
}
_MOST_LABELLED_CELLS = 400


def activity(replay: Replay) -> npt.NDArray[np.int8]:
    """What every request does in every batch, as `CODES`; shape (requests, batches)."""
    grid = np.zeros((len(replay.instance.requests), len(replay.records)), dtype=np.int8)
    holding = np.zeros(len(grid), dtype=bool)
    done = np.zeros(len(grid), dtype=bool)
    for j, record in enumerate(replay.records):
        grid[:, j] = np.where(done, CODES[DONE], np.where(holding, CODES[HOLD], CODES[WAITING]))
        for i, _ in record.preempted:
            grid[i, j] = CODES[PREEMPTED]
            holding[i] = False
        for entry in record.entries:
            grid[entry.request, j] = CODES[entry.kind]
            holding[entry.request] = True
        done[list(record.completed)] = True
    return grid


def plot_schedule(replay: Replay, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Requests by batches: prefill, refill, decode, hold, preempted; tokens are written into small grids.

    Parameters
    ----------
    replay
        The schedule.
    ax
        Axes to draw on; a new figure by default.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    if ax is None:
        _, ax = plt.subplots(figsize=(9, 4), layout="constrained")
    grid = activity(replay)
    n, batches = grid.shape
    words = list(CODES)
    edges = np.arange(batches + 1)
    small = grid.size <= _MOST_LABELLED_CELLS
    colours = ListedColormap([COLOURS[w] for w in words])
    ax.pcolormesh(edges, np.arange(n + 1), grid, cmap=colours, vmin=-0.5, vmax=len(words) - 0.5,
                  edgecolors="white" if small else "none", linewidth=1.0, rasterized=True)  # fmt: skip
    if small:
        for j, record in enumerate(replay.records):
            for entry in record.entries:
                dark = entry.kind == PREFILL
                ax.text(j + 0.5, entry.request + 0.5, str(entry.tokens), ha="center", va="center", fontsize=8,
                        color="white" if dark else "black")  # fmt: skip
    ax.set_ylim(n, 0)
    ax.set_ylabel("request")
    if n <= 40:
        ax.set_yticks(np.arange(n) + 0.5, replay.instance.ids, fontsize=8)
    ax.set_xlabel("batch")
    if title:
        ax.set_title(title, fontsize=10, loc="left")
    shown = [w for w in words if w != DONE and (grid == CODES[w]).any()]
    handles = [Patch(facecolor=COLOURS[w], edgecolor="#888888", label=w) for w in shown]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    return ax


def plot_kv_use(replay: Replay, *, ax: Axes | None = None) -> Axes:
    """KV tokens resident after each batch, with the capacity M."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(9, 2), layout="constrained")
    used = [record.kv_tokens for record in replay.records]
    ax.bar(np.arange(len(used)) + 0.5, used, width=1.0, color="#009E73", label="KV tokens resident")
    capacity = replay.instance.kv_capacity_tokens
    ax.axhline(capacity, color="black", linestyle="--", linewidth=1, label=f"capacity M = {capacity:,}")
    ax.set_ylabel("KV tokens")
    ax.set_xlabel("batch")
    ax.set_ylim(0, capacity * 1.15)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    return ax


def schedule_figure(replay: Replay, title: str) -> Figure:
    """One schedule: requests x batches above, KV use along the same axis below, time on the top axis."""
    import matplotlib.pyplot as plt

    n, batches = len(replay.instance.requests), len(replay.records)
    width = min(16.0, max(7.5, 3.0 + 0.42 * batches))
    height = min(11.0, max(3.4, 2.2 + 0.28 * n))
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(width, height), layout="constrained",
                                          height_ratios=[max(2.0, min(8.0, 0.3 * n)), 1.3])  # fmt: skip
    plot_schedule(replay, ax=above)
    plot_kv_use(replay, ax=below)
    above.set_xlabel("")
    above.set_xlim(0, batches)
    ends = [ms_from_ticks(record.end_ticks) for record in replay.records]
    top = above.secondary_xaxis("top")
    ticks = np.unique(np.linspace(1, batches, min(batches, 12)).round().astype(int))
    top.set_xticks(ticks, [f"{ends[t - 1]:.4g}" for t in ticks], fontsize=8)
    top.set_xlabel("end of batch (ms)", fontsize=9)
    shown = below.get_xticks() if batches > 40 else np.arange(batches) + 0.5
    if batches <= 40:
        below.set_xticks(shown, [str(j) for j in range(batches)], fontsize=8)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return figure
