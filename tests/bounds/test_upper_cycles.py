"""Cycles: schedules the replay accepts, better than those without preemption; paths checked by trying them all."""

from __future__ import annotations

from itertools import combinations, islice

import numpy as np
import pytest

from bounds.upper.cycles import applies, schedules
from bounds.upper.staggered import schedules as staggered
from sim.cost.model import load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.replay import replay

LINEAR = load_cost_model("linear/llama2-7b-a100")


@pytest.mark.parametrize(("block_size", "requests"), [(1, 200), (3, 150)])
def test_better_than_schedulers(block_size: int, requests: int) -> None:
    instance = Instance((Request(2, 8),) * requests, 33, 4096, block_size=block_size)
    known = min(simulate(instance, name).replay.makespan_ticks for name in ("vllm", "vllm_pf", "vllm_srf"))
    found = list(islice(schedules(instance, LINEAR, "makespan", lambda: False, known), 3))
    values = [replay(instance, schedule, cost=LINEAR).makespan_ticks for schedule, _ in found]
    assert all(words.startswith("cycle(") for _, words in found)
    assert min(values) < known


def test_few_requests_need_no_whole_cycle() -> None:
    instance = Instance((Request(2, 8),) * 4, 33, 4096)
    for schedule, _ in islice(schedules(instance, LINEAR, "makespan", lambda: False, float("inf")), 3):
        replay(instance, schedule, cost=LINEAR)


def test_a_small_memory_is_used_by_preempting() -> None:
    """(1, 32), M = 100: better than staggered admission without preemption."""
    instance = Instance((Request(1, 32),) * 1024, 100, 4096)
    ((plan, _),) = staggered(instance, LINEAR, "makespan", lambda: False, float("inf"))
    known = replay(instance, plan, cost=LINEAR).makespan_ticks
    found = islice(schedules(instance, LINEAR, "makespan", lambda: False, known), 2)
    best = min((replay(instance, schedule, cost=LINEAR) for schedule, _ in found), key=lambda r: r.makespan_ticks)
    assert sum(best.preemptions) > 0
    assert best.makespan_ticks < known


def test_only_for_equal_offline_requests() -> None:
    assert applies(Instance((Request(4, 4),) * 4, 30, 30))
    assert not applies(Instance((Request(4, 4),) * 4, 30, 29))
    assert not applies(Instance((Request(4, 4), Request(4, 5)) * 2, 30, 30))
    assert not applies(Instance((Request(4, 4), Request(4, 4, 7)) * 2, 30, 30))
    assert not applies(Instance((Request(4, 4),) * 9, 30, 30, max_num_seqs=5))


def test_paths_are_the_cheapest() -> None:
    """Against every choice of batches and of holding or being refilled."""
    from bounds.upper._paths import best_path

    rng = np.random.default_rng(2)
    end, sizes, limit = 8, np.array([2, 3, 4]), 6
    for _ in range(40):
        taken, weight = rng.integers(0, 7, end), rng.uniform(0.1, 1, end)
        fill, refill = rng.random(end) < 0.5, np.array([0.0, *rng.uniform(0, 1, 2)])
        times, absent = np.zeros(3, np.int64), np.zeros(3, np.bool_)
        price = best_path(taken, weight, fill, 0, end, end, end, sizes, limit, refill, times, absent)

        def over(t: int, size: int, taken: np.ndarray = taken, weight: np.ndarray = weight) -> float:
            return float(weight[t] * (max(0, taken[t] + size - limit) - max(0, taken[t] - limit)))

        best = 1e18
        for path in combinations(range(end), 3):
            if not fill[path[0]]:
                continue
            total = over(path[0], 2)
            for k in (1, 2):
                held = sum(over(t, int(sizes[k - 1])) for t in range(path[k - 1] + 1, path[k]))
                away = refill[k] if fill[path[k]] and path[k] > path[k - 1] + 1 else 1e18
                total += min(held, away) + over(path[k], int(sizes[k]))
            best = min(best, total)
        assert price == pytest.approx(best)
