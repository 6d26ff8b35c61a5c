"""When batches start and end inside an integer program, for any formulation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from csp.horizon import longest_batch_ticks
from csp.program import Program, Terms, plus, times
from csp.relaxations import least_batches
from csp.solvers import Problem
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features
from sim.instance import Instance, Request
from sim.replay import Replay

Kinds = list[tuple[Request, tuple[int, ...]]]
"""Types of identical requests, each with the places of its copies in the instance."""
Starting = list[tuple[Request, Terms, int]]
"""Per group of identical requests: how many begin in the batch, as a linear expression, and how many there are."""


def identical(instance: Instance) -> Kinds:
    """Requests of equal lengths, arrival and priority as one type."""
    groups: dict[Request, list[int]] = defaultdict(list)
    for i, r in enumerate(instance.requests):
        groups[Request(r.input_tokens, r.output_tokens, r.arrival_ns, r.priority)].append(i)
    return [(request, tuple(copies)) for request, copies in groups.items()]


def used_batches(program: Program, problem: Problem, batches: int) -> list[int]:
    """A binary per batch, 1 if it processes anything: the first ones are used, and at least as many as any needs."""
    used = [program.binary(f"used_{j}") for j in range(batches)]
    boundary = problem.boundary
    least = boundary.least_batches if boundary else least_batches(problem.instance).best
    for j, x in enumerate(used):
        program.lower[x] = int(j < least)
        if j:
            program.at_least({used[j - 1]: 1, x: -1}, 0, f"first_come_{j}")
    return used


@dataclass(slots=True)
class Timeline:
    """Batch times as linear expressions, each at least the true one and pressed down by the objective.

    Attributes
    ----------
    duration, end
        Per batch, in ticks. Batches that process nothing take no time; they end with the last one that does.
    """

    cost: CostModel
    duration: list[Terms] = field(default_factory=list)
    end: list[Terms] = field(default_factory=list)
    longest_ticks: int = 0
    """No batch, with the idle time before it, takes longer."""
    latest_ticks: int = 0
    """No batch of a schedule worth finding ends later."""

    @property
    def constant_ticks(self) -> int | None:
        """Time of every batch where all take the same and follow each other; else None."""
        coefficients = [piece for group in self.cost.groups for piece in group.pieces]
        if self.starts or self.overlapped or self.transfers or not self.cost.additive:
            return None
        if any(any(piece[1:]) for piece in coefficients):
            return None
        return sum(piece[0] for piece in coefficients) or None

    group_times: dict[tuple[int, int], int] = field(default_factory=dict)
    """Variable of (batch, operator group) where the group has several pieces."""
    overlapped: dict[int, int] = field(default_factory=dict)
    """Variable of a batch's time where transfers run beside it."""
    transfers: bool = False
    """Whether KVs move on a link."""
    starts: list[int] = field(default_factory=list)
    """Variable of each batch's start; none offline."""
    arrived: dict[int, list[tuple[int, Request, Terms]]] = field(default_factory=dict)
    """Per batch, binaries that are 1 if requests of a group begin in it."""

    def encode(self, run: Replay, program: Program, values: list[int]) -> list[int]:
        """Fill in the values of a replayed schedule's flags and times."""
        names = {name: v for v, name in enumerate(program.names)}
        for j, record in enumerate(run.records):
            for name, n in zip(("used", "prefills", "decodes"), record.features, strict=False):
                values[names[f"{name}_{j}"]] = n
            for g, group in enumerate(self.cost.groups):
                if (j, g) in self.group_times:
                    values[self.group_times[j, g]] = max(_dot(piece, record.features) for piece in group.pieces)
            if j in self.overlapped:
                values[self.overlapped[j]] = record.end_ticks - record.start_ticks
            if self.starts:
                values[self.starts[j]] = record.start_ticks
            for y, _, starting in self.arrived.get(j, ()):
                values[y] = int(program.value(starting, values) > 0)
        for j in range(len(run.records), len(self.starts)):
            values[self.starts[j]] = run.makespan_ticks
        return values


def timeline(
    problem: Problem, program: Program, features: Sequence[Mapping[str, Terms]], starting: Sequence[Starting]
) -> Timeline:
    """Add batch times to a program.

    Parameters
    ----------
    features
        Per batch, a linear expression for each field of `Features` (missing: zero) and "transfer", ticks on the link.
    starting
        Per batch, who begins in it.
    """
    longest = longest_batch_ticks(problem.instance, problem.cost)
    line = Timeline(problem.cost, longest_ticks=longest)
    swap = problem.rules.swap
    for j, expressions in enumerate(features):
        compute = _compute(line, program, expressions, j, longest)
        transfer = expressions.get("transfer", {})
        line.transfers = line.transfers or bool(transfer)
        if swap is not None and swap.overlap:
            most = max(longest, sum(a * program.upper[v] for v, a in transfer.items()))
            line.longest_ticks = max(line.longest_ticks, most)
            both = line.overlapped[j] = program.variable(0, most, f"length_{j}", ticks=True)
            program.at_least(plus({both: 1}, times(-1, compute)), 0, f"computes_{j}")
            program.at_least(plus({both: 1}, times(-1, transfer)), 0, f"transfers_{j}")
            line.duration.append({both: 1})
        else:
            if transfer:
                moved = sum(a * program.upper[v] for v, a in transfer.items())
                line.longest_ticks = max(line.longest_ticks, longest + moved)
            line.duration.append(plus(compute, transfer))
    _ends(line, problem, program, starting)
    return line


def _ends(line: Timeline, problem: Problem, program: Program, starting: Sequence[Starting]) -> None:
    """Back to back offline; else no batch starts before the one before ends or before who begins in it arrives."""
    arrivals = [r.arrival_ns * TICKS_PER_NS for r in problem.instance.requests]
    each = [sum(a * program.upper[v] for v, a in terms.items()) for terms in line.duration]
    line.latest_ticks = max(arrivals) + sum(min(most, line.longest_ticks) for most in each)
    line.longest_ticks += max(arrivals)
    ends = [most for name, most in ((problem.objective, problem.cutoff), *problem.limits) if name == "makespan"]
    line.latest_ticks = min([line.latest_ticks, *(int(most) for most in ends if most is not None)])
    if not any(arrivals):
        for j, terms in enumerate(line.duration):
            line.end.append(plus(line.end[j - 1] if j else {}, terms))
        return
    for j, terms in enumerate(line.duration):
        start = program.variable(0, line.latest_ticks, f"start_{j}", ticks=True)
        line.starts.append(start)
        if j:
            program.at_least(plus({start: 1}, times(-1, line.end[j - 1])), 0, f"order_{j}")
        line.arrived[j] = []
        for t, (request, begin, count) in enumerate(starting[j]):
            if request.arrival_ns and begin:
                y = program.binary(f"begins_{t}_{j}")
                line.arrived[j].append((y, request, begin))
                program.at_most(plus(begin, {y: -count}), 0, f"begin_{t}_{j}")
                program.at_least({start: 1, y: -request.arrival_ns * TICKS_PER_NS}, 0, f"arrival_{t}_{j}")
        line.end.append(plus({start: 1}, terms))


def _compute(line: Timeline, program: Program, features: Mapping[str, Terms], j: int, longest: int) -> Terms:
    """Linear where the cost is additive, else a variable per operator group that is at least every piece."""
    terms: Terms = {}
    for g, group in enumerate(line.cost.groups):
        pieces = [_piece(piece, features) for piece in group.pieces]
        if len(pieces) == 1:
            terms = plus(terms, pieces[0])
            continue
        group_time = line.group_times[j, g] = program.variable(0, longest, f"T_{j}_{g}", ticks=True)
        for q, piece in enumerate(pieces):
            program.at_least(plus({group_time: 1}, times(-1, piece)), 0, f"piece_{j}_{g}_{q}")
        terms = plus(terms, {group_time: 1})
    return terms


def _piece(piece: tuple[int, ...], features: Mapping[str, Terms]) -> Terms:
    return plus(*(times(a, features.get(name, {})) for name, a in zip(Features._fields, piece, strict=True)))


def _dot(piece: tuple[int, ...], features: Features) -> int:
    return sum(a * x for a, x in zip(piece, features, strict=True))
