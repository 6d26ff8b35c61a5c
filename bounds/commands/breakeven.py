"""Up to which length preempting pays, in both readings, under one or several cost models.

With INSTANCE it also says whether preempting can pay there.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from bounds.breakeven import Breakeven, breakeven
from bounds.cli_options import integer, require_cost_model, write_json
from sim.cost import cost_model_names, load_cost_model
from sim.instance import DEFAULT_COST_MODEL, Instance, load_instance


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("instance", nargs="?", metavar="INSTANCE", help="instance file or shipped name, for a verdict")
    parser.add_argument("--cost-model", action="append", metavar="NAME",
                        help=f"name or file; repeatable (default: INSTANCE's, or {DEFAULT_COST_MODEL})")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="every shipped cost model")
    parser.add_argument("--base-tokens", type=integer(1), metavar="N",
                        help="tokens of the fill a refill joins (default: as many as the request's KVs); "
                        "matters only for costs with several pieces")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - for stdout")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="save a figure per cost model here")


def run(args: argparse.Namespace) -> int:
    """Print the table, write JSON and figures."""
    instance = None if args.instance is None else load_instance(args.instance)
    if instance is not None and not args.cost_model:
        require_cost_model(instance, args.instance)
    found = [breakeven(load_cost_model(name), base_tokens=args.base_tokens) for name in _names(args, instance)]
    if args.json != "-":
        _print(found, instance)
    entries = [_entry(one, instance) for one in found]
    write_json({"schema_version": 1} | (entries[0] if len(entries) == 1 else {"cost_models": entries}), args.json)
    if args.plots is not None:
        from bounds.cost_plots import plot_breakeven, save_plot

        for one in found:
            save_plot(plot_breakeven(one), args.plots, "breakeven-" + re.sub(r"[^\w.-]+", "-", one.cost.name))
    return 0


def _names(args: argparse.Namespace, instance: Instance | None) -> list[str]:
    names = list(args.cost_model or [])
    if args.all:
        names += [name for name in cost_model_names() if name not in names]
    return names or [DEFAULT_COST_MODEL if instance is None else instance.cost_model]


def _entry(found: Breakeven, instance: Instance | None) -> dict[str, Any]:
    entry = found.to_dict() | {"optimum_stops_at": None}
    if instance is not None:
        entry |= {"instance": instance.name, "verdict": found.verdict(instance).to_dict()}
    return entry


def _print(found: list[Breakeven], instance: Instance | None) -> None:
    width = max(len("cost model"), *(len(one.cost.name) for one in found))
    print("preempting a request that holds x KVs pays for")
    print(f"{'cost model':<{width}}  {'literal':>14}  {'marginal':>14}  {'with entry':>14}")
    for one in found:
        readings = (one.literal, one.marginal, one.marginal_entry)
        print(f"{one.cost.name:<{width}}  " + "  ".join(f"{reading.holds:>14}" for reading in readings))
    if instance is None:
        return
    print(f"\npreempt on {instance.name}?")
    for one in found:
        print(f"{one.cost.name:<{width}}  {one.verdict(instance).reason}")
