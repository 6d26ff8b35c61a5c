"""Certified gaps over the grids of 1,024 identical requests: tables, heat maps, and which bound and schedule gave them.

    python tests/benchmarks/bound_grids.py [--grids paper,small-memory] [--cost-models A,B] [--until-gap G]
                                           [--time-limit 60] [--plots DIR] [--json FILE]

*paper*: I, O in {1, 32, 256, 1024}, M = 100,000. *small-memory*: O = 32, I in {1, 32}, M in {100, 1000, 10000}. Each
cell is what `servebound bound --until-gap` does, with the target of its grid unless another is given (0: all the time).
CPU seconds are of the whole cell: schedulers, plans and bounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bounds.compare import DEFAULT_SCHEDULERS
from bounds.interval import find_interval
from bounds.table import format_table
from sim.instance import Instance, Request

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REQUESTS = 1024
LENGTHS = (1, 32, 256, 1024)
COST_MODELS = ("linear/llama2-7b-a100", "max-affine/llama2-7b-a100")
GRIDS = {
    "paper": [(i, o, 100_000) for i in LENGTHS for o in LENGTHS],
    "small-memory": [(i, 32, m) for i in (1, 32) for m in (100, 1_000, 10_000)],
}
TARGETS = {("paper", COST_MODELS[0]): 0.015}
OTHER_TARGET = 0.05


@dataclass(frozen=True, slots=True)
class Cell:
    """One instance and the interval found for its optimum; times of schedules in ms."""

    grid: str
    cost_model: str
    input_tokens: int
    output_tokens: int
    kv_capacity: int
    lower_ms: float
    lower_source: str
    area_ms: float
    upper_ms: float
    found_by: str
    best_scheduler_ms: float
    gap: float
    cpu_s: float
    wall_s: float


def measure(
    grid: str, cost_model: str, lengths: tuple[int, int, int], until_gap: float, time_limit_s: float, seed: int
) -> Cell:
    """Find the interval of one cell."""
    inputs, outputs, capacity = lengths
    instance = Instance((Request(inputs, outputs),) * REQUESTS, capacity, cost_model=cost_model)
    cpu, wall = time.process_time(), time.monotonic()
    found = find_interval(instance, DEFAULT_SCHEDULERS, time_limit_s=time_limit_s, until_gap=until_gap, seed=seed)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    result = found.result
    assert result.gap is not None and result.lower_bound_ticks is not None and result.objective_ticks is not None
    area = next(bound.value_ms for bound in result.bounds if bound.name == "memory_area")
    best = min(row.summary.makespan_ms for row in found.rows if row.finished)
    return Cell(grid, cost_model, inputs, outputs, capacity, float(result.lower_bound_ticks) / 1e11,
                str(result.lower_bound_source), area, float(result.objective_ticks) / 1e11, str(result.found_by), best,
                float(result.gap), cpu, wall)  # fmt: skip


def table(cells: Sequence[Cell]) -> str:
    """One row per cell."""
    header = [
        "I",
        "O",
        "M",
        "lower bound ms",
        "by",
        "best schedule ms",
        "by",
        "gap",
        "area and scheduler",
        "CPU s",
        "s",
    ]
    rows = [[c.input_tokens, c.output_tokens, c.kv_capacity, f"{c.lower_ms:,.1f}", c.lower_source,
             f"{c.upper_ms:,.1f}", c.found_by, f"{c.gap:.2%}", f"{1 - c.area_ms / c.best_scheduler_ms:.2%}",
             f"{c.cpu_s:.1f}", f"{c.wall_s:.1f}"] for c in cells]  # fmt: skip
    return format_table(header, rows)


def plot_gaps(cells: Sequence[Cell], *, ax: Axes | None = None) -> Axes:
    """Heat map of the gaps of one grid: I downwards; O, or M where there is one O, to the right."""
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.figure(layout="constrained").add_subplot()
    by_memory = len({c.output_tokens for c in cells}) == 1

    def column_of(cell: Cell) -> int:
        return cell.kv_capacity if by_memory else cell.output_tokens

    inputs, columns = sorted({c.input_tokens for c in cells}), sorted({column_of(c) for c in cells})
    data = np.full((len(inputs), len(columns)), np.nan)
    for c in cells:
        data[inputs.index(c.input_tokens), columns.index(column_of(c))] = 100 * c.gap
    image = ax.imshow(data, cmap="cividis_r", vmin=0.0, aspect="auto")
    middle = float(np.nanmax(data)) / 2
    for (row, at), value in np.ndenumerate(data):
        ax.text(at, row, "" if np.isnan(value) else f"{value:.2f}", ha="center", va="center",
                color="#000000" if value <= middle else "#FFFFFF")  # fmt: skip
    ax.set_xticks(range(len(columns)), [f"{x:,}" for x in columns])
    ax.set_yticks(range(len(inputs)), [f"{x:,}" for x in inputs])
    ax.set_xlabel("KV capacity M, tokens" if by_memory else "output tokens O")
    ax.set_ylabel("input tokens I")
    ax.figure.colorbar(image, ax=ax, label="certified gap, %")
    fixed = f"O = {cells[0].output_tokens}" if by_memory else f"M = {cells[0].kv_capacity:,}"
    ax.set_title(f"{cells[0].cost_model}, {fixed}", loc="left", fontsize=10)
    return ax


def write_plots(cells: Sequence[Cell], folder: Path) -> list[Path]:
    """A figure per grid, with a panel per cost model."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for grid in dict.fromkeys(c.grid for c in cells):
        models = list(dict.fromkeys(c.cost_model for c in cells if c.grid == grid))
        figure, panels = plt.subplots(1, len(models), figsize=(5.2 * len(models), 3.6), squeeze=False,
                                      layout="constrained")  # fmt: skip
        for panel, cost_model in zip(panels[0], models, strict=True):
            plot_gaps([c for c in cells if c.grid == grid and c.cost_model == cost_model], ax=panel)
        paths.append(folder / f"bound_grid_{grid.replace('-', '_')}.png")
        figure.savefig(paths[-1], dpi=150)
        plt.close(figure)
    return paths


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", default=",".join(GRIDS))
    parser.add_argument("--cost-models", default=",".join(COST_MODELS))
    parser.add_argument("--until-gap", type=float)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plots", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    cells: list[Cell] = []
    for grid in args.grids.split(","):
        for cost_model in args.cost_models.split(","):
            target = TARGETS.get((grid, cost_model), OTHER_TARGET)
            goal = target if args.until_gap is None else args.until_gap
            found = []
            for lengths in GRIDS[grid]:
                found.append(measure(grid, cost_model, lengths, goal, args.time_limit, args.seed))
                print(".", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
            cells += found
            above = [c for c in found if c.gap > target]
            print(f"{grid}, {cost_model}; searched until {goal:.1%} or {args.time_limit:g} s; target {target:.1%}: "
                  f"{len(found) - len(above)} of {len(found)} cells; largest gap {max(c.gap for c in found):.2%}, "
                  f"most CPU {max(c.cpu_s for c in found):.1f} s")  # fmt: skip
            print(table(found), flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(c) for c in cells], indent=1))
    if args.plots:
        for path in write_plots(cells, args.plots):
            print(path)


if __name__ == "__main__":
    main()
