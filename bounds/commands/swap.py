"""Is it quicker to recompute KVs or to swap them in, per link and number of KVs.

Times are for the whole LLM. "own batch" recomputes in a batch of its own, "joining" counts what recomputing adds to a
batch that prefills anyway. Swapping moves the KV bytes over the link at its full rate unless --efficiency says less.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bounds.cli_options import integer, number, write_json
from bounds.swap import (
    DEFAULT_LATENCY_US,
    Comparison,
    Swap,
    break_even_bandwidth,
    compare,
    gpu_read_ms,
    links,
    recompute_ms,
    setup_of,
)
from bounds.table import format_table
from sim.cost import CostModel, load_cost_model
from sim.cost.hardware import find_gpu
from sim.cost.llm import find_llm
from sim.cost.setups import Setup
from sim.errors import InputError
from sim.instance import DEFAULT_COST_MODEL

KV_TOKENS = (1, 10, 100, 1_000, 10_000)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--cost-model", action="append", metavar="NAME",
                        help=f"name or file; repeatable (default {DEFAULT_COST_MODEL})")  # fmt: skip
    parser.add_argument("--link", action="append", metavar="NAME",
                        help="pcie3, pcie4, pcie5, pcie6, nvlink-c2c; repeatable (default all)")  # fmt: skip
    parser.add_argument("--latency-us", type=number(0), default=DEFAULT_LATENCY_US, metavar="US",
                        help=f"fixed time of a copy (default {DEFAULT_LATENCY_US:g})")  # fmt: skip
    parser.add_argument("--block-tokens", type=integer(1), metavar="B",
                        help="KVs lie scattered in blocks of B tokens, a copy for K and V of each layer and block "
                        "(default: one copy moves all)")  # fmt: skip
    parser.add_argument("--efficiency", type=number(0, exclusive=True), default=1.0, metavar="X",
                        help="share of the link's bandwidth reached (default 1)")  # fmt: skip
    parser.add_argument("--round-trip", action="store_true", help="charge the way out too")
    parser.add_argument("--llm", metavar="NAME", help="with --gpu, instead of what the cost model's name tells")
    parser.add_argument("--gpu", metavar="NAME", help="with --llm")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - for stdout")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="save a figure per cost model here")


def run(args: argparse.Namespace) -> int:
    """Print the tables, write JSON and figures."""
    if args.efficiency > 1:
        raise InputError("must be at most 1", field="--efficiency", value=args.efficiency)
    if (args.llm is None) != (args.gpu is None):
        raise InputError("give --llm and --gpu together", field="--llm" if args.llm is None else "--gpu")
    results = []
    for name in args.cost_model or [DEFAULT_COST_MODEL]:
        cost = load_cost_model(name)
        named = args.llm is not None and args.gpu is not None
        setup = Setup(find_llm(args.llm), find_gpu(args.gpu)) if named else setup_of(cost)
        how = (args.latency_us, args.block_tokens, args.efficiency, 2 if args.round_trip else 1)
        found = [compare(cost, Swap(setup, link, *how)) for link in links(args.link or [])]
        results.append(_entry(cost, setup, found))
        if args.json != "-":
            _print(cost, setup, found)
        if args.plots is not None:
            from bounds.cost_plots import plot_swap, save_plot

            save_plot(plot_swap(cost, setup, found), args.plots, f"swap-{cost.name}")
    write_json({"schema_version": 1, "cost_models": results}, args.json)
    return 0


def _print(cost: CostModel, setup: Setup, found: list[Comparison]) -> None:
    print(f"{cost.name}: {setup.shard.kv_bytes_per_token():,} bytes of KVs per token and GPU")
    header = ["ms for KVs", "own batch", "joining", *(one.swap.link.title for one in found), "GPU memory",
              "break-even GB/s"]  # fmt: skip
    rows = [
        [f"{m:,}", recompute_ms(cost, m), recompute_ms(cost, m, joined=True),
         *(one.swap.time_ms(m) for one in found), gpu_read_ms(setup, m),
         break_even_bandwidth(cost, setup, m) / 1e9]
        for m in KV_TOKENS
    ]  # fmt: skip
    print(format_table(header, rows))
    rows = [[one.swap.link.title, _words(one.faster_alone), _words(one.faster_joined)] for one in found]
    print(format_table(["swapping in is quicker", "than an own batch", "than joining a batch"], rows))
    print()


def _words(intervals: tuple[tuple[float, float | None], ...]) -> str:
    if not intervals:
        return "never"
    if intervals == ((1.0, None),):
        return "always"
    return " and ".join(f"above {a:,.1f}" if b is None else f"below {b:,.1f}" if a == 1.0 else f"{a:,.1f} to {b:,.1f}"
                        for a, b in intervals)  # fmt: skip


def _entry(cost: CostModel, setup: Setup, found: list[Comparison]) -> dict[str, Any]:
    table = [
        {"kv_tokens": m, "recompute_own_batch_ms": recompute_ms(cost, m),
         "recompute_joining_ms": recompute_ms(cost, m, joined=True), "gpu_memory_read_ms": gpu_read_ms(setup, m),
         "break_even_gb_per_s": break_even_bandwidth(cost, setup, m) / 1e9,
         "swap_ms": {one.swap.link.name: one.swap.time_ms(m) for one in found}}
        for m in KV_TOKENS
    ]  # fmt: skip
    return {"cost_model": cost.name, "kv_bytes_per_token": setup.shard.kv_bytes_per_token(), "times": table,
            "links": [one.to_dict() for one in found]}  # fmt: skip
