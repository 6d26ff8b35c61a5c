"""Re-check a result without its solver: what is confirmed, what is refuted, what rests on the solver.

The schedule is replayed exactly; each bound is recomputed in exact arithmetic; the heuristic schedules are tried
against the claimed lower bound. Exit code 1 when a claim is refuted. Describe the workload as when the result was made.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from bounds.answers import rules_of
from bounds.cli_options import add_common, add_workload, feasible_part, load_workload, write_json
from sim.errors import InputError
from sim.files import parse_text, read_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("result", metavar="RESULT", help="result file of solve, compare or bound")
    add_workload(parser)
    group = parser.add_argument_group("rules the result was made under")
    group.add_argument("--no-preemption", action="store_true", help="preemption was forbidden")
    group.add_argument("--no-chunking", action="store_true", help="fills split over batches were forbidden")
    group.add_argument("--no-hybrid", action="store_true", help="prefill and decode in one batch were forbidden")
    group.add_argument("--no-holding", action="store_true", help="holding KVs without being processed was forbidden")
    group.add_argument("--swap", metavar="MS:MS[:overlap]", help="swapping was allowed over this link")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Re-check and print the findings."""
    from bounds.certify import certify, lines

    data = parse_text(read_text(Path(args.result)), args.result)
    if not isinstance(data, Mapping):
        raise InputError("a result must be a mapping", source=args.result)
    instance = load_workload(args)
    if args.drop_infeasible:
        instance = feasible_part(instance, args.instance or args.trace)
    limit = 30.0 if args.time_limit is None else args.time_limit
    certificate = certify(data, instance, rules=rules_of(args), time_limit_s=limit, source=args.result)
    if args.json != "-":
        for line in lines(certificate):
            print(line)
    write_json(certificate.to_dict(), args.json)
    return 1 if certificate.verdict() == "refuted" else 0
