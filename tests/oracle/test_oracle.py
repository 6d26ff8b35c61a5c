"""The independent search itself, against values found by other programs."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from sim.clock import ms_from_ticks, ticks_from_ms
from sim.cost import CostModel, Features, OperatorGroup, load_cost_model
from sim.instance import Instance, Request, load_instance
from sim.replay import replay
from tests.oracle import (
    Limits,
    Makespan,
    MaxSlowdown,
    MaxTtft,
    MeanTtft,
    Objective,
    Optimum,
    Swap,
    TooLargeError,
    WeightedCompletion,
    optimum,
)
from tests.oracle.cost import batch_ticks
from tests.reference import reference_values

REFERENCE = reference_values()["paper_7_2"]
FULL = Limits(chunking=False)
PREEMPTION_FREE = Limits(chunking=False, preemption=False)


def paper_7_2(inputs: int) -> Instance:
    return Instance((Request(inputs, 4),) * 4, max(2 * inputs, inputs + 3))


def value(result: Optimum | None) -> int | Fraction | None:
    return None if result is None else result.value


def ms(instance: Instance, limits: Limits | None = None, **kwargs: object) -> float:
    best = optimum(instance, limits=limits, **kwargs)  # type: ignore[arg-type]
    assert best is not None
    return ms_from_ticks(best.value)


@pytest.mark.parametrize("row", REFERENCE["table"], ids=lambda row: f"I={row['input_tokens']}")
def test_reference_table(row: dict[str, float]) -> None:
    instance = load_instance(f"paper-7.2-i{row['input_tokens']:04d}")
    best, free = optimum(instance, limits=FULL), optimum(instance, limits=PREEMPTION_FREE)
    assert best is not None and free is not None
    assert ms_from_ticks(best.value) == pytest.approx(row["optimum_ms"], abs=5e-4)
    assert ms_from_ticks(free.value) == pytest.approx(row["preemption_free_ms"], abs=5e-4)
    assert (len(best.schedule), len(free.schedule)) == (row["batches"], row["preemption_free_batches"])
    assert 1 - best.value / free.value == pytest.approx(row["gain"], abs=5e-4)


@pytest.mark.parametrize(("inputs", "value"), REFERENCE["more_optima_ms"].items())
def test_more_reference_values(inputs: int, value: float) -> None:
    assert ms(paper_7_2(inputs), FULL) == pytest.approx(value, abs=5e-4)


def test_the_optimum_preempts_up_to_43() -> None:
    for inputs, preempts in ((43, True), (44, False)):
        best = optimum(paper_7_2(inputs), limits=FULL)
        assert best is not None
        assert any(batch.preempt for batch in best.schedule.batches) is preempts


@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_partial_chunks_change_nothing_when_memory_binds_first(inputs: int) -> None:
    assert ms(paper_7_2(inputs)) == ms(paper_7_2(inputs), FULL)


def test_holding_is_strictly_better_at_times() -> None:
    case = reference_values()["optima"][0]
    instance = Instance((Request(3, 4),) * 3, case["kv_capacity_tokens"])
    assert ms(instance) == pytest.approx(case["optimum_ms"], abs=5e-4)
    forced = Limits(holding="forced")
    assert ms(instance, forced) == pytest.approx(case["without_needless_holds_ms"], abs=5e-4)
    assert ms(instance, Limits(holding="never")) > ms(instance, forced)


def max_affine() -> CostModel:
    """Flat up to 125 tokens, then a slope: a batch of few tokens costs as much as one of 125."""
    flat = (ticks_from_ms("0.25"), 0, 0, 0, 0, 0, 0, 0, 0)
    slope = (0, 0, 0, 0, 0, ticks_from_ms("0.002"), 0, 0, 0)
    return CostModel("max-affine/test", "max-affine", 1, (OperatorGroup("all", (flat, slope)),))


def test_a_partial_chunk_helps_under_max_affine_cost() -> None:
    instance = Instance((Request(20, 2), Request(200, 1)), 221, 4096)
    whole, split = ms(instance, FULL, cost=max_affine()), ms(instance, cost=max_affine())
    assert (whole, split) == pytest.approx((0.652, 0.5), abs=1e-9)


def test_token_budget_below_memory_makes_partial_chunks_pay() -> None:
    instance = Instance((Request(3, 1), Request(1, 2)), 6, 3)
    assert 1 - ms(instance) / ms(instance, FULL) == pytest.approx(0.1535, abs=1e-4)


def test_own_batch_times_equal_the_cost_models() -> None:
    rng = random.Random(5)
    for cost in (load_cost_model("linear/llama2-7b-a100"), load_cost_model("linear/llama3-70b-4xa100"), max_affine()):
        for _ in range(50):
            n_p, n_d, tokens, square, reads, d_reads = (rng.randint(0, 200) for _ in range(6))
            features = Features(1, int(n_p > 0), int(n_d > 0), n_p, n_d, tokens, square, reads, d_reads)
            assert batch_ticks(cost, n_p, n_d, tokens, square, reads, d_reads) == cost.batch_ticks(features)


def random_instance(rng: random.Random, *, arrivals: bool = False) -> Instance:
    requests = tuple(
        Request(rng.randint(1, 5), rng.randint(1, 3), rng.randint(0, 5) * 10**6 if arrivals else 0)
        for _ in range(rng.randint(1, 3))
    )
    peaks = [r.peak_kv_tokens for r in requests]
    capacity = rng.randint(max(peaks), sum(peaks))
    block = rng.choice([1, 1, 2, 3])
    budget = rng.choice([2, capacity, 4096])
    return Instance(
        requests, capacity + block * 2, budget, max_num_seqs=rng.choice([None, None, 1, 2]), block_size=block
    )


def objectives(instance: Instance) -> list[Objective]:
    n = len(instance.requests)
    return [
        Makespan(), WeightedCompletion(mean=True), WeightedCompletion(tuple(range(1, n + 1))), MeanTtft(), MaxTtft(),
        MaxTtft(frozenset({0})), MaxSlowdown(tuple(ticks_from_ms(3 + i) for i in range(n))),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_guided_search_equals_dijkstra(seed: int) -> None:
    rng = random.Random(seed)
    instance = random_instance(rng, arrivals=seed % 2 == 0)
    swap = Swap(ticks_from_ms("0.01"), ticks_from_ms("0.001"), overlap=seed % 3 == 0)
    limits = Limits(swap=swap if seed % 4 == 1 else None, hybrid=seed % 5 > 0, chunking=seed % 3 < 2)
    cost = max_affine() if seed % 2 else None
    for objective in objectives(instance):
        results = [optimum(instance, objective, limits=limits, cost=cost, guided=g) for g in (True, False)]
        assert len({value(result) for result in results}) == 1


@pytest.mark.parametrize("seed", range(12))
def test_values_are_those_of_the_replayed_schedule(seed: int) -> None:
    """The search's value of every objective, recomputed from the replay of the schedule it returns."""
    instance = random_instance(random.Random(100 + seed), arrivals=seed % 2 == 0)
    n = len(instance.requests)
    for objective in objectives(instance):
        best = optimum(instance, objective)
        assert best is not None
        run = replay(instance, best.schedule)
        ttft = [t for t in run.ttft_ticks() if t is not None]
        e2e = [t for t in run.e2e_ticks() if t is not None]
        match objective:
            case Makespan():
                expected: int | Fraction = run.makespan_ticks
            case WeightedCompletion(weights, mean):
                expected = Fraction(sum(w * t for w, t in zip(weights or (1,) * n, e2e, strict=True)), n if mean else 1)
            case MeanTtft():
                expected = Fraction(sum(ttft), n)
            case MaxTtft(members):
                expected = max(t for i, t in enumerate(ttft) if members is None or i in members)
            case MaxSlowdown(alone):
                expected = max(Fraction(t, a) for t, a in zip(e2e, alone, strict=True))
        assert best.value == expected


def test_each_objective_is_least_for_its_own_optimum() -> None:
    """No objective's optimum is beaten by the schedule that is optimal for another one."""
    instance = Instance((Request(2, 3), Request(5, 1), Request(3, 2)), 8)
    n = len(instance.requests)
    mean_e2e, mean_ttft = optimum(instance, WeightedCompletion(mean=True)), optimum(instance, MeanTtft())
    makespan = optimum(instance)
    assert mean_e2e is not None and mean_ttft is not None and makespan is not None
    for other in (mean_e2e, mean_ttft, makespan):
        run = replay(instance, other.schedule)
        assert run.makespan_ticks >= makespan.value
        assert Fraction(sum(t or 0 for t in run.e2e_ticks()), n) >= mean_e2e.value
        assert Fraction(sum(t or 0 for t in run.ttft_ticks()), n) >= mean_ttft.value


def test_arrivals_delay_the_start() -> None:
    instance = Instance((Request(3, 1, 10 * 10**6), Request(3, 1)), 10)
    best, alone = optimum(instance), optimum(Instance((Request(3, 1),), 10))
    assert best is not None and alone is not None
    assert best.value == ticks_from_ms(10) + alone.value


def test_infeasible_and_too_large() -> None:
    assert optimum(Instance((Request(5, 3),), 6)) is None
    assert optimum(Instance((Request(5, 1),), 6, 4), limits=FULL) is None
    with pytest.raises(TooLargeError):
        optimum(paper_7_2(4), most_states=5)


def test_swap_free_of_charge_never_loses() -> None:
    instance = Instance((Request(6, 3), Request(5, 3)), 11)
    swapped = ms(instance, Limits(swap=Swap(0, 0)))
    assert swapped <= ms(instance)
    assert ms(instance, Limits(swap=Swap(ticks_from_ms(1000), 0))) == ms(instance)
