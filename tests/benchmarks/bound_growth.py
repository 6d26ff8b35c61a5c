"""How time and gap of `servebound bound` grow with the number of requests and with the number of distinct lengths.

    python tests/benchmarks/bound_growth.py [--time-limit 60] [--until-gap 0.01] [--most-requests 100000] [--plots DIR]

*Requests*: N x (32, 32), M = 10,000, for N from 16 to 100,000. *Distinct lengths*: 1,024 requests, M = 20,000, that
take K different (I, O) in turn, drawn once from I in 16..512 and O in 16..256; K from 1 to 1,024. Linear cost of
Llama-2-7B on an A100. Each point is one run with two schedulers; CPU seconds of the whole run, of the quick bounds and
of the programs (configuration, levels, circulation).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bounds.interval import find_interval
from bounds.lower import QUICK
from bounds.table import format_table
from sim.instance import Instance, Request

NUMBERS = (16, 64, 256, 1024, 4096, 16384, 100_000)
DISTINCT = (1, 2, 4, 8, 16, 64, 256, 1024)
SCHEDULERS = ("vllm", "sarathi")


@dataclass(frozen=True, slots=True)
class Point:
    """One run; seconds are CPU seconds, except those of bounds, which are elapsed."""

    value: int
    lower_ms: float
    lower_source: str
    upper_ms: float
    found_by: str
    gap: float
    total_s: float
    quick_s: float
    programs_s: float


def identical(n: int) -> Instance:
    """N equal requests."""
    return Instance((Request(32, 32),) * n, 10_000)


def mixed(kinds: int, seed: int = 0) -> Instance:
    """1,024 requests of so many lengths; the first lengths are the same for all numbers."""
    rng = np.random.default_rng(seed)
    lengths = list(zip(rng.integers(16, 513, 1024).tolist(), rng.integers(16, 257, 1024).tolist(), strict=True))
    return Instance(tuple(Request(*lengths[at % kinds]) for at in range(1024)), 20_000)


def measure(value: int, instance: Instance, until_gap: float, time_limit_s: float) -> Point:
    """Find the interval of one instance."""
    began = time.process_time()
    result = find_interval(instance, SCHEDULERS, until_gap=until_gap, time_limit_s=time_limit_s).result
    spent = time.process_time() - began
    assert result.gap is not None and result.lower_bound_ticks is not None and result.objective_ticks is not None
    quick = sum(bound.runtime_s for bound in result.bounds if bound.name in QUICK)
    programs = sum(bound.runtime_s for bound in result.bounds if bound.name not in QUICK)
    return Point(value, float(result.lower_bound_ticks) / 1e11, str(result.lower_bound_source),
                 float(result.objective_ticks) / 1e11, str(result.found_by), float(result.gap), spent, quick,
                 programs)  # fmt: skip


def curve(name: str, values: Iterable[int], make: Callable[[int], Instance], args: argparse.Namespace) -> list[Point]:
    """Measure and print one table."""
    points = [measure(value, make(value), args.until_gap, args.time_limit) for value in values]
    header = [name, "lower bound ms", "by", "best schedule ms", "by", "gap", "CPU s", "quick bounds s", "programs s"]
    rows = [[f"{p.value:,}", f"{p.lower_ms:,.1f}", p.lower_source, f"{p.upper_ms:,.1f}", p.found_by, f"{p.gap:.2%}",
             f"{p.total_s:.1f}", f"{p.quick_s:.2f}", f"{p.programs_s:.1f}"] for p in points]  # fmt: skip
    print(format_table(header, rows), end="\n\n", flush=True)
    return points


def plot(curves: dict[str, list[Point]], folder: Path) -> Path:
    """Time above, gap below, one column per quantity."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    figure, panels = plt.subplots(2, len(curves), figsize=(10, 5.6), sharex="col", squeeze=False, layout="constrained")
    for column, (name, points) in enumerate(curves.items()):
        values = [p.value for p in points]
        above, below = panels[0][column], panels[1][column]
        series = (("whole run, CPU", "total_s", "#0072B2", "o"), ("quick bounds", "quick_s", "#D55E00", "s"))
        for label, key, colour, marker in series:
            above.loglog(values, [max(1e-3, getattr(p, key)) for p in points], color=colour, marker=marker, label=label)
        above.set_ylabel("seconds")
        above.legend()
        below.semilogx(values, [100 * p.gap for p in points], color="#009E73", marker="D", label="certified gap")
        below.set_ylim(0, 115 * max(0.001, *(p.gap for p in points)))
        below.set_ylabel("gap, %")
        below.set_xlabel(name)
        below.legend()
        for axes in (above, below):
            axes.grid(True, which="both", alpha=0.25)
    path = folder / "bound_growth.png"
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    """Print both tables and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--until-gap", type=float, default=0.01)
    parser.add_argument("--most-requests", type=int, default=NUMBERS[-1])
    parser.add_argument("--plots", type=Path, metavar="DIR")
    args = parser.parse_args()
    measure(16, identical(16), 1.0, 10.0)  # imports and compiled code
    print(f"stopped at a gap of {args.until_gap:.1%} or after {args.time_limit:g} s")
    curves = {
        "identical requests (32, 32)": curve("requests", [n for n in NUMBERS if n <= args.most_requests], identical,
                                             args),
        "distinct lengths of 1,024 requests": curve("distinct lengths", DISTINCT, mixed, args),
    }  # fmt: skip
    if args.plots:
        print(plot(curves, args.plots))


if __name__ == "__main__":
    main()
