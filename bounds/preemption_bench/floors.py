"""Lower bounds on the time to first token of urgent requests, whatever the schedule.

Proof. A first token needs the whole prompt processed after arrival. Take requests S, all arrived at or after a. Until
the last of their first tokens, at least ceil(sum I / C) batches (C tokens each at most) prefill them, one entry per
request at least. A chunk of c tokens beside m KVs adds c^2 + 2 c m to the feature Q, which sums to I^2 over a prompt
however it is cut. So the features of these n batches sum to at least (n, n, 0, |S|, 0, sum I, sum I^2, 0, 0). A batch
costs, per operator group, the largest of some linear functions with coefficients >= 0; the sum over batches of the
largest is at least the largest of the sums. Whatever else the batches do only adds.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features
from sim.instance import Instance


def prefill_floor_ticks(input_tokens: Sequence[int], token_budget: int, cost: CostModel) -> int:
    """Least time from before the first of these prompts until all have their first token.

    >>> from sim.cost.model import load_cost_model
    >>> prefill_floor_ticks([20], 512, load_cost_model("linear/llama2-7b-a100"))
    631235494400
    """
    total, squares = sum(input_tokens), sum(i * i for i in input_tokens)
    batches = -(-total // token_budget)
    return cost.batch_ticks(Features(batches, batches, 0, len(input_tokens), 0, total, squares, 0, 0))


def ttft_floors_ticks(instance: Instance, cost: CostModel, priority: int = 0) -> list[int]:
    """Per request of a class, its own prefill alone; sorted values bound sorted times, so percentiles too."""
    return [prefill_floor_ticks([r.input_tokens], instance.token_budget, cost)
            for r in instance.requests if r.priority == priority]  # fmt: skip


def max_ttft_floor_ticks(instance: Instance, cost: CostModel, priority: int = 0) -> int | None:
    """Least possible maximum TTFT of a class; None without such requests.

    For every run of consecutive arrivals i..j: all their first tokens take the floor from arrival i on, and the last of
    them belongs to a request that arrived by j: max TTFT >= arrival_i + floor(i..j) - arrival_j.
    """
    members = sorted((r for r in instance.requests if r.priority == priority), key=lambda r: r.arrival_ns)
    best: int | None = None
    for i, first in enumerate(members):
        inputs: list[int] = []
        for last in members[i:]:
            inputs.append(last.input_tokens)
            span = (last.arrival_ns - first.arrival_ns) * TICKS_PER_NS
            floor = prefill_floor_ticks(inputs, instance.token_budget, cost) - span
            best = floor if best is None else max(best, floor)
    return best
