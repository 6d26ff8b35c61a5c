"""Replay a schedule file against an instance and say whether it keeps every rule.

Exit code 1 when a rule is broken, naming the rule, the batch and the request.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bounds.cli_options import add_common, require_cost_model, write_json
from sim.instance import load_instance
from sim.replay import Replay, RuleError, Rules, replay
from sim.schedule import load_schedule


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("schedule", metavar="SCHEDULE", help="schedule file, or a result file that holds one")
    parser.add_argument("instance", metavar="INSTANCE", help="instance file or shipped name")
    parser.add_argument(
        "--cost-model", metavar="NAME", help="time it by another cost model (claimed times are not checked)"
    )
    parser.add_argument("--allow-empty", action="store_true",
                        help="accept batches that process nothing, as real engines make")  # fmt: skip
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Check the schedule and print its figures, or the broken rule."""
    instance = load_instance(args.instance)
    if args.cost_model is not None:
        instance = instance.replace(cost_model=args.cost_model)
    require_cost_model(instance, "--cost-model" if args.cost_model else args.instance)
    schedule, claimed = load_schedule(args.schedule, instance)
    rules = Rules(allow_empty=args.allow_empty)
    try:
        checked = replay(instance, schedule, rules=rules, claimed_ns=None if args.cost_model else claimed)
    except RuleError as error:
        print(f"{args.schedule}: {error}", file=sys.stderr)
        write_json({"schema_version": 1, "valid": False, "rule": error.rule, "batch": error.batch,
                    "request": error.request, "detail": error.detail}, args.json)  # fmt: skip
        return 1
    if args.json != "-":
        print(f"valid: {_sentence(checked)}")
    write_json(_summary(checked), args.json)
    return 0


def _sentence(checked: Replay) -> str:
    return (f"{len(checked.instance.requests)} requests, {len(checked.records)} batches, makespan "
            f"{checked.makespan_ms:.6f} ms, {sum(checked.preemptions)} preemptions, "
            f"{sum(checked.refilled_tokens)} refilled tokens")  # fmt: skip


def _summary(checked: Replay) -> dict[str, Any]:
    return {"schema_version": 1, "valid": True, "makespan_ms": checked.makespan_ms, "batches": len(checked.records),
            "preemptions": sum(checked.preemptions), "refilled_tokens": sum(checked.refilled_tokens)}  # fmt: skip
