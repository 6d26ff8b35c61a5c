"""Write an instance's integer program as MPS or LP, for any solver."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bounds.cli_options import add_workload, load_workload, require_feasible, write_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_workload(parser)
    parser.add_argument("--formulation", default="flow", metavar="NAME", help="flow (default) or bigm")
    parser.add_argument("--objective", metavar="NAME", help="default: the instance's, mostly makespan")
    parser.add_argument("--format", default="mps", choices=("mps", "lp"), help="default mps")
    parser.add_argument("--out", required=True, metavar="FILE", help="file to write; - for stdout")


def run(args: argparse.Namespace) -> int:
    """Build the program with the best heuristic schedule's horizon and write it; times are in ms."""
    from csp.export import lp_text, mps_text
    from csp.solve import prepare

    instance = require_feasible(load_workload(args), args)
    problem = prepare(instance, objective=args.objective or instance.objective, formulation=args.formulation)
    formulated = problem.build()
    text = (mps_text if args.format == "mps" else lp_text)(formulated.program)
    if args.out == "-":
        sys.stdout.write(text)
        return 0
    write_text(text, Path(args.out))
    program = formulated.program
    print(f"{args.out}: {len(program.names):,} variables, {len(program.rows):,} constraints, "
          f"at most {formulated.horizon} batches")  # fmt: skip
    return 0
