"""Lower bounds against values found by other programs (design notes of the project): level and circulation programs.

    python tests/benchmarks/bound_references.py [--time-limit 120]

Linear cost of Llama-2-7B on an A100, identical requests, values in ms per request: level programs of blocks alone, and
*finer*, where numbers of residents are told apart, what that proves; also optima that the bounds must not exceed, how
near walks along the circulation come, and what the level bound gains by telling ever more residents apart. Exits with 1
if a value differs by more than a millionth or a bound exceeds an optimum.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bounds.lower import iter_bounds, levels
from bounds.table import format_table
from bounds.upper.walk import schedules
from csp.relaxations.certificate import recheck
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request
from sim.replay import replay

COST = load_cost_model("linear/llama2-7b-a100")
PER_REQUEST = [
    ("circulation", 32, 4, 64, 15.045301), ("circulation", 8, 8, 30, 11.890538), ("circulation", 16, 8, 64, 10.807653),
    ("circulation", 32, 32, 100, 60.429039), ("levels", 8, 8, 30, 11.790668), ("levels", 16, 8, 64, 10.651515),
    ("levels", 32, 32, 100, 59.885008), ("levels", 1, 32, 100, 18.658957),
]  # fmt: skip
"""Bound, I, O, M, ms per request."""
OPTIMA = [(8, 8, 30, 6, 71.727), (8, 8, 30, 8, 97.904), (8, 8, 30, 9, 110.847), (8, 8, 30, 10, 120.213),
          (16, 8, 64, 8, 89.070), (32, 4, 64, 4, 60.181)]  # fmt: skip
"""I, O, M, N, optimal makespan in ms, rounded to a thousandth."""
TOLERANCE = 1e-6
"""Relative; where the column generation of the level program stops."""
REQUESTS = 1024
RESIDENTS = (0, 4, 8, 12, 16)


def by_residents(time_limit_s: float) -> Iterator[list[object]]:
    """Rows of the level bound of many requests (1, 32), M = 100, ever finer."""
    instance = Instance((Request(1, 32),) * REQUESTS, 100)
    for residents in RESIDENTS:
        levels.MOST_RESIDENTS = residents
        began = time.process_time()
        found = levels.bound(instance, COST, time_limit_s=time_limit_s)
        assert found is not None
        yield [found.inputs["residents"], f"{found.value_ms:,.1f}", f"{time.process_time() - began:.1f}"]


def main() -> int:
    """Print the tables; 1 if anything is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds for each bound")
    args = parser.parse_args()
    rows: list[list[object]] = []
    wrong = 0
    for name, inputs, outputs, capacity, reference in PER_REQUEST:
        instance = Instance((Request(inputs, outputs),) * REQUESTS, capacity)
        began = time.process_time()
        found = next(iter_bounds(instance, COST, only=[name], time_limit_s=args.time_limit), None)
        spent = time.process_time() - began
        began = time.process_time()
        same = found is not None and recheck(name, found.inputs, instance, COST) == found.value_ticks
        checked = time.process_time() - began
        value = finer = float("nan")
        if found is not None:
            finer = found.value_ms / REQUESTS
            value = found.inputs["per_request_ms"]["0"] if name == "levels" else finer
        wrong += not (same and abs(value - reference) <= TOLERANCE * reference)
        rows.append([name, inputs, outputs, capacity, f"{reference:.6f}", f"{value:.6f}", f"{value - reference:+.1e}",
                     f"{finer:.6f}" if finer > value else "", f"{spent:.1f}", f"{checked:.1f}",
                     "yes" if same else "no"])  # fmt: skip
    print(format_table(["bound", "I", "O", "M", "reference", "here", "difference", "finer", "CPU s", "recheck s",
                        "rechecked"], rows), end="\n\n")  # fmt: skip
    rows = []
    for inputs, outputs, capacity, n, optimum in OPTIMA:
        instance = Instance((Request(inputs, outputs),) * n, capacity)
        best = max(iter_bounds(instance, COST, time_limit_s=args.time_limit), key=lambda bound: bound.value_ticks)
        wrong += best.value_ms > optimum + 5e-4
        rows.append([n, inputs, outputs, capacity, f"{optimum:.3f}", f"{best.value_ms:.3f}", best.name,
                     f"{1 - best.value_ms / optimum:.2%}"])  # fmt: skip
    print(format_table(["N", "I", "O", "M", "optimum", "best bound", "by", "below by"], rows))
    print()
    rows = []
    for _, inputs, outputs, capacity, reference in PER_REQUEST[:4]:
        instance = Instance((Request(inputs, outputs),) * REQUESTS, capacity)
        walks = [replay(instance, schedule, cost=COST).makespan_ms
                 for schedule, _ in schedules(instance, COST, "makespan", lambda: False, 0.0)]  # fmt: skip
        rows.append([REQUESTS, inputs, outputs, capacity, f"{reference * REQUESTS:,.1f}", f"{min(walks):,.1f}",
                     f"{min(walks) / reference / REQUESTS - 1:.2%}"])  # fmt: skip
    print(format_table(["N", "I", "O", "M", "circulation ms", "best walk ms", "above by"], rows), end="\n\n")
    print(format_table(["residents told apart", "levels ms", "CPU s"], list(by_residents(args.time_limit))))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
