"""Makespan bounds from batch counts, in ticks: each name is a way to count batches, put through `aggregate`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from csp.relaxations.aggregate import Multipliers, Relaxation
from csp.relaxations.batches import LeastBatches, least_batches_of, least_prefill_batches
from csp.relaxations.configuration import batches_from_weights
from csp.relaxations.load import Load, load_of
from csp.relaxations.patterns import Weights
from csp.result import Bound
from sim.clock import ms_from_ticks
from sim.cost.model import CostModel
from sim.instance import Instance

COUNTS = ("critical_path", "tokens", "memory_area", "sequences", "packing")
"""Ways to count batches (fields of `LeastBatches`)."""
AGGREGATE = "aggregate"
"""The best count together with prices on memory, tokens and slots: at least as strong as each of the others."""


@dataclass(frozen=True, slots=True)
class Counted:
    """An instance counted once for several bounds."""

    load: Load
    least: LeastBatches
    least_prefill: int
    seconds: float


def count(instance: Instance) -> Counted:
    """Count an instance.

    Raises
    ------
    sim.errors.InputError
        If a request can never fit.
    """
    start = time.perf_counter()
    load = load_of(instance)
    return Counted(load, least_batches_of(load), least_prefill_batches(load), time.perf_counter() - start)


def combinatorial_bounds(instance: Instance, cost: CostModel) -> list[Bound]:
    """All combinatorial makespan bounds, best last; they hold for every schedule the replay accepts.

    With arrivals they bound the busy time and so the makespan too; batches that process nothing, swapping and blocks
    are covered.

    Examples
    --------
    >>> from sim.cost.model import load_cost_model
    >>> from sim.instance import load_instance
    >>> instance = load_instance("paper-7.2-i0032")
    >>> best = combinatorial_bounds(instance, load_cost_model(instance.cost_model))[-1]
    >>> best.name, round(best.value_ms, 3)
    ('aggregate', 51.527)
    """
    counted = count(instance)
    bounds = [makespan_bound(counted, cost, name) for name in (*COUNTS, AGGREGATE)]
    return sorted((b for b in bounds if b is not None), key=lambda bound: bound.value_ticks)


def makespan_bound(counted: Counted, cost: CostModel, name: str) -> Bound | None:
    """One of the bounds; None if it does not apply (``sequences`` without a cap)."""
    start = time.perf_counter()
    least = counted.least.best if name == AGGREGATE else getattr(counted.least, name)
    if least == 0:
        return None
    relaxation = Relaxation(counted.load, cost, least, counted.least_prefill)
    chosen = relaxation.default_multipliers()
    if name == AGGREGATE or not cost.additive:
        proposed = _proposal(counted, cost)
        proposed = proposed if name == AGGREGATE else Multipliers(proposed.weights)
        chosen = max((chosen, proposed), key=relaxation.value)
    ticks = math.ceil(relaxation.value(chosen))
    spent = counted.seconds + time.perf_counter() - start
    return Bound(name, ticks, spent, _inputs(counted, relaxation, chosen))


@lru_cache(maxsize=4)
def _proposal(counted: Counted, cost: CostModel) -> Multipliers:
    """Weights and prices for the strongest count; they prove a bound with any count."""
    return Relaxation(counted.load, cost, counted.least.best, counted.least_prefill).proposed()


def additive_weights(load: Load, cost: CostModel) -> Weights:
    """A convex combination of each group's pieces that charges much for the total features of good schedules.

    Any combination bounds every batch from below; this one is that of the aggregate bound with the best batch count.
    """
    if cost.additive:
        return Relaxation(load, cost, 1, 1).default_multipliers().weights
    return Relaxation(load, cost, least_batches_of(load).best, least_prefill_batches(load)).proposed().weights


def _inputs(counted: Counted, relaxation: Relaxation, chosen: Multipliers) -> dict[str, Any]:
    """The numbers that let a reader recompute the bound."""
    load = counted.load
    inputs: dict[str, Any] = {
        "least_batches": relaxation.least_batches, "least_prefill_batches": relaxation.least_prefill_batches,
        "requests": load.requests, "sum_input_tokens": load.input_tokens, "sum_output_tokens": load.output_tokens,
        "least_tokens": load.least_tokens, "memory_area_blocks": load.area_blocks(), "kv_blocks": load.kv_blocks,
        "block_size": load.block_size, "token_budget": load.token_budget, "max_num_seqs": load.max_num_seqs,
        "packing_function": counted.least.packing_function,
    }  # fmt: skip
    if any(len(group) > 1 for group in chosen.weights):
        inputs["piece_weights"] = [[str(w) for w in group] for group in chosen.weights]
    if chosen.prices:
        inputs["prices_ms"] = {row: ms_from_ticks(price) for row, price in chosen.prices.items()}
        inputs["prices_ticks"] = {row: str(price) for row, price in chosen.prices.items()}
    return inputs


def makespan_from_prices(name: str, inputs: Mapping[str, Any], instance: Instance, cost: CostModel) -> int:
    """What the weights and prices of a reported bound prove, in exact arithmetic, with batch counts recomputed."""
    counted = count(instance)
    least = counted.least.best if name == AGGREGATE else getattr(counted.least, name, 0)
    if name == "configuration":
        sizes = {int(s): int(u) for s, u in inputs["certificate"]["weights"]}
        least = max(counted.least.best, batches_from_weights(counted.load, sizes))
    relaxation = Relaxation(counted.load, cost, least, counted.least_prefill)
    weights = relaxation.default_multipliers().weights
    if "piece_weights" in inputs:
        weights = tuple(tuple(map(Fraction, group)) for group in inputs["piece_weights"])
    prices = {str(row): Fraction(price) for row, price in inputs.get("prices_ticks", {}).items()}
    return math.ceil(relaxation.value(Multipliers(weights, prices)))
