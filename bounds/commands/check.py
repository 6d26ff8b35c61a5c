"""Replay a schedule file against an instance and say whether it keeps every rule.

Exit code 1 when a rule is broken, naming the rule, the batch and the request. A schedule made under other rules
(``--swap``, say) is checked with the same options; one of a trace, or without the requests that never fit, with those
that made the workload. INSTANCE with ``--cost-model`` is timed by another cost model, every batch as early as it can.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

from bounds.answers import add_rules, rules_of
from bounds.cli_options import add_common, add_workload, feasible_part, load_workload, write_json
from sim.replay import Replay, RuleError
from sim.replay import replay as replayed
from sim.schedule import Schedule, load_schedule


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("schedule", metavar="SCHEDULE", help="schedule file, or a result file that holds one")
    add_workload(parser)
    group = parser.add_argument_group("rules")
    group.add_argument("--allow-empty", action="store_true",
                       help="accept batches that process nothing, as real engines make")  # fmt: skip
    add_rules(group)
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Check the schedule and print its figures, or the broken rule."""
    instance = load_workload(args)
    if args.drop_infeasible:
        instance = feasible_part(instance, args.instance or args.trace)
    schedule, claimed = load_schedule(args.schedule, instance)
    anew = args.trace is None and args.cost_model is not None
    if anew:
        schedule = Schedule(tuple(replace(batch, start_ns=None) for batch in schedule.batches))
    rules = replace(rules_of(args), allow_empty=args.allow_empty)
    try:
        checked = replayed(instance, schedule, rules=rules, claimed_ns=None if anew else claimed)
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
