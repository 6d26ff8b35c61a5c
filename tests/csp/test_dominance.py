"""Attempts to refute the rules of `csp.search.dominance`: the optimum without them must never be lower."""

from __future__ import annotations

import random

import numpy as np
import pytest

from csp.search.best_first import search_best_first
from csp.search.space import FINISH, KEEP, Space, build_space
from sim.cost import CostModel, Features, OperatorGroup, load_cost_model
from sim.instance import Instance, Request
from sim.replay import PAPER_RULES, Rules
from tests.csp.test_search import NAMES, random_cost, random_instance


def with_marks(space: Space, *off: int, force: int | None = None) -> Space:
    """The same search with some rules off, or one applied where its condition does not hold."""
    mark = space.tables.mark.copy()
    mark[:, :, list(off)] = 0
    if force is not None:
        mark[:, :, force] = 1
    return space._replace(tables=space.tables._replace(mark=mark))


def value(space: Space) -> int:
    found = search_best_first(space)
    assert found.proven and found.value_ticks is not None
    return found.value_ticks


@pytest.mark.parametrize("block", range(20))
def test_no_rule_loses_the_optimum(block: int) -> None:
    rng = random.Random(1000 + block)
    used = 0
    for _ in range(20):
        instance, cost = random_instance(rng, 5), random_cost(rng)
        if instance.token_budget < instance.kv_capacity_tokens:
            continue
        space = build_space(instance, cost, PAPER_RULES)
        mark = space.tables.mark
        if not np.any(mark[:, :, [KEEP, FINISH]]):
            continue
        used += 1
        plain = value(with_marks(space, KEEP, FINISH))
        assert value(space) == value(with_marks(space, KEEP)) == value(with_marks(space, FINISH)) == plain
    assert used > 3


def test_rules_are_on_where_the_design_says() -> None:
    """Under the 7B coefficients, keep holds from 11 tokens on."""
    for inputs, first in ((10, 1), (9, 2), (1, 10)):
        space = build_space(Instance((Request(inputs, 12),), 100), load_cost_model(NAMES[0]), PAPER_RULES)
        keeps = [k for k in range(1, 12) if space.tables.mark[0, 2 * k + 1, KEEP]]
        assert keeps == list(range(first, 12))


def test_keep_below_its_size_is_wrong() -> None:
    """What the condition is for: applied to requests of fewer than 11 tokens, "keep" loses optima."""
    rng = random.Random(3)
    lost = 0
    for _ in range(60):
        requests = tuple(Request(rng.randint(1, 3), rng.randint(2, 5)) for _ in range(4))
        capacity = max(r.peak_kv_tokens for r in requests) + rng.randint(0, 3)
        space = build_space(Instance(requests, capacity), load_cost_model(NAMES[0]), PAPER_RULES)
        lost += value(with_marks(space, force=KEEP)) > value(space)
    assert lost > 0


def test_rules_are_off_where_cost_is_not_additive_or_rules_differ() -> None:
    group = OperatorGroup("all", ((1,) * len(Features._fields), (2,) + (0,) * (len(Features._fields) - 1)))
    cost = CostModel("two pieces", "max-affine", 1, (group,))
    instance = Instance((Request(20, 5), Request(3, 3)), 40)
    for model, rules in ((cost, PAPER_RULES), *((load_cost_model(NAMES[0]), r) for r in other_rules())):
        assert not np.any(build_space(instance, model, rules).tables.mark[:, :, [KEEP, FINISH]])


def other_rules() -> tuple[Rules, ...]:
    return (Rules(preemption=False), Rules(hybrid=False))


def test_holding_is_never_pruned() -> None:
    """Three requests (3, 4) with M = 14: holding while decoding would fit is strictly better."""
    space = build_space(Instance((Request(3, 4),) * 3, 14), load_cost_model(NAMES[0]), PAPER_RULES)
    assert value(space) == pytest.approx(19.960e11, rel=1e-4)
