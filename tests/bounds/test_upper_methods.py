"""Methods that look for better schedules: all are accepted, none is below the bounds, and they can be stopped."""

from __future__ import annotations

import time

import numpy as np
import pytest

from bounds.interval import find_interval
from bounds.lower import QUICK, bound_names, iter_bounds
from bounds.upper import LATE, METHODS, methods, windows
from bounds.upper.first_tokens import _Filling
from bounds.upper.first_tokens import schedules as first_tokens
from csp.objectives import load_objective
from sim.clock import TICKS_PER_NS
from sim.cost.model import load_cost_model
from sim.engine import simulate
from sim.errors import StoppedError
from sim.instance import Instance, Request, load_instance
from sim.replay import replay

LINEAR = load_cost_model("linear/llama2-7b-a100")


def workload(rng: np.random.Generator, requests: int, *, late_ns: int) -> Instance:
    lengths = rng.integers(1, [30, 9], size=(requests, 2))
    chosen = tuple(Request(int(i), int(o), int(rng.integers(0, late_ns))) for i, o in lengths)
    peak = max(r.peak_kv_tokens for r in chosen)
    seqs = int(rng.integers(1, 6)) if rng.random() < 0.3 else None
    return Instance(chosen, peak + int(rng.integers(0, 60)), int(rng.integers(40, 200)), seqs)


def test_names() -> None:
    for objective in ("makespan", "mean_completion", "mean_ttft"):
        assert {name for name, _ in methods(objective)} <= set(METHODS)
    assert "cycles" in dict(methods("makespan", LATE))
    assert not methods("mean_ttft", LATE)


@pytest.mark.parametrize("objective", ["makespan", "mean_completion", "mean_ttft"])
def test_schedules_are_accepted_and_above_the_bounds(objective: str) -> None:
    rng = np.random.default_rng(8)
    found = 0
    for _ in range(12):
        instance = workload(rng, int(rng.integers(1, 12)), late_ns=int(rng.choice([1, 10**8])))
        names = [name for name in bound_names(objective) if name in (*QUICK, "volume", "crowding", "release")]
        low = max(b.value_ticks for b in iter_bounds(instance, LINEAR, objective=objective, only=names))
        for _, method in methods(objective, (*METHODS, *LATE)):
            until = time.process_time() + 0.5
            for schedule, _ in method(
                instance, LINEAR, objective, lambda t=until: time.process_time() > t, float("inf")
            ):
                value = load_objective(objective).value(replay(instance, schedule, cost=LINEAR), LINEAR)
                assert value >= low
                found += 1
    assert found >= 12


def test_first_tokens_beat_every_scheduler_when_memory_is_short() -> None:
    rng = np.random.default_rng(3)
    requests = tuple(Request(int(i), 60, int(at)) for i, at in rng.integers(1, [40, 10**9], size=(60, 2)))
    instance = Instance(requests, 150, 4096)
    ttft = load_objective("mean_ttft")
    ((schedule, _),) = first_tokens(instance, LINEAR, "mean_ttft", lambda: False, float("inf"))
    ours = ttft.value(replay(instance, schedule, cost=LINEAR), LINEAR)
    others = [simulate(instance, name).replay for name in ("vllm", "vllm_srf", "sarathi", "lookahead")]
    assert ours < min(ttft.value(other, LINEAR) for other in others) / 10


def test_first_tokens_come_earlier_in_another_order() -> None:
    rng = np.random.default_rng(4)
    requests = tuple(Request(int(i), 2, int(at)) for i, at in rng.integers(1, [1500, 10 * 10**9], size=(100, 2)))
    instance = Instance(requests, 20_000, 4096)
    ttft = load_objective("mean_ttft")
    greedy = _Filling(instance, LINEAR, 4096)
    ends = greedy.run() - sum(r.arrival_ns * TICKS_PER_NS for r in requests)
    ((schedule, _),) = first_tokens(instance, LINEAR, "mean_ttft", lambda: False, float("inf"))
    assert ttft.value(replay(instance, schedule, cost=LINEAR), LINEAR) * len(requests) < 0.99 * ends


@pytest.mark.parametrize("objective", ["mean_completion", "mean_ttft"])
def test_there_is_a_bound_however_little_time_there_is(objective: str) -> None:
    requests = tuple(Request(40 + i, 1 + i % 90, i * 10**8) for i in range(300))
    found = find_interval(Instance(requests, 2_000, 4096), ["vllm"], objective=objective, time_limit_s=0.01)
    assert found.result.lower_bound_ticks
    assert found.result.objective_ticks is not None


def test_slow_schedulers_are_given_up() -> None:
    instance = Instance((Request(3, 40),) * 20, 100, 100)
    calls = iter([False] * 5)
    with pytest.raises(StoppedError):
        simulate(instance, "lookahead", until=lambda: next(calls, True))
    with pytest.raises(StoppedError):
        simulate(instance, "lookahead", engine="step", until=lambda: True)


@pytest.fixture
def windows_are_compiled() -> None:
    """Which takes, on first use, as long as it takes."""
    small = simulate(load_instance("paper-7.2-i0032"), "vllm_pf").replay
    assert list(windows.improved(small, LINEAR, "makespan", lambda: False))


@pytest.mark.usefixtures("windows_are_compiled")
def test_time_limit_and_gap_are_kept() -> None:
    rng = np.random.default_rng(5)
    requests = tuple(Request(int(i), int(o)) for i, o in rng.integers(1, [1500, 400], size=(400, 2)))
    instance = Instance(requests, 20_000, 4096)
    began = time.process_time()
    found = find_interval(instance, ["vllm", "lookahead"], time_limit_s=2.0)
    assert time.process_time() - began < 8
    assert found.result.objective_ticks is not None
    early = find_interval(instance, ["vllm", "lookahead"], until_gap=0.5)
    assert early.result.found_by in ("vllm", "lookahead")
