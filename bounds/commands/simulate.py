"""Run schedulers on an instance or a trace and print what came out."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from bounds.cli_options import add_common, add_workload, load_workload, write_json
from bounds.table import format_table
from sim.engine import Simulation, simulate
from sim.errors import InputError
from sim.instance import SCHEMA_VERSION, Instance
from sim.metrics import summary
from sim.schedulers import parse_name

DEFAULT_SCHEDULERS = "vllm,vllm_pf,sarathi,sarathi_pf"
_HEADER = ["scheduler", "makespan ms", "batches", "preempt.", "refilled", "TTFT ms", "TPOT ms"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_workload(parser)
    parser.add_argument("--schedulers", default=DEFAULT_SCHEDULERS, metavar="A,B", help=f"default {DEFAULT_SCHEDULERS}")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate, print a row per scheduler, write what was asked for."""
    names = [name for name in args.schedulers.split(",") if name]
    if not names:
        raise InputError("name at least one scheduler", field="--schedulers", value=args.schedulers)
    for name in names:
        parse_name(name)
    instance = load_workload(args)
    runs = [simulate(instance, name) for name in names]
    if args.json != "-":
        rows = [[r.scheduler, *asdict(summary(r)).values()] for r in runs]
        print(format_table(_HEADER, rows))
        for r in runs:
            for text in _left_out(r, instance):
                print(text)
    write_json(_to_dict(instance, runs), args.json)
    return 0


def _left_out(result: Simulation, instance: Instance) -> list[str]:
    texts = []
    for what, who in (("can never fit in memory", result.infeasible), ("never finished", result.stalled)):
        if who:
            named = ", ".join(instance.ids[i] for i in who[:5]) + (", ..." if len(who) > 5 else "")
            texts.append(f"{result.scheduler}: {len(who)} of {len(instance.requests)} requests {what}: {named}")
    return texts


def _to_dict(instance: Instance, runs: list[Simulation]) -> dict[str, Any]:
    schedulers = [
        {"name": r.scheduler, **asdict(summary(r)), "infeasible": [instance.ids[i] for i in r.infeasible],
         "stalled": [instance.ids[i] for i in r.stalled]}
        for r in runs
    ]  # fmt: skip
    return {"schema_version": SCHEMA_VERSION, "instance": instance.name, "requests": len(instance.requests),
            "schedulers": schedulers}  # fmt: skip
