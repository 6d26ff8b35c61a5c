"""Find the best schedule of an instance, with proof or with an interval.

Prints the objective, the proven lower bound, whose it is, and the gap. Ctrl-C and --time-limit end with the best
schedule and bound so far.
"""

from __future__ import annotations

import argparse

from bounds.cli_options import add_common, add_workload, load_workload, require_feasible, write_json
from bounds.solving import add_solver, exit_code, solve_with_progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_workload(parser)
    parser.add_argument("--objective", metavar="NAME", help="default: the instance's, mostly makespan")
    parser.add_argument("--no-preemption", action="store_true", help="forbid preemption")
    parser.add_argument("--no-chunking", action="store_true", help="forbid fills split over batches")
    parser.add_argument("--no-hybrid", action="store_true", help="forbid prefill and decode in one batch")
    add_solver(parser)
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Solve, print, write."""
    from bounds import report
    from sim.replay import Rules

    instance = require_feasible(load_workload(args), args)
    rules = Rules(preemption=not args.no_preemption, chunking=not args.no_chunking, hybrid=not args.no_hybrid)
    result, interrupted = solve_with_progress(
        instance, args, objective=args.objective or instance.objective, rules=rules
    )
    if args.json != "-":
        out = report.console()
        out.print(report.heading(instance), style="bold", soft_wrap=True)
        out.print(report.proof_sentence(result), soft_wrap=True)
        if result.bounds:
            out.print("lower bounds, for every schedule:")
        for line in report.bound_lines(result.bounds):
            out.print(line, soft_wrap=True)
    write_json(result.to_dict(), args.json)
    return exit_code(result, args, interrupted=interrupted)
