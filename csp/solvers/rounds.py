"""Rounds (every batch takes the same time, who starts runs to its end): local search, and Lagrangian lower bounds.

For the mean completion time of requests that are all there at the start; the setting of Jaillet et al.
(arXiv:2502.07115). It proves an optimum only where the bound meets the schedule; the `starts` formulation closes small
instances.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version

from csp.formulations.starts import exactness
from csp.result import Status
from csp.rounds import bound as rows
from csp.rounds import states
from csp.rounds.local_search import improve, start_rounds
from csp.solvers import Answer, Control, Problem
from sim.cost.model import Features
from sim.errors import InputError
from sim.schedule import Batch, Schedule

MAX_REQUESTS = 1000
_RUNS, _STEPS = 30, 1000
"""Annealing runs and steps of the bound if there is no time limit; else each gets a share of the time."""
_MOST_STEPS = 20_000
_SEARCH_SHARE = 0.35
"""Of the time, for the local search."""


def run(problem: Problem, control: Control) -> Answer:
    """Improve the schedule, then the bound.

    Raises
    ------
    InputError
        If the problem is none of those described above.
    """
    unit = _require(problem)
    instance = problem.instance
    requests = [(r.input_tokens, r.output_tokens) for r in instance.requests]
    n, memory = len(requests), instance.kv_capacity_tokens

    def worth(total: int) -> Fraction:
        return Fraction(total * unit, n)

    orders = [sorted(range(n), key=lambda i: requests[i][1]), sorted(range(n), key=lambda i: _area(*requests[i]))]
    order = min(orders, key=lambda order: start_rounds(requests, memory, order)[0])
    best, began, left = start_rounds(requests, memory, order)[0], time.monotonic(), control.remaining_s
    control.report(worth(best), None)

    def share(first: float, last: float) -> float:
        """Share passed of the time between two shares of it all; 0 without a limit."""
        if control.stopped:
            return 1.0
        return 0.0 if left is None else ((time.monotonic() - began) / max(left, 1e-9) - first) / (last - first)

    best, starts = improve(
        requests, memory, order, runs=_RUNS if left is None else _MOST_STEPS, seed=control.seed,
        stopped=lambda: share(0, _SEARCH_SHARE) >= 1, found=lambda total: control.report(worth(total), None),
    )  # fmt: skip
    last = max(start + o for start, (_, o) in zip(starts, requests, strict=True))
    bound = _bound(requests, memory, last + last // 20 + 1, best, _STEPS if left is None else _MOST_STEPS,
                   lambda: share(_SEARCH_SHARE, 1))  # fmt: skip
    control.report(None, worth(bound))
    exact, reason = exactness(problem.rules)
    status: Status = "OPTIMAL" if bound == best else "FEASIBLE"
    return Answer(status, _schedule(requests, starts), worth(best), worth(bound), exact, reason,
                  f"rounds, numba {version('numba')}")  # fmt: skip


def _bound(
    requests: list[tuple[int, int]], memory: int, last: int, upper: int, steps: int, share: Callable[[], float]
) -> int:  # fmt: skip
    """From states where they are few enough, else from rows."""
    found = states.lower_bound(requests, memory, last, upper, steps=steps, share=share)
    if found is None:
        return rows.lower_bound(rows.Relaxation(requests, memory, last), steps=steps, share=share)
    return found


def _area(inputs: int, outputs: int) -> int:
    return outputs * inputs + outputs * (outputs - 1) // 2


def _require(problem: Problem) -> int:
    """Ticks of a round."""
    instance, cost = problem.instance, problem.cost
    unit = cost.batch_ticks(Features(1, 0, 0, 0, 0, 0, 0, 0, 0))
    most = cost.batch_ticks(Features(1, 1, 1, 9, 9, 99, 99, 99, 99))
    if not unit or unit != most:
        raise InputError("needs a cost model whose batches all take the same time (unit)", field="solver",
                         value="rounds")  # fmt: skip
    if problem.objective != "mean_completion" or problem.limits or not instance.offline:
        raise InputError("minimises mean_completion, without limits and arrivals", field="solver", value="rounds")
    if len(instance.requests) > MAX_REQUESTS:
        raise InputError(f"takes at most {MAX_REQUESTS:,} requests", field="solver", value="rounds")
    if instance.block_size != 1 or instance.max_num_seqs is not None:
        raise InputError("knows neither blocks nor max_num_seqs", field="solver", value="rounds")
    if instance.token_budget < instance.kv_capacity_tokens:
        raise InputError("needs a token budget of at least the KV capacity", field="solver", value="rounds")
    return unit


def _schedule(requests: list[tuple[int, int]], starts: list[int]) -> Schedule:
    last = max(start + o for start, (_, o) in zip(starts, requests, strict=True))
    process: list[list[tuple[int, int]]] = [[] for _ in range(last)]
    for i, (start, (inputs, outputs)) in enumerate(zip(starts, requests, strict=True)):
        for age in range(outputs):
            process[start + age].append((i, 1 if age else inputs))
    return Schedule(tuple(Batch(tuple(sorted(p, key=lambda pair: pair[1] > 1))) for p in process if p))
