"""bigm and flow side by side on the section 7.2 family, same solver, one run: status, optimum, gap and time of each.

    python tests/benchmarks/bigm_vs_flow.py [--solver cpsat] [--limit 120] [--tokens 1 32 1024]

bigm stopped at its limit counts as the limit in the ratio.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from csp.result import Result
from csp.solve import solve
from sim.instance import load_instance

FAMILY = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def cell(result: Result) -> str:
    """One formulation's outcome."""
    best = "-" if result.replay is None else f"{result.replay.makespan_ms:9.3f}"
    gap = "-" if result.gap is None else f"{result.gap:6.1%}"
    return f"{result.status:>9} {best} {gap} {result.runtime_s:8.2f}"


def main() -> None:
    """Print one row per instance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solver", default="cpsat")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for bigm")
    parser.add_argument("--tokens", type=int, nargs="*", default=list(FAMILY))
    args = parser.parse_args()
    # The first solve pays for imports and compiled code.
    solve(load_instance("paper-7.2-i0001"), solver=args.solver)
    print(f"solver {args.solver}, {os.cpu_count()} cores, bigm stopped at {args.limit:g} s; times in s, optima in ms")
    head = f"{'status':>9} {'makespan':>9} {'gap':>6} {'time':>8}"
    print(f"{'I':>5} | {'flow':^35} | {'bigm':^35} | faster")
    print(f"{'':>5} | {head} | {head} |")
    total = 0.0
    for tokens in args.tokens:
        instance = load_instance(f"paper-7.2-i{tokens:04d}")
        flow = solve(instance, solver=args.solver, time_limit_s=args.limit)
        bigm = solve(instance, solver=args.solver, formulation="bigm", time_limit_s=args.limit)
        total += flow.runtime_s
        counted = max(bigm.runtime_s, args.limit) if bigm.status != "OPTIMAL" else bigm.runtime_s
        print(f"{tokens:>5} | {cell(flow)} | {cell(bigm)} | {counted / flow.runtime_s:6.0f}x", flush=True)
        if flow.status == bigm.status == "OPTIMAL" and flow.objective_ticks != bigm.objective_ticks:
            raise SystemExit(f"I = {tokens}: the formulations disagree")
    print(f"flow, whole sweep: {total:.2f} s")


if __name__ == "__main__":
    main()
