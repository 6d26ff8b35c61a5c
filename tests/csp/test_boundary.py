"""Parts of schedules between given states: solved to the optimum that trying everything finds, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from csp.boundary import Boundary, Standing, replay_between, solve_between
from csp.formulations import formulate
from csp.solve import solve
from csp.solvers import Control, Problem
from sim.cost.model import CostModel, Features, load_cost_model
from sim.errors import InputError
from sim.instance import Instance, Request, load_instance
from sim.replay import Replay, RuleError, State, replay
from sim.schedule import Batch, Schedule

LINEAR = load_cost_model("linear/llama2-7b-a100")
AFFINE = load_cost_model("max-affine/llama2-7b-a100")
Places = tuple[Standing, ...]


def random_schedule(rng: np.random.Generator, *, chunks: bool) -> tuple[Instance, Schedule]:
    """Four short requests that do at random what is allowed, for a few batches."""
    requests = tuple(Request(int(i), int(o)) for i, o in rng.integers([1, 1], [12, 6], size=(4, 2)))
    peak = max(r.peak_kv_tokens for r in requests)
    seqs = int(rng.integers(1, 4)) if rng.random() < 0.3 else None
    block = int(rng.choice([1, 1, 3]))
    instance = Instance(requests, peak + block + int(rng.integers(0, 14)), 4096, seqs, block)
    batches: list[Batch] = []
    while len(batches) < 12:
        batch = random_batch(rng, standings(instance, batches), instance, chunks=chunks)
        try:
            replay(instance, Schedule((*batches, batch)), cost=LINEAR, complete=False)
        except RuleError:
            continue
        batches.append(batch)
        if all(k == r.output_tokens for r, (k, _, _) in zip(requests, standings(instance, batches), strict=True)):
            break
    return instance, Schedule(tuple(batches))


def random_batch(rng: np.random.Generator, places: Places, instance: Instance, *, chunks: bool) -> Batch:
    """Anything, mostly processing; not sure to be allowed."""
    process, preempt = [], []
    for i, (r, (k, m, ready)) in enumerate(zip(instance.requests, places, strict=True)):
        rest = r.input_tokens + k - m
        if k == r.output_tokens or rng.random() < 0.4:
            if m and rng.random() < 0.5:
                preempt.append(i)
            continue
        process.append((i, int(rng.integers(1, rest + 1)) if chunks and not ready and rng.random() < 0.5 else rest))
    return Batch(tuple(process), tuple(preempt))


def standings(instance: Instance, batches: Sequence[Batch]) -> Places:
    """Where everybody is after some batches."""
    state = State(instance, LINEAR)
    for batch in batches:
        state.apply(batch)
    each = zip(state.generated, state.kv, state.ready, state.done, strict=True)
    return tuple(Standing(k, 0 if done else m, ready and not done) for k, m, ready, done in each)


def between(instance: Instance, schedule: Schedule, low: int, high: int, cost: CostModel) -> tuple[Replay, Boundary]:
    """Batches low to high - 1 with their ends; fills may be interrupted where they are now."""
    batches = schedule.batches
    ways = zip(*(standings(instance, batches[:t]) for t in range(low, high + 1)), strict=True)
    levels = tuple(frozenset((k, m) for k, m, ready in way if m and not ready) for way in ways)
    boundary = Boundary(standings(instance, batches[:low]), standings(instance, batches[:high]), levels, high - low)
    return replay_between(instance, Schedule(batches[low:high]), boundary, cost), boundary


def after(instance: Instance, cost: CostModel, now: Places, levels: tuple[frozenset[tuple[int, int]], ...]) -> dict[
    Places, int
]:  # fmt: skip
    """Every state one batch leads to, with its least ticks: all that requests can do, one by one."""
    choices = []
    for request, place, stops in zip(instance.requests, now, levels, strict=True):
        k, m, ready = place
        s = request.input_tokens + k
        if k == request.output_tokens:
            choices.append([(place, 0, 0)])
            continue
        sizes = {s} if ready else {s, *(level for at, level in stops if at == k and level > m)}
        found = [(place, m, 0)]
        found += [(Standing(k, 0, ready=False), 0, 0)] if m else []
        for size in sizes:
            done = k + 1 == request.output_tokens
            then = Standing(k + (size == s), 0 if size == s and done else size, ready=size == s and not done)
            found.append((then, size, size - m))
        choices.append(found)
    best: dict[Places, int] = {}
    for chosen in product(*choices):
        tokens = [c for _, _, c in chosen]
        blocks = sum(instance.blocks(kv) for _, kv, _ in chosen)
        entries = sum(c > 0 for c in tokens)
        most = instance.max_num_seqs or entries
        if not entries or sum(tokens) > instance.token_budget or blocks > instance.kv_blocks or entries > most:
            continue
        fills = [(c, place.kv) for c, place in zip(tokens, now, strict=True) if c and not place.ready]
        reads = [place.kv for c, place in zip(tokens, now, strict=True) if c and place.ready]
        features = Features(1, int(bool(fills)), int(bool(reads)), len(fills), len(reads), sum(tokens),
                            sum(c * c + 2 * c * m for c, m in fills), sum(m for _, m in fills), sum(reads))  # fmt: skip
        then = tuple(place for place, _, _ in chosen)
        best[then] = min(best.get(then, cost.batch_ticks(features)), cost.batch_ticks(features))
    return best


def optimum(instance: Instance, cost: CostModel, boundary: Boundary) -> int:
    """Least ticks of a part, by trying every batch from every state."""
    layer: dict[Places, int] = {boundary.start: 0}
    ways: dict[Places, dict[Places, int]] = {}
    value = layer.get(boundary.end)
    for _ in range(boundary.batches):
        coming: dict[Places, int] = {}
        for state, ticks in layer.items():
            if state not in ways:
                ways[state] = after(instance, cost, state, boundary.levels)
            for then, more in ways[state].items():
                if all(a.generated <= b.generated for a, b in zip(then, boundary.end, strict=True)):
                    coming[then] = min(coming.get(then, ticks + more), ticks + more)
        layer = coming
        if boundary.end in layer:
            value = min(layer[boundary.end], layer[boundary.end] if value is None else value)
    assert value is not None
    return value


@pytest.mark.parametrize("cost", [LINEAR, AFFINE], ids=lambda cost: cost.kind)
def test_the_best_of_everything(cost: CostModel) -> None:
    """Random parts of random schedules with evictions, holding, chunks, blocks and caps."""
    rng = np.random.default_rng(3)
    better = chunked = 0
    for _ in range(30):
        instance, schedule = random_schedule(rng, chunks=bool(rng.random() < 0.4))
        low = int(rng.integers(0, len(schedule)))
        present, boundary = between(instance, schedule, low, min(len(schedule), low + int(rng.integers(2, 6))), cost)
        found, proven = solve_between(present.instance, present, boundary, cost, Control(workers=1))
        assert proven
        assert found.makespan_ticks == optimum(present.instance, cost, boundary) <= present.makespan_ticks
        better += found.makespan_ticks < present.makespan_ticks
        chunked += any(boundary.levels)
    assert better >= 6 and chunked >= 6


@pytest.mark.parametrize(("name", "optimum_ms"), [("paper-7.2-i0001", 40.918), ("paper-7.2-i0032", 60.181)])
def test_a_whole_schedule_is_a_part(name: str, optimum_ms: float) -> None:
    """Optima of Kim et al., section 7.2 (found by two other programs), from the serial schedule."""
    instance = load_instance(name)
    batches = tuple(Batch(((i, 1 if k else r.input_tokens),)) for i, r in enumerate(instance.requests)
                    for k in range(r.output_tokens))  # fmt: skip
    present, boundary = between(instance, Schedule(batches), 0, len(batches), LINEAR)
    found, proven = solve_between(instance, present, boundary, LINEAR, Control(workers=1))
    assert proven and found.makespan_ms == pytest.approx(optimum_ms, abs=5e-4)
    assert found.makespan_ticks == solve(instance, solver="search").objective_ticks


def absent_and_ready() -> tuple[Replay, Boundary]:
    """One request decodes, another is filled."""
    instance = Instance((Request(5, 4), Request(3, 3)), 20)
    start = (Standing(1, 5, ready=True), Standing(0, 0, ready=False))
    end = (Standing(2, 6, ready=True), Standing(1, 3, ready=True))
    boundary = Boundary(start, end, (frozenset(), frozenset()), 2)
    schedule = Schedule((Batch(((0, 1),)), Batch(((1, 3),))))
    return replay_between(instance, schedule, boundary, LINEAR), boundary


def test_ends_are_kept() -> None:
    present, boundary = absent_and_ready()
    elsewhere = replace(boundary, end=boundary.start)
    with pytest.raises(RuleError, match="boundary"):
        replay_between(present.instance, present.schedule, elsewhere, LINEAR)
    found, proven = solve_between(present.instance, present, boundary, LINEAR, Control(workers=1))
    assert proven and [sorted(batch.process) for batch in found.schedule.batches] == [[(0, 1), (1, 3)]]


def test_without_time_the_part_stays() -> None:
    present, boundary = absent_and_ready()
    control = Control(workers=1)
    control.stop.set()
    found, proven = solve_between(present.instance, present, boundary, LINEAR, control)
    assert found.makespan_ticks <= present.makespan_ticks and (found is not present or not proven)


def test_only_the_flow_model_has_ends() -> None:
    present, boundary = absent_and_ready()
    with pytest.raises(InputError, match="only flow"):
        formulate(Problem(present.instance, LINEAR, formulation="bigm", boundary=boundary), Control())
