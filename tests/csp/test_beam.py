"""Beam search: every schedule it offers is replayed and better than asked for; wider beams find small optima."""

from __future__ import annotations

import random

import numpy as np
import pytest

from csp.search.beam import beam_search, prices, schedules
from csp.search.best_first import search_best_first
from csp.search.space import build_space
from sim.cost import load_cost_model
from sim.instance import Instance, load_instance
from sim.replay import PAPER_RULES, Rules, replay
from tests.csp.test_search import random_cost, random_instance


@pytest.mark.parametrize("seed", range(60))
def test_schedules_replay_to_what_is_claimed_and_a_wide_beam_is_optimal_on_small_ones(seed: int) -> None:
    rng = random.Random(seed)
    instance, cost = random_instance(rng, 3), random_cost(rng)
    rules = Rules(preemption=rng.random() < 0.8, hybrid=rng.random() < 0.8)
    space = build_space(instance, cost, rules)
    best, found = search_best_first(space), beam_search(space, prices(space, 1.0, 1.0), 2000)
    assert best.proven
    if best.value_ticks is None:
        assert found is None
        return
    assert found is not None
    schedule, value = found
    assert replay(instance, schedule, rules=rules, cost=cost).makespan_ticks == value == best.value_ticks


def test_only_better_ones_come_and_each_beats_the_last() -> None:
    instance = load_instance("het8-00")
    cost = load_cost_model(instance.cost_model)
    space = build_space(instance, cost, PAPER_RULES)
    known: list[int] = [75 * 10**11]
    for schedule, value in schedules(space, lambda: known[-1], widest=64):
        assert replay(instance, schedule).makespan_ticks == value < known[-1]
        known.append(value)
    assert 6_090_887_580_800 <= known[-1] < 6_600_000_000_000
    assert beam_search(space, prices(space, 1.0, 1.0), 64, upper_ticks=6_090_887_580_800) is None


def test_identical_requests_keep_their_places() -> None:
    """Schedules name requests by index though the search sorts identical ones."""
    instance = load_instance("uniform-8x16-8-m64")
    space = build_space(instance, load_cost_model(instance.cost_model), PAPER_RULES)
    found = beam_search(space, prices(space, 1.15, 1.3), 50)
    assert found is not None
    run = replay(instance, found[0])
    assert run.makespan_ticks == found[1]
    assert sum(run.preemptions) > 0


def test_the_same_seed_gives_the_same_schedules() -> None:
    instance = Instance(load_instance("het16-00").requests[:6], 90)
    space = build_space(instance, load_cost_model(instance.cost_model), PAPER_RULES)
    price = prices(space, 1.15, 1.3)
    runs = [beam_search(space, price, 20, noise=0.05, rng=np.random.default_rng(7)) for _ in range(2)]
    assert runs[0] is not None and runs[0] == runs[1]
