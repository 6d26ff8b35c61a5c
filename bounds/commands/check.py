"""Replay a schedule file against an instance and say whether it keeps every rule.

Exit code 1 when a rule is broken, naming the rule, the batch and the request. A schedule made under other rules
(``--swap``, say) is checked with the same options, one of a workload without the requests that never fit with
``--drop-infeasible``.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

from bounds.answers import add_rules, rules_of
from bounds.cli_options import add_common, feasible_part, require_cost_model, write_json
from sim.instance import load_instance
from sim.replay import Replay, RuleError
from sim.replay import replay as replayed
from sim.schedule import Schedule, load_schedule


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("schedule", metavar="SCHEDULE", help="schedule file, or a result file that holds one")
    parser.add_argument("instance", metavar="INSTANCE", help="instance file or shipped name")
    parser.add_argument(
        "--cost-model", metavar="NAME", help="time it by another cost model, every batch as early as it can"
    )
    parser.add_argument("--drop-infeasible", action="store_true", help="leave out requests that can never fit in M")
    group = parser.add_argument_group("rules")
    group.add_argument("--allow-empty", action="store_true",
                       help="accept batches that process nothing, as real engines make")  # fmt: skip
    add_rules(group)
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Check the schedule and print its figures, or the broken rule."""
    instance = load_instance(args.instance)
    if args.cost_model is not None:
        instance = instance.replace(cost_model=args.cost_model)
    require_cost_model(instance, "--cost-model" if args.cost_model else args.instance)
    if args.drop_infeasible:
        instance = feasible_part(instance, args.instance)
    schedule, claimed = load_schedule(args.schedule, instance)
    if args.cost_model is not None:
        schedule = Schedule(tuple(replace(batch, start_ns=None) for batch in schedule.batches))
    rules = replace(rules_of(args), allow_empty=args.allow_empty)
    try:
        checked = replayed(instance, schedule, rules=rules, claimed_ns=None if args.cost_model else claimed)
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
