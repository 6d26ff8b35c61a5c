"""Lower bounds of unit rounds beside each other and beside the optimum, on the random trials of `mc_sf_trials`.

    python tests/benchmarks/mc_sf_bounds.py [--trials 0 1 2] [--steps 1000 5000]
    python tests/benchmarks/mc_sf_bounds.py --first 8 --exact 120 [--trials 0 1 2 3 4 5 6 7]

The LP is the program of start times with its memory rows, solved by HiGHS; "rows" are the prices of those rows and of
crowding rows, "states" those of sets that can run together. Figures are parts of the best schedule found, with CPU
seconds. With --first only that many requests of a trial are taken; --exact solves their program with CP-SAT.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from csp.rounds import bound as rows
from csp.rounds import states
from csp.rounds.local_search import improve
from tests.benchmarks.mc_sf_trials import trial

Requests = list[tuple[int, int]]


def choices(requests: Requests, last: int) -> list[tuple[int, int]]:
    """(request, start) of every variable."""
    return [(i, start) for i, (_, o) in enumerate(requests) for start in range(last - o + 1)]


def linear_program(requests: Requests, memory: int, last: int) -> float:
    """Value of the LP with memory rows."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    pairs = choices(requests, last)
    held = [(start + k, v, requests[i][0] + k) for v, (i, start) in enumerate(pairs) for k in range(requests[i][1])]
    row, column, kvs = zip(*held, strict=True)
    memory_rows = csr_matrix((kvs, (row, column)), shape=(last, len(pairs)))
    each = csr_matrix((np.ones(len(pairs)), ([i for i, _ in pairs], range(len(pairs)))))
    total = [start + requests[i][1] for i, start in pairs]
    found = linprog(total, memory_rows, np.full(last, memory), each, np.ones(len(requests)), method="highs-ipm")
    return float(found.fun)


def optimum(requests: Requests, memory: int, last: int, seconds: float) -> tuple[int, bool]:
    """The best total within some rounds by CP-SAT, and whether it is proven."""
    from ortools.sat.python import cp_model

    program = cp_model.CpModel()
    pairs = choices(requests, last)
    chosen = [program.new_bool_var("") for _ in pairs]
    held: list[list[cp_model.LinearExprT]] = [[] for _ in range(last)]
    for (i, start), x in zip(pairs, chosen, strict=True):
        for k in range(requests[i][1]):
            held[start + k].append((requests[i][0] + k) * x)
    for terms in held:
        program.add(sum(terms) <= memory)
    for request in range(len(requests)):
        program.add_exactly_one(x for (i, _), x in zip(pairs, chosen, strict=True) if i == request)
    program.minimize(sum((start + requests[i][1]) * x for (i, start), x in zip(pairs, chosen, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(program)
    return round(solver.objective_value), status == cp_model.OPTIMAL


def main() -> None:
    """One line per trial and bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--first", type=int)
    parser.add_argument("--exact", type=float, default=0.0)
    args = parser.parse_args()
    for seed in args.trials:
        instance = trial(seed)
        requests = [(r.input_tokens, r.output_tokens) for r in instance.requests[: args.first]]
        memory = instance.kv_capacity_tokens
        order = sorted(range(len(requests)), key=lambda i: requests[i][1])
        best, starts = improve(requests, memory, order, runs=30, seed=0)
        last = max(start + o for start, (_, o) in zip(starts, requests, strict=True)) * 21 // 20 + 1

        def show(name: str, work: Callable[[], float | None], best: int = best, seed: int = seed) -> None:
            began = time.process_time()
            value = work()
            ratio = "-" if value is None else f"{value:.1f} = {value / best:.4f}"
            print(f"{seed:3d} {name:22} {ratio} of {best} ({time.process_time() - began:.1f} s)", flush=True)

        if args.exact:
            began = time.process_time()
            found, proven = optimum(requests, memory, last, args.exact)
            print(f"{seed:3d} CP-SAT {found}{'' if proven else ' (not proven)'}, local search {best} "
                  f"({time.process_time() - began:.1f} s)", flush=True)  # fmt: skip
        show("LP, memory rows", partial(linear_program, requests, memory, last))
        for steps in args.steps:
            for name, most_q in (("memory rows", 0), ("memory, crowding rows", 3)):
                rows._MOST_Q = most_q
                relaxation = rows.Relaxation(requests, memory, last)
                show(f"{name}, {steps}", partial(rows.lower_bound, relaxation, steps=steps))
            show(f"states, {steps}", partial(states.lower_bound, requests, memory, last, best, steps=steps))


if __name__ == "__main__":
    main()
