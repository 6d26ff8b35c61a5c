"""Run schedulers on an instance or a trace: makespan, latencies, goodput, recompute tax, KV use, fairness."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from bounds.cli import EXIT_DONE, EXIT_INTERRUPTED
from bounds.cli_options import (
    add_common,
    add_workload,
    load_workload,
    number,
    require_cost_model,
    require_writable,
    write_bytes,
    write_json,
    write_text,
)
from bounds.simulation_report import Outcome, left_out_texts, outcome_to_dict, report
from sim.engine import Simulation, simulate
from sim.errors import InputError
from sim.instance import SCHEMA_VERSION, Instance
from sim.metrics import Slo, measure
from sim.schedulers import parse_name
from sim.tables import batches_table, requests_table, require_suffix, table_bytes
from sim.whatif import WhatIf, parse_what_if

DEFAULT_SCHEDULERS = "vllm,vllm_pf,sarathi,sarathi_pf"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_workload(parser)
    parser.add_argument("--schedulers", default=DEFAULT_SCHEDULERS, metavar="A,B", help=f"default {DEFAULT_SCHEDULERS}")
    engines = "event: from change to change; step: batch by batch; the same result (default auto)"
    parser.add_argument("--engine", choices=["auto", "event", "step"], default="auto", help=engines)
    group = parser.add_argument_group("what if", "each is simulated beside the workload as it is")
    group.add_argument("--what-if", action="append", default=[], metavar="CHANGES",
                       help="infinite-kv, kv=X, bandwidth=X, compute=X, perfect-bandwidth, gpu=NAME, cost-model=NAME; "
                       "joined by commas; may be given several times")  # fmt: skip
    group.add_argument("--scale-bandwidth", metavar="X", help="short for --what-if bandwidth=X")
    group.add_argument("--scale-compute", metavar="X", help="short for --what-if compute=X")
    group = parser.add_argument_group("service level")
    group.add_argument("--slo-ttft-ms", type=number(0), metavar="T", help="goodput: first token within T ms")
    group.add_argument("--slo-tpot-ms", type=number(0), metavar="T", help="goodput: T ms per output token on average")
    group = parser.add_argument_group("files")
    group.add_argument("--table", metavar="FILE", help="a row per request (.parquet or .csv)")
    group.add_argument("--batch-table", metavar="FILE", help="a row per batch (.parquet or .csv)")
    group.add_argument("--timeline", metavar="FILE", help="Chrome-trace JSON for ui.perfetto.dev")
    group.add_argument("--plots", metavar="DIR", help="figures: KV use over time, latencies")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate, print the tables, write what was asked for; Ctrl-C leaves the runs that were finished."""
    names = [name for name in args.schedulers.split(",") if name]
    if not names:
        raise InputError("name at least one scheduler", field="--schedulers", value=args.schedulers)
    for name in names:
        parse_name(name)
    for path in (args.table, args.batch_table):
        require_suffix(path)
    for path in (args.json, args.table, args.batch_table, args.timeline):
        require_writable(path)
    scenarios = _scenarios(args)
    instance = require_cost_model(load_workload(args), args.instance or args.trace)
    slo = None
    if args.slo_ttft_ms is not None or args.slo_tpot_ms is not None:
        slo = Slo(args.slo_ttft_ms, args.slo_tpot_ms)
    outcomes: list[Outcome] = []
    interrupted = False
    try:
        for scenario in scenarios:
            for name in names:
                outcomes.append(_outcome(instance, name, scenario, slo, args))
    except KeyboardInterrupt:
        if not outcomes:
            raise
        interrupted = True
        total = len(scenarios) * len(names)
        print(f"\nservebound: interrupted; {len(outcomes)} of {total} runs are finished and follow", file=sys.stderr)
    write_json(_to_dict(instance, outcomes), args.json)
    if args.json != "-":
        print(report(outcomes))
        for outcome in outcomes:
            for text in left_out_texts(outcome):
                print(text)
    _write_files(outcomes, args)
    return EXIT_INTERRUPTED if interrupted else EXIT_DONE


def _scenarios(args: argparse.Namespace) -> list[WhatIf | None]:
    texts = list(args.what_if)
    texts += [f"bandwidth={args.scale_bandwidth}"] if args.scale_bandwidth is not None else []
    texts += [f"compute={args.scale_compute}"] if args.scale_compute is not None else []
    return [None, *(parse_what_if(text) for text in texts)]


def _outcome(
    instance: Instance, name: str, scenario: WhatIf | None, slo: Slo | None, args: argparse.Namespace
) -> Outcome:
    cost = None
    if scenario is not None:
        instance, cost = scenario.apply(instance)
    started = time.perf_counter()
    result = simulate(instance, name, cost=cost, engine=args.engine)
    took_s = time.perf_counter() - started
    text = None if scenario is None else scenario.text
    outcome = Outcome(result, text, measure(result, cost=cost, slo=slo))
    if not args.quiet and took_s > 1:
        print(f"{outcome.label}: {len(result.replay.schedule):,} batches in {took_s:.1f} s", file=sys.stderr)
    return outcome


def _write_files(outcomes: list[Outcome], args: argparse.Namespace) -> None:
    runs = [Simulation(o.label, o.run.replay, o.run.infeasible, o.run.stalled) for o in outcomes]
    if args.table or args.batch_table:
        import pandas as pd

        if args.table:
            write_bytes(table_bytes(pd.concat([requests_table(r) for r in runs]), args.table), Path(args.table))
        if args.batch_table:
            write_bytes(table_bytes(pd.concat([batches_table(r) for r in runs]), args.batch_table),
                        Path(args.batch_table))  # fmt: skip
    if args.plots:
        _plot(runs, Path(args.plots))
    if args.timeline:
        from sim.timeline import timeline_json

        write_text(timeline_json(runs), Path(args.timeline))


def _plot(runs: list[Simulation], folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from bounds.plot import save_figure
    from sim.plot_run import LATENCIES, plot_kv, plot_latency

    name = runs[0].replay.instance.name
    figure, ax = plt.subplots(figsize=(9, 3.8), layout="constrained")
    plot_kv(runs, ax=ax)
    save_figure(figure, folder, f"{name}-kv-use")
    figure, panels = plt.subplots(1, len(LATENCIES), figsize=(13, 3.8), layout="constrained")
    for ax, latency in zip(panels, LATENCIES, strict=True):
        plot_latency(runs, latency, ax=ax)
    save_figure(figure, folder, f"{name}-latencies")


def _to_dict(instance: Instance, outcomes: list[Outcome]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "instance": instance.name, "requests": len(instance.requests),
            "schedulers": [outcome_to_dict(o) for o in outcomes]}  # fmt: skip
