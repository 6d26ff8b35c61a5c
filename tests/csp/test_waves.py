"""Tree over flags, local search and portfolio against the search over states and the independent search."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from csp.search.best_first import search_best_first
from csp.search.ruin import grid_of, improved, rates_of, schedule_of
from csp.search.space import Space, build_space
from csp.solve import solve
from csp.waves.tree import Node, Tree, applies
from sim.cost import CostModel, load_cost_model
from sim.instance import Instance, load_instance
from sim.replay import PAPER_RULES, BatchRecord, Rules, replay
from sim.schedule import Schedule
from tests.csp.test_search import random_cost, random_instance
from tests.oracle import Limits, optimum


def random_case(seed: int, most: int = 4) -> tuple[Instance, CostModel, Rules, Space]:
    rng = random.Random(seed)
    instance, cost = random_instance(rng, most), random_cost(rng)
    rules = Rules(preemption=rng.random() < 0.8, hybrid=rng.random() < 0.8)
    return instance, cost, rules, build_space(instance, cost, rules)


@pytest.mark.parametrize("seed", range(80))
def test_the_tree_s_bound_never_exceeds_the_optimum(seed: int) -> None:
    _, _, _, space = random_case(seed)
    best = search_best_first(space)
    if best.value_ticks is None or not applies(space):
        return
    for upper in (None, best.value_ticks + 1, best.value_ticks):
        tree = Tree(space, lambda upper=upper: upper)  # type: ignore[misc]
        for _ in range(300):
            if tree.done:
                break
            tree.step()
            assert tree.lower_bound_ticks <= best.value_ticks
    assert tree.lower_bound_ticks > 0


def kinds_of(records: Sequence[BatchRecord], decides: Callable[[], bool], either: Callable[[], bool]) -> Any:
    """Kinds of a schedule's batches, some left open; of some that prefill it is left open whether they decode."""
    from csp.waves import _kernels as kernel

    kind = np.zeros(len(records), np.int8)
    for t, record in enumerate(records):
        flags = record.features.prefill_batch, record.features.decode_batch
        if decides():
            kind[t] = {(1, 0): kernel.PREFILLS, (0, 1): kernel.DECODES, (1, 1): kernel.BOTH}[flags]
            kind[t] = kernel.EITHER if flags[0] and either() else kind[t]
    return kind


@pytest.mark.parametrize("seed", range(60))
def test_a_sweep_of_the_optimum_s_flags_ends_at_the_optimum(seed: int) -> None:
    """Where neither the token budget nor the number of slots binds; elsewhere it stays below."""
    instance, cost, rules, space = random_case(seed)
    best = search_best_first(space)
    if best.schedule is None or best.value_ticks is None or not applies(space):
        return
    records = replay(instance, best.schedule, rules=rules, cost=cost).records
    random_ = np.random.default_rng(seed)
    found: list[Schedule] = []
    tree = Tree(space, lambda: None, found.append)
    for steps in (1, 30):
        kind = kinds_of(records, lambda: True, lambda: random_.random() < 0.5)
        root = tree.root(len(records), 1 + len(records))
        node = replace(root, decided=len(records), kind=kind, left=0)
        node.price[:] = random_.integers(0, 1 + best.value_ticks // (len(records) * tree.costs.capacity), len(records))
        tree.ascend(node, 2**58, steps, 1.0, 0.1)
        for most in (2, 20_000):
            bound = tree.sweep(node, 0, 2**58, most)
            assert bound <= best.value_ticks
    roomy = instance.token_budget >= sum(r.peak_kv_tokens for r in instance.requests) and not instance.max_num_seqs
    if roomy and cost.additive:
        assert bound == best.value_ticks
        assert replay(instance, found[-1], rules=rules, cost=cost).makespan_ticks == bound


def first_fills(space: Space, schedule: Schedule) -> dict[int, int]:
    """Batch in which each type of one request only is filled first."""
    names = [(r.input_tokens, r.output_tokens) for r in space.instance.requests]
    types = list(dict.fromkeys(names[i] for i in space.order))
    first: dict[int, int] = {}
    for t, batch in enumerate(schedule.batches):
        for i, _ in batch.process:
            first.setdefault(i, t)
    return {types.index(name): first[i] for i, name in enumerate(names) if names.count(name) == 1}


@pytest.mark.parametrize("seed", range(60))
def test_a_node_of_the_optimum_s_flags_is_bounded_by_it_under_any_prices(seed: int) -> None:
    """Some of the batches decided as in an optimal schedule, and prices and shares at random."""
    from csp.waves import _kernels as kernel

    instance, cost, rules, space = random_case(seed)
    best = search_best_first(space)
    if best.schedule is None or best.value_ticks is None or not applies(space):
        return
    records = replay(instance, best.schedule, rules=rules, cost=cost).records
    tree, random_ = Tree(space, lambda: None), np.random.default_rng(seed)
    last, types = len(records), len(tree.costs.outputs)
    for _ in range(8):
        kind = kinds_of(records, lambda: random_.random() < 0.5, lambda: random_.random() < 0.5)
        left = sum(record.features.prefill_batch for t, record in enumerate(records) if kind[t] == kernel.OPEN)
        toll = random_.integers(0, 1 + 2 * kernel.rest_ticks(tree.costs), 1)
        price = random_.integers(0, 1 + best.value_ticks // (last * tree.costs.capacity), last)
        share = random_.random((last, types + 1)) ** 3
        share /= share.sum(axis=1)[:, None] * (1 + 1e-6)
        window = np.tile(np.array([0, last - 1], np.int16), (types, 1))
        for i, first in first_fills(space, best.schedule).items():
            window[i] = random_.integers(0, first + 1), random_.integers(first, last)
        node = Node(last, kind, window, price, toll, share.astype(np.float32), left)
        for steps in (1, 40):
            assert tree.ascend(node, 2**58, steps, 0.5, 0.05) <= best.value_ticks
        assert float(node.share.astype(np.float64).sum(axis=1).max()) < 1 + 1e-6


def test_the_tree_proves_what_combinatorial_bounds_do_not() -> None:
    """het8-00: 60.908875 ms is the optimum; packing says 54.11."""
    instance = load_instance("het8-00")
    space = build_space(instance, load_cost_model(instance.cost_model), PAPER_RULES)
    tree = Tree(space, lambda: 6_090_887_580_800)
    for _ in range(300):
        tree.step()
    assert 5_600_000_000_000 < tree.lower_bound_ticks <= 6_090_887_580_800


@pytest.mark.parametrize("seed", range(60))
def test_local_search_gives_valid_schedules_no_better_than_the_optimum(seed: int) -> None:
    instance, cost, rules, space = random_case(seed, 5)
    best = search_best_first(space)
    if best.schedule is None or best.value_ticks is None:
        return
    result = solve(instance, cost=cost, rules=Rules(rules.allow_empty, rules.preemption, False, rules.hybrid),
                   solver="search", time_limit_s=20)  # fmt: skip
    start = result.replay
    assert start is not None
    known: list[Schedule] = [start.schedule]
    for schedule, value in improved(space, lambda: known[-1], cost, rules, passes=1, seed=seed):
        assert replay(instance, schedule, rules=rules, cost=cost).makespan_ticks == value
        assert value >= best.value_ticks
        known.append(schedule)


@pytest.mark.parametrize("seed", range(40))
def test_a_grid_is_its_schedule_and_costs_as_much(seed: int) -> None:
    from csp.search import _ruin as kernel

    instance, cost, _, space = random_case(seed)
    best = search_best_first(space)
    if best.schedule is None:
        return
    grid = grid_of(space, best.schedule, len(best.schedule.batches) + 2)
    assert grid is not None
    ticks = kernel.recount(grid, rates_of(space))
    assert schedule_of(space, grid.action) == best.schedule
    assert ticks == best.value_ticks if cost.additive else ticks <= best.value_ticks
    assert int(grid.used.max()) <= instance.kv_blocks


def test_local_search_improves_a_poor_schedule() -> None:
    instance = load_instance("het16-00")
    cost = load_cost_model(instance.cost_model)
    space = build_space(instance, cost, PAPER_RULES)
    from csp.warm import serial_schedule

    start = serial_schedule(instance, PAPER_RULES)
    assert start is not None
    values = [value for _, value in improved(space, lambda: start, cost, PAPER_RULES, passes=2)]
    assert min(values) < 16_000_000_000_000 < replay(instance, start).makespan_ticks


@pytest.mark.parametrize("seed", range(300, 330))
def test_portfolio_agrees_with_the_independent_search(seed: int) -> None:
    rng = random.Random(seed)
    instance, cost = random_instance(rng, 3), random_cost(rng)
    rules = Rules(preemption=rng.random() < 0.8, hybrid=rng.random() < 0.8, chunking=False)
    limits = Limits(preemption=rules.preemption, chunking=False, hybrid=rules.hybrid)
    expected = optimum(instance, limits=limits, cost=cost)
    result = solve(instance, cost=cost, rules=rules, solver="portfolio")
    if expected is None:
        assert result.status == "INFEASIBLE"
        return
    assert (result.status, result.objective_ticks) == ("OPTIMAL", expected.value)


def test_portfolio_passes_other_questions_on() -> None:
    instance = load_instance("paper-7.2-i0002")
    result = solve(instance, objective="mean_ttft", solver="portfolio")
    assert result.status == "OPTIMAL" and result.solver_version.startswith("cp-sat")
