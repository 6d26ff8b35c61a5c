"""How the history bound hangs on its grid, and what regular fills would take if requests were divisible.

    python tests/benchmarks/history_bounds.py [--input 32] [--output 32] [--capacity 1000] [--requests 1024]
                                              [--grids 10,8,6] [--every 8,11,16]

Equal requests, linear cost. A row per grid of the record of past fills: the bound in ms, CPU seconds. Then, per number
of batches between fills, the least cost if any fraction of a request may take a path of its own (a linear program over
paths around a cycle, start and end left out): what schedules with such fills cannot beat in the long run.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from scipy.optimize import linprog

from bounds.table import format_table
from bounds.upper._paths import best_path, take
from bounds.upper.cycles import _Prices
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.histories import Program, history, prove_histories
from csp.relaxations.load import load_of
from csp.relaxations.patterns import charges
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request

COST_MODEL = "linear/llama2-7b-a100"


def divisible_ms(prices: _Prices, every: int) -> float:
    """Cost per request of the best cycle of ``every`` batches, the first of which fills, by column generation."""
    nobody, fill = np.full(every, prices.limit, np.int64), np.arange(every) == 0
    cycle_ms = every * prices.batch + prices.fill_batch
    price = np.full(every, cycle_ms / every / prices.limit)
    columns, costs, value = [], [], np.inf
    while True:
        times, absent = np.zeros(prices.tokens, np.int64), np.zeros(prices.tokens, np.bool_)
        least = best_path(nobody, price, fill, 0, every, 3 * prices.tokens, 1 << 60, prices.sizes, prices.limit,
                          prices.refill, times, absent)  # fmt: skip
        if least > value - 1e-6:
            return float(value) + prices.entries
        used = np.zeros(every, np.int64)
        take(used, times, absent, prices.sizes, 1)
        columns.append(used)
        costs.append(float(prices.refill[absent].sum()))
        rows = np.hstack([np.array(columns, float).T, np.full((every, 1), -float(prices.limit))])
        found = linprog([*costs, cycle_ms], A_ub=rows, b_ub=np.zeros(every), A_eq=[[1.0] * len(costs) + [0.0]],
                        b_eq=[1.0])  # fmt: skip
        value, price = found.fun, -found.ineqlin.marginals


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("input", 32), ("output", 32), ("capacity", 1000), ("requests", 1024)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--grids", default="10,8,6")
    parser.add_argument("--every", default="8,11,16")
    args = parser.parse_args()
    cost = load_cost_model(COST_MODEL)
    load = load_of(Instance((Request(args.input, args.output),) * args.requests, args.capacity, args.capacity))
    charge = charges(load, cost, additive_weights(load, cost))
    rows = []
    for grid in map(int, args.grids.split(",")):
        began = time.process_time()
        seen = history(args.output - args.output // 8, args.output + args.output // 5 + 1, grid)
        program = Program(load, charge, seen)
        solution = program.solve(600)
        value = 0.0 if solution is None else float(prove_histories(load, charge, seen, *solution)) / 1e11
        rows.append([grid, len(seen), program.rows, f"{value:,.1f}", f"{time.process_time() - began:.1f}"])
    print(format_table(["grid", "histories", "rows", "lower bound ms", "CPU s"], rows))
    prices = _Prices(load, charge)
    print(format_table(["fills every", "divisible requests ms"],
                       [[every, f"{args.requests * divisible_ms(prices, every):,.1f}"]
                        for every in map(int, args.every.split(","))]))  # fmt: skip


if __name__ == "__main__":
    main()
