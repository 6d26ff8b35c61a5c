"""The tuned service: what it counts is what the replay finds, whatever the settings; and it is worth it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bounds.upper import ranked, tuned
from csp.objectives import load_objective
from sim.clock import TICKS_PER_NS
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request
from sim.replay import replay

LINEAR = load_cost_model("linear/llama2-7b-a100")
MAX_AFFINE = load_cost_model("max-affine/llama2-7b-a100")


def workload(random: np.random.Generator, n: int, late_ns: int, **limits: int) -> Instance:
    rows = random.integers([1, 1, 0], [200, 120, late_ns], size=(n, 3)).tolist()
    requests = tuple(Request(i, o, at) for i, o, at in rows)
    return Instance(requests, **{"kv_capacity_tokens": 1_500, "token_budget": 400, **limits})


@pytest.mark.parametrize("limits", [{}, {"block_size": 16}, {"max_num_seqs": 3}, {"token_budget": 200}])
def test_what_is_counted_is_what_the_replay_finds(limits: dict[str, int]) -> None:
    random = np.random.default_rng(1)
    evicted = held = 0
    for cost in (LINEAR, MAX_AFFINE):
        for _ in range(12):
            instance = workload(random, 40, int(random.choice([1, 3 * 10**9])), **limits)
            service = tuned._Service(instance, cost)
            at = service.start(evicting=True) + random.standard_normal(len(tuned._STEP))
            at[tuned._EVICT] = random.choice([0.1, 1.0, 5.0])
            found = replay(instance, service.schedule(at), cost=cost)
            times = [t - r.arrival_ns * TICKS_PER_NS for t, r in
                     zip(found.completed_ticks, instance.requests, strict=True) if t is not None]  # fmt: skip
            assert math.isclose(sum(times), service.value(at, math.inf), rel_tol=1e-9)
            evicted += sum(found.preemptions)
            held += service._run(at, math.inf)[4]
    assert evicted > 10 or "max_num_seqs" in limits
    assert held > 5 or limits.get("token_budget") != 200


def test_tuned_rules_gain_on_rules_fixed_beforehand() -> None:
    instance = workload(np.random.default_rng(2), 150, 2 * 10**9)
    mean = load_objective("mean_completion")
    best = {}
    trials = iter([False] * 800)
    for name, method, until in (("ranked", ranked.schedules, lambda: False),
                                ("tuned", tuned.schedules, lambda: next(trials, True))):  # fmt: skip
        found = method(instance, LINEAR, "mean_completion", until, math.inf)
        values = [mean.value(replay(instance, schedule, cost=LINEAR), LINEAR) for schedule, _ in found]
        best[name] = min(values)
    assert best["tuned"] < 0.97 * best["ranked"]


def test_prompts_longer_than_a_batch_are_left_to_others() -> None:
    instance = Instance((Request(30, 2),), 100, 20)
    assert not list(tuned.schedules(instance, LINEAR, "mean_completion", lambda: False, math.inf))


def test_a_request_as_large_as_the_memory_is_served() -> None:
    instance = Instance((Request(90, 7), Request(3, 3), Request(80, 17)), 96, 96, block_size=16)
    found = list(tuned.schedules(instance, LINEAR, "mean_completion", lambda: False, math.inf))
    assert all(replay(instance, schedule, cost=LINEAR).completed_ticks for schedule, _ in found)
    assert found
