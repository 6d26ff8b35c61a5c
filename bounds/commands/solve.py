"""Find the best schedule of an instance, with proof or with an interval.

Prints the objective, the proven lower bound, whose it is, and the gap. Ctrl-C and --time-limit end with the best
schedule and bound so far. With --at-most the question is only whether there is a schedule that good: yes with the
schedule, no with proof, or unknown with the bound.
"""

from __future__ import annotations

import argparse

from bounds.answers import add_rules, answer_lines, at_most_value, limits_of, rules_of
from bounds.cli import EXIT_NOT_REACHED
from bounds.cli_options import add_common, add_workload, load_workload, number, require_feasible, write_json
from bounds.solving import add_solver, exit_code, solve_with_progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_workload(parser)
    parser.add_argument("--objective", metavar="A[,B]", help="default: the instance's, mostly makespan; several "
                        "separated by commas are minimised one after the other")  # fmt: skip
    parser.add_argument("--at-most", metavar="X", help="only ask whether there is a schedule of at most X ms, or "
                        "FACTOR*SCHEDULER (0.9*vllm: at most 0.9 of what vllm takes)")  # fmt: skip
    positive = number(0, exclusive=True)
    group = parser.add_argument_group("limits and rules")
    group.add_argument("--max-tpot", type=positive, metavar="MS", help="every request's TPOT at most this")
    group.add_argument("--max-batch-time", type=positive, metavar="MS", help="every batch at most this long")
    add_rules(group)
    add_solver(parser)
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Solve, print, write."""
    from bounds import report

    instance = require_feasible(load_workload(args), args)
    objective, rules = args.objective or instance.objective, rules_of(args)
    at_most = at_most_value(args.at_most, instance, objective)
    result, interrupted = solve_with_progress(
        instance, args, objective=objective, rules=rules, limits=limits_of(args), at_most=at_most
    )
    write_json(result.to_dict(), args.json)
    if args.json != "-":
        out = report.console()
        out.print(report.heading(instance), style="bold", soft_wrap=True)
        for line in answer_lines(result, at_most):
            out.print(line, soft_wrap=True)
    if at_most is not None and not interrupted:
        return EXIT_NOT_REACHED if result.status == "UNKNOWN" and args.require_optimal else 0
    return exit_code(result, args, interrupted=interrupted)
