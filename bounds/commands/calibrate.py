"""Fit a cost model to measured profiles, or to the log of your own engine.

PROFILE is a file in one of these formats, recognised by its columns, or the word "aiconfigurator" for the tables of the
installed package aiconfigurator-core: Vidur's non-attention, attention and all-reduce profiles; tables of gemm, context
and generation attention; or a log of batches (CSV or JSON lines, one row a batch: n_prefill, n_decode, tokens,
prefill_square, prefill_reads, decode_reads, batch_ms, or for short n_p, n_d, T, Q, P, D, ms). Operator profiles must
cover a whole layer together.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bounds.cli_options import integer, write_json, write_text
from sim.cost.hardware import find_gpu
from sim.cost.llm import find_llm
from sim.cost.setups import Setup
from sim.errors import InputError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("profiles", nargs="+", metavar="PROFILE", help="measured profiles; see above")
    parser.add_argument("--llm", metavar="NAME", help="as in servebound roofline; not needed for an engine log")
    parser.add_argument("--gpu", metavar="NAME", help="a100, h100 or h200; not needed for an engine log")
    parser.add_argument("--tp", type=integer(1), default=1, metavar="N", help="tensor parallel degree (default 1)")
    parser.add_argument("--layers", type=integer(1), metavar="N", help="layers, for an engine log without --llm")
    parser.add_argument("--kind", choices=("linear", "max-affine"), default="max-affine", help="default max-affine")
    parser.add_argument("--max-pieces", type=integer(1), default=3, metavar="K",
                        help="most pieces per operator group (default 3); cross-validation chooses")  # fmt: skip
    parser.add_argument("--name", metavar="NAME", help="name of the cost model in its file")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the cost model here (.json)")
    parser.add_argument("--seed", type=integer(0), default=0, metavar="N", help="random seed (default 0)")
    parser.add_argument("--json", metavar="FILE", help="write the error table as JSON; - for stdout")


def run(args: argparse.Namespace) -> int:
    """Fit, print the error table, write the files."""
    from sim.cost.fit.calibrate import calibrate, least_squares_line
    from sim.cost.fit.errors import error_table
    from sim.cost.fit.profiles import read_profiles

    if (args.llm is None) != (args.gpu is None):
        raise InputError("give both --llm and --gpu, or neither (for an engine log)")
    setup = None if args.llm is None else Setup(find_llm(args.llm), find_gpu(args.gpu), args.tp)
    profiles = [p for source in args.profiles for p in read_profiles(source, args.gpu)]
    found = calibrate(profiles, setup, kind=args.kind, layers=args.layers, most_pieces=args.max_pieces,
                      seed=args.seed, name=args.name, command=_command(args))  # fmt: skip
    if args.json != "-":
        print(f"{found.cost.name}: relative errors of the fit")
        lines = [least_squares_line(one) for one in found.samples if one.group == "non-attention"]
        print(error_table([*found.errors, *lines]))
        for note in found.document["fit"]["notes"]:
            print(f"note: {note}")
    write_json({"schema_version": 1, "cost_model": found.cost.name, "kind": args.kind, "fit": found.document["fit"]},
               args.json)  # fmt: skip
    if args.out is not None:
        write_text(json.dumps(found.document, indent=1) + "\n", args.out)
    return 0


def _command(args: argparse.Namespace) -> str:
    """The command that repeats the fit, run in the folder of the profiles."""
    words = ["servebound calibrate", *(Path(source).name for source in args.profiles)]
    if args.llm is not None:
        words.append(f"--llm {args.llm} --gpu {args.gpu}" + (f" --tp {args.tp}" if args.tp > 1 else ""))
    words += [f"--layers {args.layers}"] if args.layers else []
    words.append(f"--kind {args.kind}")
    words += [f"--max-pieces {args.max_pieces}"] if args.max_pieces != 3 else []
    words += [f"--seed {args.seed}"] if args.seed else []
    words += [f"--out {args.out.name}"] if args.out is not None else []
    return " ".join(words)
