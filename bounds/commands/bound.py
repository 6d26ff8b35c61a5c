"""Say how far from optimal schedules can be, on a workload of any size: lower <= optimum <= upper.

Prints the interval, each lower bound with its value and time, and each scheduler's certified distance from the optimum
("at most x % above"). The search stops when --time-limit is over or the gap is at most --until-gap.
"""

from __future__ import annotations

import argparse

from bounds.cli import EXIT_DONE, EXIT_INTERRUPTED, EXIT_NOT_REACHED
from bounds.cli_options import add_common, add_workload, load_workload, require_feasible, write_json
from bounds.compare import DEFAULT_SCHEDULERS, RANKED
from bounds.solving import gap, progress_line, stop_on_interrupt
from sim.errors import InputError
from sim.schedulers import parse_name


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_workload(parser)
    parser.add_argument("--schedulers", metavar="A,B", default=",".join(DEFAULT_SCHEDULERS),
                        help="schedulers to run (default %(default)s)")  # fmt: skip
    parser.add_argument("--objective", choices=RANKED, default="makespan", help="what is minimised (default makespan)")
    parser.add_argument("--until-gap", type=gap, metavar="G",
                        help='stop at this gap, "3%%" or 0.03; exit 1 unless it is reached')  # fmt: skip
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Bound, simulate, improve; print and write."""
    from bounds import report
    from bounds.interval import find_interval

    names = [name for name in args.schedulers.split(",") if name]
    if not names:
        raise InputError("name at least one scheduler", field="--schedulers", value=args.schedulers)
    for name in names:
        parse_name(name)
    instance = require_feasible(load_workload(args), args)
    with progress_line(quiet=args.quiet) as progress, stop_on_interrupt() as stop:
        comparison = find_interval(
            instance, names, objective=args.objective, time_limit_s=args.time_limit, until_gap=args.until_gap or 0.0,
            seed=args.seed, progress=progress, stop=stop,
        )  # fmt: skip
    write_json(comparison.to_dict(), args.json)
    if args.json != "-":
        out = report.console()
        out.print(report.heading(instance), style="bold", soft_wrap=True)
        out.print(report.interval_sentence(comparison.result), soft_wrap=True)
        out.print(report.distance_table(comparison))
        for line in report.stalled_lines(comparison):
            out.print(line, soft_wrap=True)
        for line in report.window_lines(comparison):
            out.print(line, soft_wrap=True)
        out.print("lower bounds, for every schedule:")
        for line in report.bound_lines(comparison.result.bounds):
            out.print(line, soft_wrap=True)
    if stop.is_set():
        return EXIT_INTERRUPTED
    reached = comparison.result.gap is not None and comparison.result.gap <= (args.until_gap or 0.0)
    return EXIT_DONE if args.until_gap is None or reached else EXIT_NOT_REACHED
