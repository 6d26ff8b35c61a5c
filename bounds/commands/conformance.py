"""Repeat reference runs of real schedulers and say where ours differ.

FILE holds one run per line (JSON, plain or gzipped) of vLLM's scheduler classes or of Kim et al.'s simulator; the
format is detected. Exit code 1 when a run differs.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bounds.cli_options import add_common, write_json
from sim.conformance import Outcome, check, read_records
from sim.errors import InputError
from sim.instance import SCHEMA_VERSION
from sim.schedulers import parse_name


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="reference runs, .jsonl or .jsonl.gz")
    parser.add_argument("--scheduler", metavar="NAME", help="compare with this one instead of the one a run names")
    parser.add_argument("--only", metavar="TEXT", help="only runs whose name contains TEXT")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Check every run; print differences, notes and the count."""
    if args.scheduler is not None:
        parse_name(args.scheduler)
    show_progress = sys.stderr.isatty() and not args.quiet
    outcomes: list[Outcome] = []
    for path in args.files:
        for record in read_records(path):
            if args.only is not None and args.only not in record.name:
                continue
            outcome = check(record, args.scheduler)
            outcomes.append(outcome)
            if args.json != "-":
                _show(outcome)
            if show_progress:
                print(f"\r{len(outcomes)} runs", end="", file=sys.stderr, flush=True)
    if show_progress:
        print(file=sys.stderr)
    if not outcomes:
        raise InputError("no run of these files has such a name", field="--only", value=args.only)
    compared = [o for o in outcomes if o.skipped is None]
    matched = sum(o.matched for o in compared)
    if args.json != "-":
        print(f"matched {matched}/{len(compared)}, skipped {len(outcomes) - len(compared)}")
    write_json(_to_dict(outcomes, matched, len(compared)), args.json)
    return 0 if matched == len(compared) else 1


def _show(outcome: Outcome) -> None:
    if outcome.difference is not None:
        print(f"{outcome.name} ({outcome.scheduler}): {outcome.difference.where}: {outcome.difference.what} differs\n"
              f"  reference: {outcome.difference.expected}\n  here:      {outcome.difference.got}")  # fmt: skip
    elif outcome.skipped is not None:
        print(f"{outcome.name}: skipped: {outcome.skipped}")
    elif outcome.note is not None:
        print(f"{outcome.name}: {outcome.note}")


def _to_dict(outcomes: list[Outcome], matched: int, compared: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for o in outcomes:
        row: dict[str, Any] = {"name": o.name, "scheduler": o.scheduler, "matched": o.matched}
        row |= {"skipped": o.skipped, "note": o.note, "difference": None}
        if o.difference is not None:
            row["difference"] = {"where": o.difference.where, "what": o.difference.what,
                                 "expected": o.difference.expected, "got": o.difference.got}  # fmt: skip
        rows.append(row)
    return {"schema_version": SCHEMA_VERSION, "matched": matched, "compared": compared,
            "skipped": len(outcomes) - compared, "runs": rows}  # fmt: skip
