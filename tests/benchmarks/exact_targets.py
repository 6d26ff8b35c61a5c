"""How far the exact engine gets: status, objective, bound, gap and time on the families of instances, against targets.

    python tests/benchmarks/exact_targets.py [het8 uniform-8 uniform-16 uniform-64 het16 het32 paper-7.2]
        [--solver portfolio] [--share 1.0] [--out FILE.csv]

Every family has its own limit per instance. On a busy machine seconds mean little: an instance is stopped when the
process has used SHARE x 2 x limit CPU seconds (two free cores would do that in SHARE x limit seconds), and both are
printed. Instances are shipped with the package; ``servebound generate`` and their names' seeds are in docs/solving.md.
"""

from __future__ import annotations

import argparse
import csv
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from csp.solve import solve
from sim.instance import load_instance


class Family(NamedTuple):
    """Instances, seconds each, and what is aimed at: at least so many with at most this gap."""

    names: tuple[str, ...]
    limit_s: float
    gap: float
    enough: int


FAMILIES = {
    "paper-7.2": Family(tuple(f"paper-7.2-i{2**k:04d}" for k in range(11)), 2, 0.0, 11),
    "het8": Family(tuple(f"het8-{k:02d}" for k in range(20)), 60, 0.0, 18),
    "uniform-8": Family(("uniform-8x16-8-m64",), 5, 0.0, 1),
    "uniform-16": Family(("uniform-16x16-8-m128",), 60, 0.02, 1),
    "uniform-64": Family(("uniform-64x16-16-m512",), 120, 0.04, 1),
    "het16": Family(tuple(f"het16-{k:02d}" for k in range(10)), 120, 0.03, 8),
    "het32": Family(tuple(f"het32-{k:02d}" for k in range(5)), 180, 0.08, 5),
}
COLUMNS = ("name", "status", "objective_ms", "bound_ms", "gap", "wall_s", "cpu_s")


def run(name: str, limit_s: float, solver: str, share: float) -> tuple[str, str, float, float, float, float, float]:
    """One row."""
    stop, over = threading.Event(), threading.Event()
    began, cpu = time.monotonic(), time.process_time()

    def watch() -> None:
        while not over.wait(0.1):
            if time.process_time() - cpu > 2 * share * limit_s:
                stop.set()

    threading.Thread(target=watch, daemon=True).start()
    result = solve(load_instance(name), solver=solver, stop=stop, time_limit_s=40 * share * limit_s)
    over.set()
    used = time.monotonic() - began, time.process_time() - cpu
    assert result.replay is not None and result.gap is not None and result.lower_bound_ticks is not None
    return (name, result.status, result.replay.makespan_ms, float(result.lower_bound_ticks) / 1e11, result.gap,
            round(used[0], 2), round(used[1], 2))  # fmt: skip


def main() -> None:
    """Print one row per instance and one line per family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", choices=[*FAMILIES, []], default=list(FAMILIES))
    parser.add_argument("--solver", default="portfolio")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    solve(load_instance("het8-01"), solver=args.solver, time_limit_s=60)  # compiles
    rows = []
    for family in args.families:
        f = FAMILIES[family]
        part = []
        for name in f.names:
            part.append(run(name, f.limit_s, args.solver, args.share))
            name, status, value, bound, gap, wall, cpu = part[-1]
            print(f"{name:<22} {status:<9} {value:>11.6f} {bound:>11.6f} {gap:>7.2%} {wall:>7.1f} s {cpu:>7.1f} CPU s",
                  flush=True)  # fmt: skip
        good = sum(row[4] <= f.gap for row in part)
        print(f"{family}: gap at most {f.gap:.0%} for {good} of {len(part)} (aim: {f.enough}); CPU s: median "
              f"{np.median([r[6] for r in part]):.1f}, most {max(r[6] for r in part):.1f}", flush=True)  # fmt: skip
        rows += part
    if args.out is not None:
        with args.out.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
