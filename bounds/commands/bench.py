"""Benchmarks: preemption (whom to interrupt for an urgent request, and how), with the optimum beside the policies.

Cases that are done are kept in --out: an interrupted run goes on where it stopped. Writes tables (summary.csv,
decision_map.csv, breakeven_analysis.csv, fairness_analysis.csv, fairness_summary.csv, operational_recommendations.csv,
claims.csv, optimum.csv), plots/*.png and report.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path

from bounds.cli_options import integer, write_json
from sim.errors import InputError
from sim.registry import names, unknown

DEFAULT_SEEDS = 6


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("benchmark", choices=["preemption"], help="which one")
    parser.add_argument("--workloads", metavar="A,B", help="only these (list interrupt-workloads prints all)")
    parser.add_argument("--policies", metavar="A,B", help="only these (list interrupt-policies prints all)")
    parser.add_argument("--seeds", type=integer(1), default=DEFAULT_SEEDS, metavar="K",
                        help="runs of every case (%(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=integer(0), default=0, metavar="N", help="the first of them (default 0)")
    parser.add_argument(
        "--requests", type=integer(2), metavar="N", help="requests per run (default: the workload's own)"
    )
    parser.add_argument("--optimum-cases", type=integer(0), default=3, metavar="N",
                        help="shortened versions per workload to solve exactly (%(default)s)")  # fmt: skip
    parser.add_argument("--cost-model", metavar="NAME", help="default: the constants file's")
    parser.add_argument("--out", default="results", metavar="DIR", help="folder for results (%(default)s)")
    parser.add_argument("--no-plots", action="store_true", help="tables and report only")
    parser.add_argument("--workers", type=integer(1), default=os.cpu_count() or 1, metavar="K", help="processes")
    parser.add_argument("--json", metavar="FILE", help="write the claims and distances as JSON; - for stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run(args: argparse.Namespace) -> int:
    """Run, write, and print the claims."""
    from bounds.preemption_bench.report import write_suite
    from bounds.preemption_bench.suite import Options, run_suite
    from sim.cost.model import load_cost_model
    from sim.interrupts import constants

    workloads = _chosen(args.workloads, names("sim.interrupts.workloads"), "--workloads")
    policies = _chosen(args.policies, names("sim.interrupts.policies"), "--policies")
    cost_model = args.cost_model or constants.COST_MODEL
    load_cost_model(cost_model)
    options = Options(workloads, policies, tuple(range(args.seed, args.seed + args.seeds)), args.optimum_cases,
                      cost_model, args.requests)  # fmt: skip
    out = Path(args.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", source=str(out), field="--out") from None
    with _progress(args.quiet) as report:
        suite = run_suite(options, out, workers=args.workers, progress=report)
    written = write_suite(suite, out, figures=not args.no_plots)
    distance = suite.tables.get("optimum_distance")
    write_json({
        "schema_version": 1, "benchmark": "preemption", "seeds": list(options.seeds), "cost_model": cost_model,
        "claims": suite.tables["claims"].to_dict("records"),
        "distance": [] if distance is None else _plain(distance.to_dict("records")),
        "files": [str(path) for path in written],
    }, args.json)  # fmt: skip
    if args.json != "-":
        from bounds.table import format_table

        print(format_table(["claim", "original", "ours", "verdict"],
                           [[c.statement, c.original, c.ours, c.verdict] for c in suite.claims]))  # fmt: skip
        print(f"report: {out / 'report.md'}")
    return 0


def _chosen(text: str | None, known: Sequence[str], option: str) -> tuple[str, ...]:
    if text is None:
        return tuple(known)
    chosen = tuple(dict.fromkeys(word.strip().replace("-", "_") for word in text.split(",") if word.strip()))
    for word in chosen:
        if word not in known:
            raise InputError(unknown(word, list(known)), field=option)
    if not chosen:
        raise InputError("must name at least one", field=option, value=text)
    return chosen


def _plain(rows: Sequence[Mapping[Hashable, object]]) -> list[dict[str, object]]:
    """JSON has no NaN: unknown is null."""
    return [{str(key): None if value != value else value for key, value in row.items()} for row in rows]


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Cases done, on stderr: a live bar on a terminal, a line for every tenth part otherwise."""
    if quiet:
        yield lambda done, total, word: None
    elif not sys.stderr.isatty():
        yield (
            lambda done, total, word: (
                print(f"{done}/{total} cases", file=sys.stderr, flush=True)
                if not word or done % max(total // 10, 1) == 0
                else None
            )
        )
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done, total, word: bar.update(task, completed=done, total=total, description=word)
