"""Where time goes: heuristics and bounds, building, presolve and search of CP-SAT; and the parts of the portfolio.

    python tests/benchmarks/exact_profile.py [--seconds 5] [paper-7.2-i0032 het8-01 het8-00 het16-00]

CPU seconds. "search" is stopped after --seconds; the portfolio's parts run one after the other for as long each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from csp.search.beam import schedules
from csp.search.best_first import BestFirst
from csp.search.incumbent import Incumbent
from csp.search.ruin import improved
from csp.search.space import build_space
from csp.solve import prepare
from csp.solvers.cpsat import to_cp_model
from csp.waves.tree import Tree
from sim.instance import load_instance


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def cp_sat(name: str, seconds: float) -> None:
    """One line for flow and CP-SAT."""
    from ortools.sat.python import cp_model

    made: dict[str, object] = {}
    before = cpu(lambda: made.update(problem=prepare(load_instance(name))))
    building = cpu(lambda: made.update(formulated=made["problem"].build()))  # type: ignore[attr-defined]
    program = made["formulated"].program  # type: ignore[attr-defined]
    handing = cpu(lambda: made.update(model=to_cp_model(program)[0]))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.presolve_inclusion_work_limit = 0
    solver.parameters.stop_after_presolve = True
    presolve = cpu(lambda: solver.solve(made["model"]))
    solver.parameters.stop_after_presolve = False
    solver.parameters.max_time_in_seconds = seconds
    both = cpu(lambda: made.update(status=solver.status_name(solver.solve(made["model"]))))
    print(f"{name:<18} {len(program.names):>9,} {before:>8.2f} {building:>8.2f} {handing:>8.2f} {presolve:>8.2f} "
          f"{max(0.0, both - presolve):>8.2f} {made['status']}", flush=True)  # fmt: skip


def portfolio(name: str, seconds: float) -> None:
    """One line for the parts of the portfolio."""
    problem = prepare(load_instance(name))
    space = build_space(problem.instance, problem.cost, problem.rules)
    best = Incumbent(int(problem.incumbent_value or 0))
    assert problem.incumbent is not None
    best.schedule = problem.incumbent.schedule
    until = [0.0]

    def stopped() -> bool:
        return time.process_time() > until[0]

    def part(work: Callable[[], object]) -> float:
        until[0] = time.process_time() + seconds
        return cpu(work)

    def beams() -> None:
        for found in schedules(space, lambda: best.value_ticks, widest=32, stopped=stopped):
            best.offer(*found)

    def ruin() -> None:
        for found in improved(space, lambda: best.schedule, problem.cost, problem.rules, stopped=stopped, passes=60):
            best.offer(*found)

    tree, search = Tree(space, lambda: best.value_ticks), BestFirst(space, best.value_ticks)

    def climb() -> None:
        while not tree.done and not stopped():
            tree.step()

    words = [f"beam {part(beams):.2f} s {(best.value_ticks or 0) / 1e11:.3f}"]
    words.append(f"local search {part(ruin):.2f} s {(best.value_ticks or 0) / 1e11:.3f}")
    words.append(f"tree {part(climb):.2f} s >= {tree.lower_bound_ticks / 1e11:.3f}")
    search = BestFirst(space, best.value_ticks)
    words.append(f"states {part(lambda: search.run(stopped=stopped)):.2f} s")
    found = search.run(stopped=lambda: True)
    words[-1] += f" >= {found.lower_bound_ticks / 1e11:.3f}{' proven' if found.proven else ''}"
    print(f"{name:<18} {'; '.join(words)}", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["paper-7.2-i0032", "het8-01", "het8-00", "het16-00"])
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    print(f"{'flow, CP-SAT':<18} {'variables':>9} {'before':>8} {'building':>8} {'handing':>8} {'presolve':>8} "
          f"{'search':>8} status")  # fmt: skip
    for name in args.names:
        cp_sat(name, args.seconds)
    print("portfolio, part by part (best schedule or bound in ms)")
    for name in args.names:
        portfolio(name, args.seconds)


if __name__ == "__main__":
    main()
