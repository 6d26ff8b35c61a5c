"""Side by side on one incumbent: search over states, tree over flags, local search; CP-SAT where they do not apply.

Makespan offline, where whole fills lose nothing: the search over states (`csp.search`) closes small instances, the tree
over flags (`csp.waves`) gives larger ones a bound, and beams and the local search (`csp.search.ruin`) find schedules.
Two threads at a time: where there are few states, the tree waits for the search over states to get stuck.
Everything else (other objectives, limits, questions, arrivals, swapping, another formulation than flow, partial chunks
that may help) goes to CP-SAT, in the last case with a schedule found by the local search.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from itertools import count
from operator import itemgetter

from csp.result import Status
from csp.search.beam import schedules
from csp.search.best_first import BestFirst, Found
from csp.search.incumbent import Incumbent
from csp.search.ruin import grid_of, improved
from csp.search.space import Space, build_space
from csp.solvers import Answer, Control, Problem
from csp.waves.tree import Tree, applies
from sim.errors import InputError
from sim.replay import RuleError, replay
from sim.schedule import Schedule

_POLL_S = 0.02
_GRACE_S = 0.5
_FEW_STATES = 10**12
"""Up to so many, the search over states is expected to close an instance."""
_PATIENCE_S = 30.0
"""How long it has two threads' time to itself then."""
_PATIENT_PASSES, _RUNS = 50, 3
"""Passes without improvement that end a run of the local search; runs after which it helps with the tree, or rests."""
_WIDEST = 32
_FIRST_PASSES = 8
_SHARE = 0.1
"""Most of the time limit spent on a first schedule where CP-SAT follows."""


def run(problem: Problem, control: Control) -> Answer:
    """Solve with everything that applies."""
    from csp.solvers import cpsat

    space = _space(problem)
    if space is None:
        return cpsat.run(problem, control)
    upper = None if problem.incumbent_value is None else int(problem.incumbent_value)
    best = Incumbent(upper, lambda value: control.report(value, None))
    if problem.incumbent is not None:
        best.schedule = problem.incumbent.schedule
    if not space.exact:
        return cpsat.run(_with_schedule(problem, space, best, control), control)
    return _Portfolio(problem, space, best, control).run()


def _space(problem: Problem) -> Space | None:
    if problem.objective != "makespan" or problem.limits or problem.question or problem.formulation != "flow":
        return None
    try:
        return build_space(problem.instance, problem.cost, problem.rules)
    except InputError:
        return None


def _with_schedule(problem: Problem, space: Space, best: Incumbent, control: Control) -> Problem:
    """The problem with a better first schedule, if a short search finds one."""
    left = control.remaining_s
    until = time.monotonic() + (10.0 if left is None else _SHARE * left)

    def stopped() -> bool:
        return control.stopped or time.monotonic() > until

    next(_find(problem, space, best, stopped, passes=_FIRST_PASSES), None)
    if best.schedule is None or best.value_ticks is None or best.value_ticks == problem.incumbent_value:
        return problem
    found = replay(problem.instance, best.schedule, rules=problem.rules, cost=problem.cost)
    return replace(problem, incumbent=found, incumbent_value=found.makespan_ticks, cutoff=found.makespan_ticks)


def _find(
    problem: Problem, space: Space, best: Incumbent, stopped: Callable[[], bool], *, passes: int | None = None
) -> Iterator[None]:
    """Beams, then runs of the local search, each from the beams' best schedule; yields after every run.

    A run ends when it has found nothing for some passes, or after ``passes``; none begins where fills are split.
    """
    for schedule, value in schedules(space, lambda: best.value_ticks, stopped=stopped, widest=_WIDEST):
        best.offer(schedule, value)
    first = best.schedule
    if first is None or grid_of(space, first, len(first.batches)) is None:
        return
    for seed in count():
        known = [first]
        for schedule, value in improved(space, partial(itemgetter(-1), known), problem.cost, problem.rules, seed=seed,
                                        stopped=stopped, passes=passes, patience=_PATIENT_PASSES):  # fmt: skip
            known.append(schedule)
            best.offer(schedule, value)
        yield


@dataclass
class _Portfolio:
    """The threads of one run."""

    problem: Problem
    space: Space
    best: Incumbent
    control: Control
    found: Found | None = None
    tree: Tree | None = None
    tree_bound: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)
    searched: threading.Event = field(default_factory=threading.Event)

    @property
    def few(self) -> bool:
        """Whether there are few states."""
        return states(self.space) <= _FEW_STATES

    def run(self) -> Answer:
        search = BestFirst(self.space, self.best.value_ticks)
        works = [self._bound, self._improve, *([lambda: self._prove(search)] if self.few else [])]
        threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        try:
            while not self.over.is_set() and not self.control.stopped and any(t.is_alive() for t in threads):
                self.over.wait(_POLL_S)
        finally:
            self.over.set()
            search.halt()
            late = time.monotonic() + _GRACE_S
            for thread in threads:
                thread.join(max(0.0, late - time.monotonic()))
        if self.errors:
            raise self.errors[0]
        return self._answer()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)
            self.over.set()

    def _stopped(self) -> bool:
        return self.over.is_set() or self.control.stopped

    def _prove(self, search: BestFirst) -> None:
        found = search.run(
            stopped=self._stopped, better=lambda: self.best.value_ticks,
            report=lambda value, bound: self.control.report(value, bound),
        )  # fmt: skip
        if found.schedule is not None and found.value_ticks is not None:
            self.best.offer(found.schedule, found.value_ticks)
        self.found = found
        self.searched.set()
        if found.proven:
            self.over.set()

    def _bound(self) -> None:
        late = time.monotonic() + _PATIENCE_S
        while self.few and not self._stopped() and not self.searched.is_set() and time.monotonic() < late:
            self.searched.wait(_POLL_S)
        if applies(self.space):
            self.tree = Tree(self.space, lambda: self.best.value_ticks, self._offer)
            self._grow(self.tree)

    def _grow(self, tree: Tree) -> None:
        """Raise the tree's bound as long as it can be."""
        while not tree.done and not self._stopped():
            tree.step()
            if tree.lower_bound_ticks > self.tree_bound:
                self.tree_bound = tree.lower_bound_ticks
                self.control.report(None, self.tree_bound)
        if self.best.value_ticks is not None and self.tree_bound >= self.best.value_ticks:
            self.over.set()

    def _offer(self, schedule: Schedule) -> None:
        """Take a schedule that may break the token budget or the number of slots."""
        problem = self.problem
        with suppress(RuleError):
            value = replay(problem.instance, schedule, rules=problem.rules, cost=problem.cost).makespan_ticks
            self.best.offer(schedule, value)

    def _improve(self) -> None:
        """Look for schedules; after some runs help with the tree, and go on where that has ended without proof."""
        for run, _ in enumerate(_find(self.problem, self.space, self.best, self._stopped), 1):
            if run == _RUNS and self.tree is not None:
                self._grow(self.tree)
            if self._stopped() or (run >= _RUNS and (self.few or self.control.deadline is None)):
                return

    def _answer(self) -> Answer:
        best, found = self.best, self.found
        bound = max(self.tree_bound, 0 if found is None else found.lower_bound_ticks)
        value = best.value_ticks
        proven = value is not None and (bound >= value or (found is not None and found.proven))
        known = self.problem.incumbent_value
        schedule = None if value is None or value == known else best.schedule
        status: Status = "FEASIBLE" if schedule is not None else "UNKNOWN"
        if proven and value is not None:
            status, bound = ("OPTIMAL" if schedule is not None else "INFEASIBLE"), value
        elif found is not None and found.proven:
            status = "INFEASIBLE"
        return Answer(status, schedule, None if schedule is None else value, bound, True, self.space.exact_reason,
                      f"portfolio, numba {version('numba')}")  # fmt: skip


def states(space: Space) -> int:
    """How many states there are, identical requests not told apart."""
    requests = [space.instance.requests[i] for i in space.order]
    kinds = Counter((r.input_tokens, r.output_tokens) for r in requests)
    return math.prod(math.comb(n + 2 * o - 1, n) for (_, o), n in kinds.items())
