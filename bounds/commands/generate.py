"""Draw a workload from distributions and write it as an instance or a trace."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import yaml

from bounds.cli_options import integer, write_text
from sim.errors import InputError
from sim.generate import Lengths, generate, parse_arrivals, parse_lengths
from sim.instance import DEFAULT_COST_MODEL, MAX_TOKENS, Instance

_SUFFIXES = (".yaml", ".yml", ".json", ".csv")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    lengths = (
        "const:N, uniform:A:B, normal:MEAN:DEV, lognormal:MEAN:DEV, gamma:MEAN:DEV, exponential:MEAN, "
        "pareto:LEAST:SHAPE"
    )
    parser.add_argument("--requests", type=integer(1), required=True, metavar="N", help="how many")
    parser.add_argument("--input-tokens", required=True, metavar="DIST", help=lengths)
    parser.add_argument("--output-tokens", required=True, metavar="DIST", help="the same choice")
    parser.add_argument("--arrivals", default="offline", metavar="PROCESS",
                        help="offline (default); constant:RATE, poisson:RATE or gamma:RATE:CV, per second")  # fmt: skip
    parser.add_argument("--longest", type=integer(1), default=MAX_TOKENS, metavar="T", help="no length above T tokens")
    parser.add_argument("--kv-capacity", type=integer(1), metavar="M", help="KV tokens that fit; not for .csv")
    parser.add_argument("--token-budget", type=integer(1), default=4096, metavar="C", help="tokens per batch (4096)")
    parser.add_argument(
        "--cost-model", default=DEFAULT_COST_MODEL, metavar="NAME", help=f"default {DEFAULT_COST_MODEL}"
    )
    parser.add_argument("--seed", type=integer(0), default=0, metavar="N", help="random seed (default 0)")
    parser.add_argument("--out", required=True, metavar="FILE", help="instance (.yaml, .json) or trace (.csv)")


def run(args: argparse.Namespace) -> int:
    """Draw and write."""
    import numpy as np

    path = Path(args.out)
    if path.suffix not in _SUFFIXES:
        raise InputError(f"must end in one of {', '.join(_SUFFIXES)}", field="--out", value=args.out)
    if path.suffix != ".csv" and args.kv_capacity is None:
        raise InputError("an instance needs --kv-capacity M, the KV tokens that fit in memory", field="--out",
                         value=args.out)  # fmt: skip
    inputs = _lengths(args.input_tokens, "--input-tokens", args)
    outputs = _lengths(args.output_tokens, "--output-tokens", args)
    instance = generate(
        args.requests, inputs, outputs, parse_arrivals(args.arrivals, "--arrivals"), np.random.default_rng(args.seed),
        kv_capacity_tokens=args.kv_capacity or 1, token_budget=args.token_budget, cost_model=args.cost_model,
        name=path.stem,
    )  # fmt: skip
    write_text(_text(instance, path.suffix), path)
    return 0


def _lengths(text: str, field: str, args: argparse.Namespace) -> Lengths:
    lengths = parse_lengths(text, field)
    return Lengths(lengths.kind, lengths.parameters, args.longest)


def _text(instance: Instance, suffix: str) -> str:
    if suffix == ".csv":
        rows = [f"{r.arrival_ns / 10**9:.9f},{r.input_tokens},{r.output_tokens}" for r in instance.requests]
        return "\n".join(["arrival_s,input_tokens,output_tokens", *rows]) + "\n"
    if suffix == ".json":
        return json.dumps(instance.to_dict(), indent=1) + "\n"
    return yaml.safe_dump(instance.to_dict(), sort_keys=False)
