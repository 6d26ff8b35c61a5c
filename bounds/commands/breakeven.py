"""Up to which length preempting pays, in both readings, under one or several cost models.

With INSTANCE it also says whether preempting can pay there. With --optimum it finds the I at which the exact optimum of
the family of the paper's section 7.2 stops preempting, to check the readings against.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds.breakeven import Breakeven, Reading, breakeven
from bounds.cli_options import integer, number, write_json
from bounds.table import format_table
from sim.cost import cost_model_names, load_cost_model
from sim.instance import DEFAULT_COST_MODEL, Instance, load_instance

if TYPE_CHECKING:
    from bounds.breakeven_optimum import OptimumStop


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("instance", nargs="?", metavar="INSTANCE", help="instance file or shipped name, for a verdict")
    parser.add_argument("--cost-model", action="append", metavar="NAME",
                        help=f"name or file; repeatable (default: INSTANCE's, or {DEFAULT_COST_MODEL})")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="every shipped cost model")
    parser.add_argument("--base-tokens", type=integer(1), metavar="N",
                        help="tokens of the fill a refill joins (default: as many as the request's KVs); "
                        "matters only for costs with several pieces")  # fmt: skip
    parser.add_argument("--optimum", action="store_true",
                        help="find where the optimum of the section 7.2 family stops preempting (slow)")  # fmt: skip
    parser.add_argument("--time-limit", type=number(0, exclusive=True), default=60.0, metavar="S",
                        help="seconds per solve with --optimum (default 60)")  # fmt: skip
    parser.add_argument("--workers", type=integer(1), default=1, metavar="K", help="threads per solve (default 1)")
    parser.add_argument("--seed", type=integer(0), default=0, metavar="N", help="random seed (default 0)")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - for stdout")
    parser.add_argument("--plots", type=Path, metavar="DIR",
                        help="save a figure per cost model here, and one of all if there are several")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Row:
    found: Breakeven
    optimum: OptimumStop | None


def run(args: argparse.Namespace) -> int:
    """Print the table, write JSON and figures."""
    instance = None if args.instance is None else load_instance(args.instance)
    rows = [_row(name, args) for name in _names(args, instance)]
    if args.json != "-":
        _print(rows, instance)
    entries = [_entry(row, instance) for row in rows]
    write_json({"schema_version": 1} | (entries[0] if len(entries) == 1 else {"cost_models": entries}), args.json)
    if args.plots is not None:
        from bounds.cost_plots import plot_breakeven, plot_breakevens, save_plot

        for row in rows:
            save_plot(plot_breakeven(row.found), args.plots, f"breakeven-{row.found.cost.name}")
        if len(rows) > 1:
            stops = [None if row.optimum is None else row.optimum.input_tokens for row in rows]
            save_plot(plot_breakevens([row.found for row in rows], stops), args.plots, "breakeven-all")
    return 0


def _names(args: argparse.Namespace, instance: Instance | None) -> list[str]:
    names = list(args.cost_model or [])
    if args.all:
        names += [name for name in cost_model_names() if name not in names]
    return names or [DEFAULT_COST_MODEL if instance is None else instance.cost_model]


def _row(name: str, args: argparse.Namespace) -> _Row:
    cost = load_cost_model(name)
    found = breakeven(cost, base_tokens=args.base_tokens)
    if not args.optimum:
        return _Row(found, None)
    from bounds.breakeven_optimum import optimum_stops_at

    def progress(input_tokens: int, gain: float) -> None:
        if not args.quiet:
            print(f"{cost.name}: I = {input_tokens}, preempting gains {gain:.2%}", file=sys.stderr)

    return _Row(found, optimum_stops_at(cost, time_limit_s=args.time_limit, workers=args.workers, seed=args.seed,
                                        progress=progress))  # fmt: skip


def _entry(row: _Row, instance: Instance | None) -> dict[str, Any]:
    entry = row.found.to_dict() | {"optimum_stops_at": None}
    if row.optimum is not None:
        entry |= {"optimum_stops_at": row.optimum.input_tokens, "optimum_reason": row.optimum.reason,
                  "optimum_gains": [{"input_tokens": i, "gain": gain} for i, gain in row.optimum.gains]}  # fmt: skip
    if instance is not None:
        entry |= {"instance": instance.name, "verdict": row.found.verdict(instance).to_dict()}
    return entry


def _print(rows: list[_Row], instance: Instance | None) -> None:
    header = ["cost model", "literal", "marginal", "with entry"]
    table: list[list[object]] = []
    for row in rows:
        readings: tuple[Reading, ...] = (row.found.literal, row.found.marginal, row.found.marginal_entry)
        table.append([row.found.cost.name, *(reading.holds for reading in readings)])
        if row.optimum is not None:
            table[-1].append(row.optimum.reason or f"I < {row.optimum.input_tokens}")
    print("preempting a request that holds x KVs pays for")
    print(format_table([*header, "optimum preempts"] if any(row.optimum for row in rows) else header, table))
    if instance is None:
        return
    print(f"\npreempt on {instance.name}?")
    verdicts = [[row.found.cost.name, row.found.verdict(instance).reason] for row in rows]
    print(format_table(["cost model", "verdict"], verdicts))
