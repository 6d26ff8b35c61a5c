"""Schedulers, the optimal schedule with its proof, and lower bounds, side by side.

Prints a table with one row per scheduler and the optimum's row, what is proven and by whom, the lower bounds with the
numbers that make them, and whether preemption breaks even here. --plots draws one figure per schedule and a comparison.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bounds.cli_options import add_common, add_workload, load_workload, require_feasible, write_json
from bounds.compare import DEFAULT_SCHEDULERS, Comparison
from bounds.lower import QUICK, bound_names, iter_bounds
from bounds.solving import add_solver, check_names, exit_code, solve_with_progress, stop_on_interrupt
from sim.errors import InputError, StoppedError

if TYPE_CHECKING:
    from csp.result import Bound
    from sim.cost.model import CostModel
    from sim.engine import Simulation
    from sim.instance import Instance


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_workload(parser)
    parser.add_argument("--schedulers", metavar="A,B", default=",".join(DEFAULT_SCHEDULERS),
                        help="schedulers to run (default %(default)s)")  # fmt: skip
    parser.add_argument("--plots", metavar="DIR", help="write figures into this folder")
    add_solver(parser)
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate, solve, bound; print and write."""
    from bounds import report
    from bounds.compare import rows, with_bounds
    from bounds.interval import first_schedule
    from sim.cost import load_cost_model

    began = time.monotonic()
    instance = require_feasible(load_workload(args), args)
    names = [name for name in args.schedulers.split(",") if name]
    if not names:
        raise InputError("name at least one scheduler", field="--schedulers", value=args.schedulers)
    cost = load_cost_model(instance.cost_model)
    check_names(args)
    with stop_on_interrupt() as stop:
        simulations = _simulations(instance, names, stop)
        bounds = _bounds(instance, cost, _bound_seconds(args), stop)
        first = first_schedule(instance, cost, simulations, bounds, _bound_seconds(args), stop)
        result, interrupted = solve_with_progress(instance, _from_now(args, began), warm_start=first.best, stop=stop,
                                                  cost=cost)  # fmt: skip
    if result.found_by == "warm start":
        result = replace(result, found_by=first.found_by)
    result = with_bounds(result, bounds)
    comparison = Comparison(instance, result, rows(simulations, result))

    write_json(comparison.to_dict(), args.json)
    if args.json != "-":
        out = report.console()
        out.print(report.heading(instance), style="bold", soft_wrap=True)
        out.print(report.comparison_table(comparison))
        for line in report.stalled_lines(comparison):
            out.print(line, soft_wrap=True)
        out.print(report.proof_sentence(result), soft_wrap=True)
        out.print("lower bounds, for every schedule:")
        for line in report.bound_lines(bounds):
            out.print(line, soft_wrap=True)
        out.print(report.breakeven_sentence(instance, cost), soft_wrap=True)
    if args.plots:
        paths = _draw(comparison, Path(args.plots))
        if args.json != "-":
            print(f"figures: {len(paths)} in {args.plots}: " + ", ".join(path.name for path in paths))
    return exit_code(result, args, interrupted=interrupted)


def _simulations(instance: Instance, names: Sequence[str], stop: threading.Event) -> list[Simulation]:
    """What each scheduler does, at least the first."""
    from sim.engine import simulate

    made: list[Simulation] = []
    with contextlib.suppress(StoppedError):
        for name in names:
            if made and stop.is_set():
                break
            made.append(simulate(instance, name, until=lambda: bool(made) and stop.is_set()))
    return made


def _bounds(instance: Instance, cost: CostModel, seconds: float, stop: threading.Event) -> tuple[Bound, ...]:
    """The bounds that apply, strongest first, each within some seconds; once stopped, the quick ones."""
    made: list[Bound] = []
    for name in bound_names():
        if name in QUICK or not stop.is_set():
            made += iter_bounds(instance, cost, only=[name], time_limit_s=seconds)
    return tuple(sorted(made, key=lambda bound: -bound.value_ticks))


def _bound_seconds(args: argparse.Namespace) -> float:
    """Seconds for each lower bound: a part of the limit, and ten at most."""
    return min(10.0, 10.0 if args.time_limit is None else args.time_limit / 4)


def _from_now(args: argparse.Namespace, began: float) -> argparse.Namespace:
    """The options with what is left of the time limit, at least a tenth of it."""
    if args.time_limit is None:
        return args
    left = max(args.time_limit / 10, args.time_limit - (time.monotonic() - began))
    return argparse.Namespace(**vars(args) | {"time_limit": left})


def _draw(comparison: Comparison, folder: Path) -> list[Path]:
    import matplotlib

    matplotlib.use("Agg")
    from bounds.plot import comparison_figure, save_figure
    from sim.plot import schedule_figure

    name = comparison.instance.name
    figures = [(f"{name}-comparison", comparison_figure(comparison))]
    best = comparison.result.replay
    if best is not None:
        word = "optimum" if comparison.result.status == "OPTIMAL" else "best schedule found"
        title = f"{name} · {word} · makespan {best.makespan_ms:.3f} ms"
        figures.append((f"{name}-best", schedule_figure(best, title)))
    for row in comparison.rows:
        scheduler, replayed = row.simulation.scheduler, row.simulation.replay
        if replayed.records:
            title = f"{name} · {scheduler} · makespan {replayed.makespan_ms:.3f} ms"
            figures.append((f"{name}-{scheduler}", schedule_figure(replayed, title)))
    return [save_figure(figure, folder, label) for label, figure in figures]
