"""Best-first search over states, compiled; exact in integer ticks, makespan, all requests present at the start.

Exact where whole fills lose nothing (`whole_fills_suffice` of the flow formulation); elsewhere no proof is claimed.
On a limit it answers with its best schedule and the least bound of an open state, which holds for every schedule.
"""

from __future__ import annotations

from importlib.metadata import version

from csp.result import Status
from csp.search.best_first import search_best_first
from csp.search.space import build_space
from csp.solvers import Answer, Control, Problem
from sim.errors import InputError


def run(problem: Problem, control: Control) -> Answer:
    """Search a problem's states.

    Raises
    ------
    InputError
        If the problem is none of those the search describes.
    """
    if problem.objective != "makespan" or problem.limits:
        raise InputError("the search over states minimises the makespan without side constraints", field="solver",
                         value="search")  # fmt: skip
    space = build_space(problem.instance, problem.cost, problem.rules)
    upper = None if problem.incumbent_value is None else int(problem.incumbent_value)
    found = search_best_first(
        space, upper, stopped=lambda: control.stopped,
        report=lambda value, bound: control.report(value, bound if space.exact else None),
    )  # fmt: skip
    status: Status = "FEASIBLE" if found.schedule is not None else "UNKNOWN"
    if found.proven:
        status = "OPTIMAL" if found.schedule is not None else "INFEASIBLE"
    return Answer(status, found.schedule, found.value_ticks, found.lower_bound_ticks, space.exact, space.exact_reason,
                  f"search over states, numba {version('numba')}")  # fmt: skip
