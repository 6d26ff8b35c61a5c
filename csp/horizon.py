"""How many batches a schedule can need.

A cost model whose groups have several pieces is at least any choice of one piece per group, so every such choice is an
additive cost that never overestimates (`additive_floors`); what holds for all of them holds for the true cost.
"""

from __future__ import annotations

import itertools
from collections import Counter

from csp.solvers import Problem
from sim.cost.model import CostModel, Features
from sim.instance import Instance
from sim.replay import Rules

_MOST_CHOICES = 64


def additive_floors(cost: CostModel) -> list[Features]:
    """Coefficients in ticks of additive costs that are at most the true cost of every batch.

    One per choice of a piece in each group (at most 64 choices); for an additive model just its own.
    """
    choices = itertools.islice(itertools.product(*(group.pieces for group in cost.groups)), _MOST_CHOICES)
    return [Features(*(sum(column) for column in zip(*choice, strict=True))) for choice in choices]


def entry_ticks(a: Features, input_tokens: int, k: int) -> int:
    """Least cost of generating token k + 1, flags aside: a whole fill, or (k >= 1) a decode step if that is cheaper.

    A fill in chunks costs at least as much: sum of c^2 + 2 c m over its chunks is the square of its size.
    """
    s = input_tokens + k
    fill = a.n_prefill + a.tokens * s + a.prefill_square * s * s
    if k == 0:
        return fill
    return min(fill, a.n_decode + a.tokens + a.decode_reads * (s - 1))


def work_ticks(instance: Instance, a: Features) -> int:
    """Least cost of all entries of any schedule under an additive cost, flags aside."""
    kinds = Counter((r.input_tokens, r.output_tokens) for r in instance.requests)
    return sum(n * sum(entry_ticks(a, i, k) for k in range(o)) for (i, o), n in kinds.items())


def flags_ticks(a: Features, batches: int) -> int:
    """Least cost of the flags of that many batches, one of which prefills."""
    cheaper = min(a.prefill_batch, a.decode_batch)
    return batches * (a.batch + cheaper) + (a.prefill_batch - cheaper if batches else 0)


def least_batch_ticks(instance: Instance, cost: CostModel) -> int:
    """The cheapest batch there is: one token, filled or decoded."""
    return min(
        cost.batch_ticks(Features(1, 1, 0, 1, 0, 1, 1, 0, 0)),
        cost.batch_ticks(Features(1, 0, 1, 0, 1, 1, 0, 0, min(r.input_tokens for r in instance.requests))),
    )


def most_batches(instance: Instance, cost: CostModel, upper_ticks: int) -> int | None:
    """Most batches of a schedule whose batches take at most ``upper_ticks`` in all; None if nothing limits them.

    J batches cost at least their flags and the least work, and at least J times the cheapest batch there is.
    """
    least = least_batch_ticks(instance, cost)
    limits = [upper_ticks // least] if least else []
    for a in additive_floors(cost):
        per_batch = flags_ticks(a, 2) - flags_ticks(a, 1)
        if per_batch:
            rest = upper_ticks - work_ticks(instance, a) - (flags_ticks(a, 1) - per_batch)
            limits.append(max(0, rest // per_batch))
    return min(limits, default=None)


def longest_batch_ticks(instance: Instance, cost: CostModel) -> int:
    """No batch takes longer: every feature at its most (after the batch M KVs at most, so Q <= M^2)."""
    m, n = instance.kv_capacity_tokens, len(instance.requests)
    tokens = min(m, instance.token_budget)
    return cost.batch_ticks(Features(1, 1, 1, min(n, tokens), min(n, tokens), tokens, m * m, m, m))


def serial_batches(instance: Instance) -> int:
    """Batches that finish all requests one by one from any state: whoever is resident is evicted in the first."""
    budget = instance.token_budget
    return sum(-(-r.input_tokens // budget) + r.output_tokens - 1 for r in instance.requests)


def batches_to_first_tokens(instance: Instance, cost: CostModel, rules: Rules, latest_ticks: int) -> int | None:
    """Batches of some schedule with given first tokens by then: cheapest batches until then, the fewest after."""
    least = least_batch_ticks(instance, cost)
    refillable = rules.chunking or all(r.peak_kv_tokens <= instance.token_budget for r in instance.requests)
    if not (least and rules.preemption and refillable):
        return None
    return latest_ticks // least + serial_batches(instance)


MOST_BATCHES = 100_000
"""Of a program, unless as many are needed one request after the other."""


def horizon(problem: Problem) -> tuple[int, bool]:
    """J, most batches, and whether some best schedule (or one within the limits) is sure to have no more.

    Without preemption no token is processed twice and every batch processes one, so J is at most the number of tokens.
    """
    from csp.objectives import load_objective

    if problem.boundary is not None:
        return problem.boundary.batches, True
    instance, cost, rules = problem.instance, problem.cost, problem.rules
    counts: list[int | None] = []
    goals = [(problem.objective, problem.cutoff), *problem.limits]
    for name, most in goals:
        goal = load_objective(name)
        if most is not None and (goal.limits_batches or len(goals) == 1):
            counts.append(goal.most_batches(instance, cost, rules, most))
    if not rules.preemption and rules.swap is None:
        counts.append(sum((r.input_tokens if rules.chunking else 1) + r.output_tokens - 1 for r in instance.requests))
    enough = min((count for count in counts if count is not None), default=None)
    tried = 2 * serial_batches(instance)
    # An engine that is idle for hours could run a billion batches meanwhile: no program holds them.
    return (enough, True) if enough is not None and enough <= max(tried, MOST_BATCHES) else (tried, False)
