"""Exact windows: a window of everything gives the optimum, outside a window nothing changes, sums come out right."""

from __future__ import annotations

import numpy as np
import pytest

from bounds.compare import Comparison
from bounds.interval import Search, _polish, _result
from bounds.report import window_lines
from bounds.upper import windows
from bounds.upper._exact import Exact, Tally, improved_exactly
from csp.boundary import replay_between
from csp.solve import solve
from sim.cost.model import CostModel, load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.replay import Replay

LINEAR = load_cost_model("linear/llama2-7b-a100")
AFFINE = load_cost_model("max-affine/llama2-7b-a100")
COSTS = pytest.mark.parametrize("cost", [LINEAR, AFFINE], ids=lambda cost: cost.kind)


@pytest.fixture(autouse=True)
def without_other_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have tests of their own (`test_upper_windows`, `test_upper_spread`)."""
    monkeypatch.setattr(windows, "_rounds", lambda *_: iter(()))


def crowded(cost: CostModel, scheduler: str, block: int = 1) -> Replay:
    lengths = np.random.default_rng(4).integers(2, [30, 20], size=(12, 2))
    chosen = tuple(Request(int(i), int(o)) for i, o in lengths)
    return simulate(Instance(chosen, 100, 4096, 8, block), scheduler, cost=cost).replay


@pytest.mark.parametrize("requests", [Request(2, 4), Request(16, 4)])
def test_a_window_of_everything_is_the_optimum(requests: Request) -> None:
    instance = Instance((requests,) * 4, max(2 * requests.input_tokens, requests.input_tokens + 3))
    start = simulate(instance, "vllm_pf", cost=LINEAR).replay
    tally = Tally(variables=20_000)
    *_, best = improved_exactly(start, LINEAR, np.random.default_rng(0), lambda: False, tally)
    assert best.makespan_ticks == solve(instance, solver="search").objective_ticks < start.makespan_ticks
    assert tally.proven >= tally.improved >= 1
    assert tally.gained_ticks == start.makespan_ticks - best.makespan_ticks


@COSTS
@pytest.mark.parametrize("scheduler", ["vllm", "sarathi:token_budget=17"])
def test_parts_are_what_the_schedule_does(cost: CostModel, scheduler: str) -> None:
    """Each part takes the time its batches take in the schedule, preempted and chunked requests too; in blocks."""
    start = crowded(cost, scheduler, 3)
    exact = Exact(start, cost, Tally())
    records = start.records
    seen = 0
    for low in range(0, len(records) - 4, 3):
        part = exact._part(low, low + 5)
        if part is not None:
            present = replay_between(part.instance, part.present, part.boundary, cost)
            assert present.makespan_ticks == records[low + 4].end_ticks - records[low].start_ticks
            assert part.least_ticks(cost) <= present.makespan_ticks
            assert present.records[-1].kv_blocks == records[low + 4].kv_blocks
            seen += 1
    assert seen > 5


@COSTS
@pytest.mark.parametrize("scheduler", ["vllm", "sarathi:token_budget=17"])
def test_outside_a_window_nothing_changes(cost: CostModel, scheduler: str) -> None:
    start = crowded(cost, scheduler)
    gains = 0
    for seed in range(3):
        exact, random = Exact(start, cost, Tally(variables=400)), np.random.default_rng(seed)
        assert next(exact.sweep(random, lambda: False), True) is None
        made = exact.replayed()
        before, after = start.schedule.batches, made.schedule.batches
        low, gone = int(exact.proven.argmax()), len(before) - len(after)
        high = int(exact.proven[low])
        for old, new in ((before[:low], after[:low]), (before[high:], after[high - gone :])):
            assert [set(batch.process) for batch in old] == [set(batch.process) for batch in new]
        assert made.makespan_ticks == start.makespan_ticks - exact.tally.gained_ticks <= start.makespan_ticks
        again = Exact(made, cost, Tally())
        if not gone:
            assert exact.first.tolist() == again.first.tolist() and exact.last.tolist() == again.last.tolist()
        gains += exact.tally.gained_ticks > 0
    assert gains >= 1


@COSTS
def test_what_is_filled_before_a_window_is_not_charged_there(cost: CostModel) -> None:
    """A window that ends a prompt filled in chunks may take less than the whole fill."""
    start = simulate(Instance((Request(200, 2),), 300), "sarathi:token_budget=64", cost=cost).replay
    exact = Exact(start, cost, Tally())
    for low in range(len(start.records) - 1):
        part = exact._part(low, low + 2)
        if part is not None:
            present = replay_between(part.instance, part.present, part.boundary, cost)
            assert part.least_ticks(cost) <= present.makespan_ticks


def test_windows_that_cannot_be_better_are_not_solved() -> None:
    """One request alone is decoded in every batch."""
    start = simulate(Instance((Request(5, 30),), 100), "vllm", cost=AFFINE).replay
    tally = Tally()
    assert not list(improved_exactly(start, AFFINE, np.random.default_rng(0), lambda: False, tally))
    assert (tally.solved, tally.settled) == (0, 1)


def test_max_affine_is_improved() -> None:
    """Costs need not add up; and it stops when told."""
    start, tally = crowded(AFFINE, "vllm"), Tally()
    left = iter([False] * 60)
    found = list(windows.improved(start, AFFINE, "makespan", lambda: next(left, True), tally=tally))
    assert found and tally.improved
    assert not list(windows.improved(start, AFFINE, "makespan", lambda: True))


def test_what_is_reported() -> None:
    """In the JSON and in words, whether or not anything is gained."""
    start = crowded(AFFINE, "vllm")
    search = Search(start.instance, AFFINE, "makespan", tally=Tally(variables=300))
    search.offer(start, "vllm")
    search.progress = lambda incumbent, lower: search.stop.set()
    _polish(search)
    comparison = Comparison(start.instance, _result(search, 0, 1.5), (), search.tally)
    counts = comparison.to_dict()["exact_windows"]
    assert counts["solved"] >= counts["proven"] >= 1 and counts["improved"] >= 1
    assert counts["gained_ms"] == pytest.approx(start.makespan_ms - comparison.result.to_dict()["objective_ms"])
    assert comparison.result.found_by == f"vllm, windows ({counts['improved']} exact)"
    (line,) = window_lines(comparison)
    assert f"{counts['improved']} made faster" in line and "nothing is proven about the whole" in line
    assert not window_lines(Comparison(start.instance, comparison.result, ()))
