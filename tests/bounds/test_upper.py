"""Plans: every one is accepted by the replay and valued as the replay values it, whatever the settings."""

from __future__ import annotations

import numpy as np
import pytest

from bounds.upper.plan import value_ticks
from bounds.upper.staggered import Settings, best_plan, near, orders, plan
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request, load_instance
from sim.replay import replay

LINEAR = load_cost_model("linear/llama2-7b-a100")


ORDERS = ["longest", "shortest", "area", "input", "latest", "latest longest"]


def random_instance(rng: np.random.Generator) -> Instance:
    late = 5 * 10**7 if rng.random() < 0.3 else 1
    requests = tuple(Request(int(i), int(o), int(rng.integers(0, late)))
                     for i, o in rng.integers(1, [40, 12], size=(rng.integers(1, 14), 2)))  # fmt: skip
    block = int(rng.choice([1, 1, 3]))
    peak = max(r.peak_kv_tokens for r in requests)
    seqs = int(rng.integers(1, 6)) if rng.random() < 0.4 else None
    return Instance(requests, peak + block + int(rng.integers(0, 60)), int(rng.integers(3, 60)), seqs, block)


def test_random_plans_are_schedules() -> None:
    """Chunked prompts, blocks, few slots: the rules accept every plan, without preemption, at its value."""
    rng = np.random.default_rng(5)
    for _ in range(150):
        instance = random_instance(rng)
        every = int(rng.integers(1, 9))
        settings = Settings(
            str(rng.choice(ORDERS)), every, int(rng.integers(0, every)),
            float(rng.choice([1e9, 1.0])), float(every), float(rng.choice([0, 1])),
            fill_tokens=int(rng.integers(1, 30)) if rng.random() < 0.3 else None,
        )  # fmt: skip
        made = plan(instance, settings)
        if made is None:
            continue
        done = replay(instance, made.schedule(), cost=LINEAR)
        assert sum(done.preemptions) == 0
        assert value_ticks(made, instance, LINEAR, "makespan") == pytest.approx(done.makespan_ticks, rel=1e-9)
        assert value_ticks(made, instance, LINEAR, "mean_completion") == pytest.approx(
            sum(t for t in done.e2e_ticks() if t is not None) / len(instance.requests), rel=1e-9
        )
        assert value_ticks(made, instance, LINEAR, "mean_ttft") == pytest.approx(
            sum(t for t in done.ttft_ticks() if t is not None) / len(instance.requests), rel=1e-9
        )


def test_better_than_every_recorded_scheduler() -> None:
    """1,024 requests (1, 32), M = 1,000: the best of the reference runs takes 5,883.3 ms."""
    instance = Instance((Request(1, 32),) * 1024, 1000, 4096)
    found = best_plan(instance, LINEAR, "makespan", lambda: False)
    assert found is not None
    assert replay(instance, found[1].schedule(), cost=LINEAR).makespan_ms < 4600


def test_settings_nearby_differ() -> None:
    settings = Settings()
    assert settings not in list(near(settings))[:8]
    instance = load_instance("het8-00")
    ordered = orders(np.array([3, 1]), np.array([2, 5]), np.array([0, 0]))
    assert all(sorted(order.tolist()) == [0, 1] for order in ordered.values())
    assert plan(instance, settings) is not None
