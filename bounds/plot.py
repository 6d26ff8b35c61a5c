"""Figures of comparisons."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bounds.compare import Comparison
from sim.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_comparison(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Makespan of every scheduler against the best schedule and the certified lower bound."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(8.5, 1.6 + 0.36 * len(comparison.rows)), layout="constrained")
    result = comparison.result
    rows = [row for row in comparison.rows if row.finished]
    rows.sort(key=lambda row: row.summary.makespan_ms, reverse=True)
    makespans = [row.summary.makespan_ms for row in rows]
    bars = ax.barh([row.simulation.scheduler for row in rows], makespans, color="#56B4E9", label="scheduler")
    labels = [
        f"{m:.4g} ms" + (f"  (at most {row.gap:.1%} to save)" if row.gap is not None else "")
        for m, row in zip(makespans, rows, strict=True)
    ]
    ax.bar_label(bars, labels, padding=4, fontsize=8)
    marks = []
    if result.replay is not None:
        word = "optimum" if result.status == "OPTIMAL" else f"best schedule found ({result.found_by or result.solver})"
        marks.append((result.replay.makespan_ms, word, "#D55E00", "-"))
    if result.lower_bound_ticks is not None and result.status != "OPTIMAL" and result.objective == "makespan":
        from sim.clock import ms_from_ticks

        source = result.lower_bound_source
        marks.append((ms_from_ticks(result.lower_bound_ticks), f"lower bound ({source})", "#000000", "--"))
    for x, word, colour, style in marks:
        ax.axvline(x, color=colour, linestyle=style, linewidth=1.8, label=f"{word}: {x:.6g} ms")
    most = max([*makespans, *(x for x, *_ in marks)], default=1.0)
    ax.set_xlim(0, most * 1.42)
    ax.set_xlabel("makespan (ms)")
    ax.set_title(f"{comparison.instance.name}: {len(comparison.instance.requests)} requests, "
                 f"M = {comparison.instance.kv_capacity_tokens:,}, C = {comparison.instance.token_budget:,}",
                 fontsize=10, loc="left")  # fmt: skip
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3, frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def comparison_figure(comparison: Comparison) -> Figure:
    """A figure of its own for `plot_comparison`."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(8.5, 1.6 + 0.36 * len(comparison.rows)), layout="constrained")
    plot_comparison(comparison, ax=ax)
    return figure


def save_figure(figure: Figure, folder: Path, name: str) -> Path:
    """Write a PNG in one step and close the figure; the path written."""
    import matplotlib.pyplot as plt

    path = folder / (re.sub(r"[^\w.-]+", "-", name) + ".png")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".png")
        os.close(handle)
        try:
            figure.savefig(temporary, dpi=130, format="png")
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
    finally:
        plt.close(figure)
    return path
