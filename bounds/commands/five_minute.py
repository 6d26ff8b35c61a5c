"""After how long unused KVs are cheaper dropped than kept, against how soon a workload reuses them.

T_break(m) = t_recompute(m) x M / m, per cost model; reuse intervals from simulated schedules of INSTANCE or a trace.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bounds.cli_options import add_common, add_workload, load_workload, write_json
from bounds.five_minute import FiveMinute, Reuses, break_even_s, five_minute, reuses
from bounds.table import format_table
from sim.cost import load_cost_model
from sim.engine import simulate
from sim.schedulers import parse_name

DEFAULT_SCHEDULERS = "vllm,sarathi"
KV_TOKENS = (1, 10, 100, 1_000, 4_096)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_workload(parser)
    parser.add_argument("--schedulers", default=DEFAULT_SCHEDULERS, metavar="A,B", help=f"default {DEFAULT_SCHEDULERS}")
    add_common(parser)
    parser.add_argument("--plots", type=Path, metavar="DIR", help="save a figure per scheduler here")


def run(args: argparse.Namespace) -> int:
    """Simulate, print the tables and the verdict, write JSON and figures."""
    names = [name for name in args.schedulers.split(",") if name]
    for name in names:
        parse_name(name)
    instance = load_workload(args)
    cost, capacity = load_cost_model(instance.cost_model), instance.kv_capacity_tokens
    found: list[tuple[FiveMinute, Reuses]] = []
    for name in names:
        seen = reuses(simulate(instance, name).replay)
        found.append((five_minute(name, cost, capacity, seen), seen))
    limits = [
        {"kv_tokens": m, "break_even_s": break_even_s(cost, m, capacity),
         "break_even_joining_s": break_even_s(cost, m, capacity, joined=True)}
        for m in KV_TOKENS if m <= capacity
    ]  # fmt: skip
    if args.json != "-":
        print(f"{instance.name}, {cost.name}, M = {capacity:,}: T_break in seconds, recomputing in a batch of its own "
              "or joining one")  # fmt: skip
        print(format_table(["KVs", "own batch", "joining"], [list(limit.values()) for limit in limits]))
        print()
        _print([one for one, _ in found])
    write_json({"schema_version": 1, "instance": instance.name, "cost_model": cost.name,
                "kv_capacity_tokens": capacity, "limits": limits,
                "schedulers": [one.to_dict() for one, _ in found]}, args.json)  # fmt: skip
    if args.plots is not None:
        from bounds.cost_plots import plot_five_minute, save_plot

        for one, seen in found:
            save_plot(plot_five_minute(one, seen), args.plots, f"five-minute-{instance.name}-{one.scheduler}")
    return 0


def _print(found: list[FiveMinute]) -> None:
    rows: list[list[object]] = []
    for one in found:
        _, median, p99, largest = one.interval_s or (None, None, None, None)
        least = None if one.break_even_s is None else one.break_even_s[0]
        rows.append([one.scheduler, one.count, median, p99, largest, least, one.longest_share,
                     one.longest_share_joined])  # fmt: skip
    print(format_table(["scheduler", "reuses", "median s", "99 % s", "largest s", "least T_break s",
                        "largest share", "joining"], rows))  # fmt: skip
    for one in found:
        print(f"{one.scheduler}: {one.verdict}")
