"""Window re-optimisation: what it gives is accepted and better, it can be stopped, and small windows are solved."""

from __future__ import annotations

import numpy as np
import pytest

from bounds.interval import find_interval, first_schedule
from bounds.upper import windows
from bounds.upper._events import occupied, read, write
from bounds.upper._preempting import Preempting
from bounds.upper.windows import Plain
from csp.search import _between as kernel
from csp.search import _ruin as kernel_ruin
from csp.solve import solve
from sim.cost.model import load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.replay import Replay, replay
from sim.workload import TraceOptions, instance_from_trace

LINEAR = load_cost_model("linear/llama2-7b-a100")


@pytest.fixture(autouse=True)
def without_exact_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have tests of their own (`test_upper_exact`)."""
    monkeypatch.setattr(windows, "improved_exactly", lambda *_: iter(()))


def random_instance(rng: np.random.Generator, requests: int, longest: tuple[int, int] = (40, 12)) -> Instance:
    late = 5 * 10**7 if rng.random() < 0.3 else 1
    chosen = tuple(Request(int(i), int(o), int(rng.integers(0, late)))
                   for i, o in rng.integers(1, longest, size=(requests, 2)))  # fmt: skip
    peak = max(r.peak_kv_tokens for r in chosen)
    seqs = int(rng.integers(1, 6)) if rng.random() < 0.3 else None
    block = int(rng.choice([1, 1, 3]))
    return Instance(chosen, peak + block + int(rng.integers(0, 60)), int(rng.integers(40, 90)), seqs, block)


def simulated(instance: Instance, name: str) -> Replay | None:
    done = simulate(instance, name, cost=LINEAR)
    return None if done.stalled else done.replay


def rounds(start: Replay, number: int, seed: int = 0) -> list[Replay]:
    """Improved schedules, replayed, of so many passes."""
    left = iter([False] * number)
    found = windows.improved(start, LINEAR, "makespan", lambda: next(left, True), seed=seed)
    return [replay(start.instance, schedule, cost=LINEAR) for schedule in found]


def test_events_are_the_schedule() -> None:
    """Preempted and chunked requests, blocks, arrivals: only the order within batches may change."""
    rng = np.random.default_rng(1)
    for _ in range(30):
        instance = random_instance(rng, int(rng.integers(1, 14)))
        for name in ("vllm", "sarathi:token_budget=17", "lookahead"):
            start = simulated(instance, name)
            if start is None or any(not record.entries for record in start.records):
                continue
            events = read(start)
            again = replay(instance, write(events, len(start.schedule)), cost=LINEAR)
            assert again.makespan_ticks == start.makespan_ticks
            assert [set(b.process) for b in again.schedule.batches] == [set(b.process) for b in start.schedule.batches]
            assert again.preemptions == start.preemptions
            blocks = sum(occupied(e, instance, i, len(start.schedule)) for i, e in enumerate(events))
            assert list(blocks) == [record.kv_blocks for record in start.records]


def test_better_and_accepted() -> None:
    rng = np.random.default_rng(2)
    better = 0
    for seed in range(30):
        instance = random_instance(rng, int(rng.integers(2, 40)))
        start = simulated(instance, str(rng.choice(["vllm", "vllm_pf", "lookahead", "sarathi_cs"])))
        if start is None:
            continue
        values = [start.makespan_ticks, *(found.makespan_ticks for found in rounds(start, 12, seed))]
        assert values == sorted(set(values), reverse=True)
        better += len(values) > 1
    assert better >= 10


def passes(windows: Plain | Preempting, number: int, seed: int = 0) -> Replay:
    """The schedule after one round of so many passes."""
    left = iter([False] * (number - 1))
    windows.round(0, np.random.default_rng(seed), lambda: next(left, True))
    return replay(windows.instance, windows.schedule(), cost=LINEAR)


def crowded() -> Replay:
    rng = np.random.default_rng(4)
    requests = tuple(Request(int(i), int(o)) for i, o in rng.integers(1, [40, 40], size=(40, 2)))
    start = simulated(Instance(requests, 200, 4096), "vllm")
    assert start is not None
    return start


def test_whoever_does_not_fit_the_moves_stays() -> None:
    """Plain windows: requests that are preempted do what they did, in the batches that are left."""
    start = crowded()
    stays = [i for i, times in enumerate(start.preemptions) if times]
    found = passes(Plain(start, LINEAR), 30)
    assert found.makespan_ticks < start.makespan_ticks and len(stays) > 3
    for i in stays:
        assert found.preemptions[i] == start.preemptions[i]
        assert found.refilled_tokens[i] == start.refilled_tokens[i]


def test_schedules_that_preempt_are_improved() -> None:
    start = crowded()
    found = passes(Preempting(start, LINEAR), 30)
    assert found.makespan_ticks < 0.95 * start.makespan_ticks
    assert sum(found.preemptions) < sum(start.preemptions)


def test_before_and_after_a_window_nothing_changes() -> None:
    """One move changes a window of batches at most and keeps the states at its ends."""
    start = crowded()
    for seed in range(40):
        windows = Preempting(start, LINEAR)
        before = windows.grid.action.copy()
        moved = one_move(windows, widest=12, seed=seed)
        changed = np.flatnonzero((before != windows.grid.action).any(axis=0))
        assert len(changed) == 0 or changed[-1] - changed[0] < 12
        value = replay(start.instance, windows.schedule(), cost=LINEAR).makespan_ticks
        assert value == pytest.approx(start.makespan_ticks + moved, abs=1)


def one_move(windows: Preempting, *, widest: int, seed: int) -> float:
    """Make one move, whatever it costs; ticks it adds."""
    grid, rates = windows.grid, windows.rates
    kernel_ruin.recount(grid, rates)
    worked = (grid.action == kernel_ruin.FILLS) | (grid.action == kernel_ruin.DECODES)
    span = kernel.Span(worked.argmax(axis=1), worked.shape[1] - 1 - worked[:, ::-1].argmax(axis=1))
    search = kernel.Search(1e30, 1e30, 1e9, -1e5, widest, 6)
    random = np.random.default_rng(seed)
    now, _ = kernel.anneal(grid, rates, span, search, 1, 0.0, 0.0, grid.action.copy(), random)
    return now


def test_a_window_of_everything_reaches_the_optimum() -> None:
    """Four requests: where the whole schedule is one window, it is nearly always solved; never below the optimum."""
    rng = np.random.default_rng(7)
    reached = 0
    for seed in range(12):
        requests = tuple(Request(int(i), int(o)) for i, o in rng.integers(1, [12, 6], size=(4, 2)))
        peak = max(r.peak_kv_tokens for r in requests)
        instance = Instance(requests, peak + int(rng.integers(0, 9)), 4096)
        start = simulated(instance, "vllm")
        optimum = solve(instance, solver="search", cost=LINEAR)
        assert start is not None and optimum.status == "OPTIMAL"
        best = [start, *rounds(start, 400, seed)][-1].makespan_ticks
        assert optimum.objective_ticks is not None and best >= optimum.objective_ticks
        reached += best == optimum.objective_ticks
    assert reached >= 11


def test_not_where_costs_do_not_add_up_and_requests_arrive() -> None:
    cost = load_cost_model("roofline/llama2-7b-a100")
    late = (Request(3, 4), Request(3, 4, 10**7))
    start = simulate(Instance(late, 12, 100), "vllm_pf", cost=cost).replay
    assert not windows.applies(start.instance, cost)
    assert not list(windows.improved(start, cost, "makespan", lambda: False))


def test_excerpt_of_a_trace() -> None:
    """The first 200 requests of the Azure conversation trace offline, from a plan."""
    options = TraceOptions(20_000, 4096, first=200, max_tokens=4096, offline=True)
    instance = instance_from_trace("azure-conv-2000", options)
    plain = first_schedule(instance, LINEAR, [], [], 2.0).best_ticks
    found = find_interval(instance, ["lookahead"], time_limit_s=3.0).result
    assert ", windows" in str(found.found_by)
    assert plain is not None and found.objective_ticks is not None and found.objective_ticks < plain


def test_it_stops_when_told() -> None:
    start, calls = crowded(), 0

    def until() -> bool:
        nonlocal calls
        calls += 1
        return calls >= 20

    found = list(windows.improved(start, LINEAR, "makespan", until))
    assert found and calls <= 24
