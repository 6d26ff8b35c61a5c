"""A part of a schedule: in which states its requests begin and in which they must end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from csp.conclude import check_claim
from csp.program import OutOfTime
from csp.solvers import Control, Problem, load_backend
from sim.cost.model import CostModel
from sim.errors import InputError
from sim.instance import Instance
from sim.replay import Replay, RuleError, State, finish
from sim.schedule import Schedule


class Standing(NamedTuple):
    """One request between two batches: tokens generated, KVs resident, and whether the next step is a decode step.

    Who is complete holds nothing and is not ready.
    """

    generated: int
    kv: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where each request stands before the first batch and after the last, and how many batches there are at most.

    Evictions belong to batches that process something.

    Attributes
    ----------
    levels
        Of each request, (tokens generated, KVs) at which a fill may be interrupted, those it begins and ends at among
        them; none: fills are whole.
    """

    start: tuple[Standing, ...]
    end: tuple[Standing, ...]
    levels: tuple[frozenset[tuple[int, int]], ...]
    batches: int

    @property
    def least_batches(self) -> int:
        """A request generates at most one token per batch."""
        return max(end.generated - start.generated for start, end in zip(self.start, self.end, strict=True))


def replay_between(instance: Instance, schedule: Schedule, boundary: Boundary, cost: CostModel) -> Replay:
    """Check and time a part of a schedule; time begins with its first batch.

    Raises
    ------
    RuleError
        If a rule is broken, or somebody ends elsewhere.
    """
    state = State(instance, cost)
    for i, (generated, kv, ready) in enumerate(boundary.start):
        state.place(i, generated, kv, ready=ready)
    records = [state.apply(batch) for batch in schedule.batches]
    for i, end in enumerate(boundary.end):
        kv, ready = (0, False) if state.done[i] else (state.kv[i], state.ready[i])
        if (state.generated[i], kv, ready) != end:
            raise RuleError("boundary", "ends in another state than it must", request=i)
    return finish(state, schedule, records)


def solve_between(
    instance: Instance, present: Replay, boundary: Boundary, cost: CostModel, control: Control
) -> tuple[Replay, bool]:  # fmt: skip
    """The fastest part of a schedule between given states (CP-SAT on the flow model).

    Parameters
    ----------
    present
        The part as it is (`replay_between`).

    Returns
    -------
    The best part found, the present one if none is better; and whether it is proven best among all parts that
    interrupt fills at the boundary's levels only.
    """
    value = present.makespan_ticks
    problem = Problem(instance, cost, incumbent=present, incumbent_value=value, cutoff=value, boundary=boundary)
    try:
        answer = load_backend("cpsat").run(problem, control)
    except (OutOfTime, InputError):  # or times too large for its integers
        return present, False
    if answer.schedule is None:
        return present, answer.status == "INFEASIBLE"
    found = replay_between(instance, answer.schedule, boundary, cost)
    proven = answer.status == "OPTIMAL"
    check_claim(answer, found.makespan_ticks)
    return min(present, found, key=lambda part: part.makespan_ticks), proven
