"""Best-first search over states, and beam search for schedules: compiled, exact in ticks; makespan, offline.

Exact where whole fills lose nothing (`whole_fills_suffice` of the flow formulation); elsewhere no proof is claimed.
On a limit it answers with its best schedule and the least bound of an open state, which holds for every schedule.
"""

from __future__ import annotations

import threading
import time
from importlib.metadata import version

from csp.result import Status
from csp.search.beam import schedules
from csp.search.best_first import BestFirst, Found
from csp.search.incumbent import Incumbent
from csp.search.space import Space, build_space
from csp.solvers import Answer, Control, Problem
from sim.errors import InputError

_POLL_S = 0.05
_QUICK_WIDTH = 64
_QUICK_SHARE = 0.1
"""Most of the time limit spent on schedules before the proof starts."""


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
    best = Incumbent(upper, lambda value: control.report(value, None))
    quick_until = None if control.remaining_s is None else time.monotonic() + _QUICK_SHARE * control.remaining_s
    find_schedules(space, best, control, widest=_QUICK_WIDTH, until=quick_until)
    found = prove(space, best, control)
    if not found.proven:
        find_schedules(space, best, control, narrowest=2 * _QUICK_WIDTH)
    return _answer(space, best, found)


def find_schedules(
    space: Space, best: Incumbent, control: Control, *, narrowest: int = 16, widest: int = 2**12,
    until: float | None = None, halted: threading.Event | None = None,
) -> None:  # fmt: skip
    """Offer ever better schedules until told to stop, or until nothing better is found at the largest width."""

    def stopped() -> bool:
        late = until is not None and time.monotonic() >= until
        return late or control.stopped or (halted is not None and halted.is_set())

    for schedule, value in schedules(
        space, lambda: best.value_ticks, seed=control.seed, stopped=stopped, narrowest=narrowest, widest=widest
    ):
        best.offer(schedule, value)


def prove(space: Space, best: Incumbent, control: Control) -> Found:
    """Run the best-first search in a thread of its own; with more workers, another one looks for better schedules."""
    search = BestFirst(space, best.value_ticks)
    halted = threading.Event()
    results: list[Found] = []
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            results.append(search.run(
                report=lambda value, bound: control.report(value, bound if space.exact else None),
                better=lambda: best.value_ticks,
            ))  # fmt: skip
        except BaseException as error:
            errors.append(error)
        halted.set()

    threads = [threading.Thread(target=guarded, daemon=True)]
    if control.workers > 1:
        options = {"narrowest": 2 * _QUICK_WIDTH, "halted": halted}
        other = threading.Thread(target=find_schedules, args=(space, best, control), kwargs=options, daemon=True)
        threads.append(other)
    for thread in threads:
        thread.start()
    try:
        while threads[0].is_alive():
            threads[0].join(_POLL_S)
            if control.stopped:
                search.halt()
    finally:
        search.halt()
        halted.set()
        for thread in threads:
            thread.join(5)
    if errors:
        raise errors[0]
    found = results[0]
    if found.schedule is not None and found.value_ticks is not None:
        best.offer(found.schedule, found.value_ticks)
    return found


def _answer(space: Space, best: Incumbent, found: Found) -> Answer:
    status: Status = "FEASIBLE" if best.schedule is not None else "UNKNOWN"
    bound = found.lower_bound_ticks
    if found.proven:
        status = "OPTIMAL" if best.schedule is not None else "INFEASIBLE"
        bound = bound if best.value_ticks is None else best.value_ticks
    value = None if best.schedule is None else best.value_ticks
    return Answer(status, best.schedule, value, bound, space.exact, space.exact_reason,
                  f"search over states, numba {version('numba')}")  # fmt: skip
