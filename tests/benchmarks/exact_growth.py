"""Growth of the exact engine: CPU seconds to a proof, and the gap left, against N, O and M; a table and a figure.

    python tests/benchmarks/exact_growth.py [--limit 8] [--seeds 2] [--figure docs/figures/exact-growth.png]

Random instances: N requests, prompts uniform in 1..32, outputs uniform in O/2..O, M a multiple of the largest peak.
Base: N = 8, O = 8, M = 2 peaks. One of the three varies at a time. Stopped after 2 x limit CPU seconds (two threads).
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from csp.solve import solve
from sim.instance import Instance, Request

BASE = {"N": 8, "O": 8, "M": 2.0}
VALUES: dict[str, tuple[float, ...]] = {"N": (4, 8, 12, 16, 24), "O": (4, 8, 16, 32), "M": (1.2, 2.0, 4.0, 8.0)}
LABELS = {"N": "requests N", "O": "largest output O (tokens)", "M": "KV capacity M (largest peaks)"}
COLOURS = ("#0072B2", "#D55E00")


def instance(n: int, outputs: int, peaks: float, seed: int) -> Instance:
    """One random instance."""
    rng = np.random.default_rng(seed)
    requests = tuple(
        Request(int(i), int(o))
        for i, o in zip(rng.integers(1, 33, n), rng.integers(-(-outputs // 2), outputs + 1, n), strict=True)
    )
    return Instance(requests, round(peaks * max(r.peak_kv_tokens for r in requests)), name=f"n{n}-o{outputs}-{seed}")


def measure(one: Instance, limit_s: float) -> tuple[float, float]:
    """(CPU seconds, gap)."""
    stop, over, cpu = threading.Event(), threading.Event(), time.process_time()

    def watch() -> None:
        while not over.wait(0.05):
            if time.process_time() - cpu > 2 * limit_s:
                stop.set()

    threading.Thread(target=watch, daemon=True).start()
    result = solve(one, solver="portfolio", stop=stop, time_limit_s=40 * limit_s)
    over.set()
    assert result.gap is not None
    return time.process_time() - cpu, result.gap


def plot_growth(rows: list[tuple[str, float, float, float]], *, axes: Any = None) -> Any:
    """CPU seconds (left axis) and gap (right) against what varies; points per instance, lines through the means."""
    import matplotlib.pyplot as plt

    axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")[1] if axes is None else axes
    for ax, what in zip(axes, VALUES, strict=True):
        part = [row for row in rows if row[0] == what]
        other = ax.twinx()
        for one, column, colour, marker in ((ax, 2, COLOURS[0], "o"), (other, 3, COLOURS[1], "s")):
            scale = 100 if column == 3 else 1
            one.plot([r[1] for r in part], [scale * r[column] for r in part], marker, color=colour, alpha=0.5)
            xs = sorted({r[1] for r in part})
            means = [scale * float(np.mean([r[column] for r in part if r[1] == x])) for x in xs]
            one.plot(xs, means, "-" if column == 2 else "--", color=colour, label="CPU time" if column == 2 else "gap")
        ax.set(xlabel=LABELS[what], ylabel="CPU time (s)", yscale="log")
        other.set(ylabel="gap left (%)", ylim=(0, None))
        lines = ax.get_lines()[1::2] + other.get_lines()[1::2]
        ax.legend(
            lines,
            [line.get_label() for line in lines],
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=2,
            frameon=False,
        )
    return axes


def main() -> None:
    """Print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=8.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    measure(instance(4, 4, 2.0, 0), 60)  # compiles
    rows = []
    print(f"{'varied':<7} {'value':>6} {'seed':>4} {'CPU s':>8} {'gap':>7}")
    for what, values in VALUES.items():
        for value in values:
            point = BASE | {what: value}
            for seed in range(args.seeds):
                cpu, gap = measure(instance(int(point["N"]), int(point["O"]), point["M"], seed), args.limit)
                rows.append((what, value, cpu, gap))
                print(f"{what:<7} {value:>6g} {seed:>4} {cpu:>8.2f} {gap:>7.2%}", flush=True)
    if args.figure is not None:
        import matplotlib

        matplotlib.use("Agg")
        plot_growth(rows)[0].figure.savefig(args.figure, dpi=120)


if __name__ == "__main__":
    main()
