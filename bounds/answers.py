"""From ``solve``'s arguments to its questions, and from its results to sentences."""

from __future__ import annotations

import argparse
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from bounds.report import bound_lines, percent, proof_sentence, solver_words
from csp.objectives import load_objective
from csp.result import Result
from sim.clock import TICKS_PER_MS, ms_from_ticks
from sim.engine import simulate
from sim.errors import InputError
from sim.instance import Instance
from sim.replay import Rules, SwapLink


def ticks(text: str, field: str) -> Fraction:
    """Milliseconds >= 0 as exact ticks.

    Raises
    ------
    InputError
        If the text is not a number from 0 to a billion seconds.
    """
    try:
        value = Decimal(text)
        if not value.is_finite() or not 0 <= value <= 10**12:
            raise ValueError
    except (InvalidOperation, ValueError):
        raise InputError("must be a number of ms from 0 to 1e12", field=field, value=text) from None
    return Fraction(value) * TICKS_PER_MS


def add_rules(group: argparse._ArgumentGroup) -> None:
    """--no-preemption, --no-chunking, --no-hybrid, --no-holding, --swap."""
    group.add_argument("--no-preemption", action="store_true", help="forbid preemption")
    group.add_argument("--no-chunking", action="store_true", help="forbid fills split over batches")
    group.add_argument("--no-hybrid", action="store_true", help="forbid prefill and decode in one batch")
    group.add_argument("--no-holding", action="store_true", help="whoever holds KVs is processed in every batch")
    group.add_argument("--swap", metavar="MS:MS[:overlap]", help="KVs may be swapped to host memory and back: latency "
                       "of a transfer and time per KV token, beside the batch if overlap is given")  # fmt: skip


def rules_of(args: argparse.Namespace) -> Rules:
    """The rule switches."""
    swap = None
    if args.swap is not None:
        latency, *rest = args.swap.split(":")
        if len(rest) not in (1, 2) or rest[1:] not in ([], ["overlap"]):
            raise InputError("must be MS:MS or MS:MS:overlap", field="--swap", value=args.swap)
        times = [round(ticks(text, "--swap")) for text in (latency, rest[0])]
        swap = SwapLink(times[0], times[1], overlap=len(rest) == 2)
    return Rules(preemption=not args.no_preemption, chunking=not args.no_chunking, hybrid=not args.no_hybrid,
                 holding=not args.no_holding, swap=swap)  # fmt: skip


def limits_of(args: argparse.Namespace) -> list[tuple[str, Fraction]]:
    """The limits, in ticks."""
    given = [("max_tpot", args.max_tpot), ("max_batch_time", args.max_batch_time)]
    return [(name, ticks(str(most), f"--{name}")) for name, most in given if most is not None]


def at_most_value(text: str | None, instance: Instance, objective: str) -> Fraction | None:
    """The value asked for: a number in the objective's unit, or a factor of what a scheduler reaches."""
    if text is None:
        return None
    goal = load_objective(objective)
    factor, star, scheduler = text.partition("*")
    if not star:
        value = ticks(text, "--at-most")
        return value if goal.unit == "ms" else value / TICKS_PER_MS
    run = simulate(instance, scheduler)
    if run.stalled:
        raise InputError("does not finish this workload", field="--at-most", value=scheduler)
    return ticks(factor, "--at-most") / TICKS_PER_MS * goal.value(run.replay)


def answer_lines(result: Result, at_most: Fraction | None) -> list[str]:
    """What the result says."""
    who = f"{solver_words(result)}, {result.runtime_s:.1f} s"
    if at_most is not None:
        return [_question_sentence(result, at_most, who), *_bounds(result)]
    lines = [_sentence(stage, who) for stage in result.stages or (result,)]
    return [*lines, *_bounds(result)] if result.unit == "ms" else lines


def _bounds(result: Result) -> list[str]:
    return ["lower bounds, for every schedule:", *bound_lines(result.bounds)] if result.bounds else []


def amount(value: Fraction | int | None, unit: str) -> str:
    """A value with its unit."""
    if value is None:
        return "-"
    return f"{ms_from_ticks(value):,.6f} ms" if unit == "ms" else f"{float(value):,.6f} {unit}"


def _question_sentence(result: Result, at_most: Fraction, who: str) -> str:
    asked, name = amount(at_most, result.unit), result.objective
    if result.status == "FEASIBLE":
        found = f"{amount(result.objective_ticks, result.unit)}, found by {result.found_by}"
        return f"YES: there is a schedule with {name} at most {asked}: {found} ({who})"
    if result.status == "INFEASIBLE":
        return f"NO: every schedule has {name} above {asked} ({who}: {result.exact_reason})"
    lower = f"every schedule has at least {amount(result.lower_bound_ticks, result.unit)} ({result.lower_bound_source})"
    note = "" if result.exact else f"; not exact here: {result.exact_reason}"
    return f"UNKNOWN: none found with {name} at most {asked}; {lower} ({who}{note})"


def _sentence(result: Result, who: str) -> str:
    if result.objective == "makespan":
        return proof_sentence(result)
    name, unit = result.objective, result.unit
    if result.status == "OPTIMAL":
        return f"OPTIMAL: no schedule has {name} below {amount(result.objective_ticks, unit)} ({who})"
    if result.status == "INFEASIBLE":
        return f"INFEASIBLE: no schedule exists ({who}: {result.exact_reason})"
    lower = f"{amount(result.lower_bound_ticks, unit)} ({result.lower_bound_source or 'no bound'})"
    best = f"{amount(result.objective_ticks, unit)} ({result.found_by or 'none found'})"
    note = "" if result.exact else f"; not exact here: {result.exact_reason}"
    return f"{result.status}: {lower} <= best {name} <= {best}, gap {percent(result.gap)} ({who}{note})"
