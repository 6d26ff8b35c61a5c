"""Every objective, limit and question against the independent search (or against every schedule there is)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csp.objectives import load_objective
from csp.objectives.max_slowdown import alone_ticks
from csp.solve import solve
from sim.cost import load_cost_model
from sim.errors import InputError
from sim.instance import Instance, Request, load_instance
from sim.registry import names
from sim.replay import PAPER_RULES, Replay, RuleError, State, finish, replay
from sim.schedule import Batch, Schedule
from tests.csp.strategies import small_instances, switches
from tests.csp.test_against_search import examples
from tests.oracle import Limits, Makespan, MaxSlowdown, MaxTtft, MeanTtft, Objective, WeightedCompletion, optimum
from tests.sim.cost_models import max_affine

LINEAR = load_cost_model("linear/llama2-7b-a100")


def weights(instance: Instance) -> tuple[int, ...]:
    largest = max(r.priority for r in instance.requests)
    return tuple(1 + largest - r.priority for r in instance.requests)


def urgent(instance: Instance) -> frozenset[int]:
    least = min(r.priority for r in instance.requests)
    return frozenset(i for i, r in enumerate(instance.requests) if r.priority == least)


SEARCHED: dict[str, Callable[[Instance], Objective]] = {
    "makespan": lambda instance: Makespan(),
    "mean_completion": lambda instance: WeightedCompletion(None, True),
    "weighted_completion": lambda instance: WeightedCompletion(
        tuple(Fraction(w, sum(weights(instance))) for w in weights(instance))
    ),
    "mean_ttft": lambda instance: MeanTtft(),
    "max_ttft": lambda instance: MaxTtft(urgent(instance)),
    "max_ttft:all": lambda instance: MaxTtft(),
    "max_slowdown": lambda instance: MaxSlowdown(tuple(alone_ticks(instance, LINEAR))),
}


@st.composite
def with_priorities(draw: st.DrawFn, **options: object) -> Instance:
    instance = draw(small_instances(most_inputs=4, most_outputs=2, **options))
    requests = tuple(replace(r, priority=draw(st.integers(0, 1))) for r in instance.requests)
    return instance.replace(requests=requests)


@pytest.mark.parametrize("name", SEARCHED)
def test_objective_is_the_search(name: str) -> None:
    @given(with_priorities(tight=False))
    @examples(12)
    def agree(instance: Instance) -> None:
        expected = optimum(instance, SEARCHED[name](instance), cost=LINEAR)
        result = solve(instance, objective=name, time_limit_s=120)
        assert expected is not None
        assert (result.status, result.objective_ticks) == ("OPTIMAL", expected.value)

    agree()


@pytest.mark.parametrize("name", SEARCHED)
def test_objective_under_switches(name: str) -> None:
    @given(with_priorities(most_requests=2), switches())
    @examples(6)
    def agree(instance: Instance, chosen: tuple) -> None:
        expected = optimum(instance, SEARCHED[name](instance), limits=chosen[1], cost=LINEAR)
        result = solve(instance, objective=name, rules=chosen[0], time_limit_s=120)
        if expected is None:
            assert result.status == "INFEASIBLE"
        else:
            assert (result.status, result.objective_ticks) == ("OPTIMAL", expected.value)

    agree()


@pytest.mark.parametrize("name", ["mean_completion", "max_ttft"])
def test_objective_in_bigm_and_by_highs(name: str) -> None:
    @given(with_priorities(most_requests=2, tight=False))
    @examples(4)
    def agree(instance: Instance) -> None:
        flow = solve(instance, objective=name, time_limit_s=120)
        for options in ({"formulation": "bigm"}, {"solver": "highs"}):
            other = solve(instance, objective=name, time_limit_s=120, **options)
            assert (other.status, other.objective_ticks) == ("OPTIMAL", flow.objective_ticks)

    agree()


@given(with_priorities(most_requests=2, arrivals=True, tight=False))
@examples(6)
def test_mean_latency_with_arrivals(instance: Instance) -> None:
    expected = optimum(instance, WeightedCompletion(None, True), cost=LINEAR)
    result = solve(instance, objective="mean_completion", time_limit_s=120)
    assert expected is not None
    assert (result.status, result.objective_ticks) == ("OPTIMAL", expected.value)


@given(with_priorities(tight=False), st.integers(0, 2))
@examples(12)
def test_batch_time_limit(instance: Instance, choice: int) -> None:
    """From the longest batch of the fastest schedule downwards."""
    free = solve(instance)
    assert free.replay is not None
    longest = load_objective("max_batch_time").value(free.replay)
    limit = int(longest) - (0, 1, int(longest) // 10)[choice]
    expected = optimum(instance, limits=Limits(batch_limit_ticks=limit), cost=LINEAR)
    result = solve(instance, limits=[("max_batch_time", limit)], time_limit_s=60)
    if expected is None:
        assert result.status in ("INFEASIBLE", "UNKNOWN") and result.replay is None
    else:
        assert result.objective_ticks is None or result.objective_ticks >= expected.value
        assert result.status in ("OPTIMAL", "UNKNOWN")
        if result.status == "OPTIMAL":
            assert result.objective_ticks == expected.value


def every_schedule(instance: Instance, most_batches: int) -> Iterator[Replay]:
    """All complete schedules of at most so many batches, by the rules module alone."""
    n = len(instance.requests)

    def extend(state: State, batches: list[Batch], records: list) -> Iterator[Replay]:
        if not state.unfinished:
            yield finish(copy.deepcopy(state), Schedule(tuple(batches)), records)
            return
        if len(batches) == most_batches:
            return
        choices = []
        for i in range(n):
            options: list[object] = ["hold"]
            if not state.done[i]:
                options += range(1, state.remaining_fill(i) + 1)
                options += ["preempt"] if state.kv[i] else []
            choices.append(options)
        for combination in product(*choices):
            process = tuple((i, c) for i, c in enumerate(combination) if isinstance(c, int))
            batch = Batch(process, tuple(i for i, c in enumerate(combination) if c == "preempt"))
            following = copy.deepcopy(state)
            try:
                record = following.apply(batch)
            except RuleError:
                continue
            yield from extend(following, [*batches, batch], [*records, record])

    yield from extend(State(instance, load_cost_model(instance.cost_model)), [], [])


TINY = [
    Instance((Request(1, 3), Request(2, 2)), 4),
    Instance((Request(2, 3), Request(1, 2)), 5, max_num_seqs=1),
    Instance((Request(1, 2), Request(1, 3)), 3, 2),
]


@pytest.mark.parametrize("instance", TINY)
def test_tpot_against_every_schedule(instance: Instance) -> None:
    """Fastest under each TPOT that occurs, and least TPOT itself."""
    tpot, makespan = load_objective("max_tpot"), load_objective("makespan")
    pairs = {(tpot.value(run), makespan.value(run)) for run in every_schedule(instance, 6)}
    for limit in sorted({value for value, _ in pairs})[:3]:
        expected = min(fast for value, fast in pairs if value <= limit)
        result = solve(instance, limits=[("max_tpot", limit)], time_limit_s=120)
        assert result.replay is not None and tpot.value(result.replay) <= limit
        assert (result.status, result.objective_ticks) == ("OPTIMAL", expected)
    least = solve(instance, objective="max_tpot", time_limit_s=120)
    assert least.objective_ticks == min(value for value, _ in pairs)
    assert least.status in ("OPTIMAL", "FEASIBLE")


@pytest.mark.parametrize("instance", TINY)
def test_one_objective_after_the_other(instance: Instance) -> None:
    first, second = load_objective("mean_ttft"), load_objective("makespan")
    best = min((first.value(run), second.value(run)) for run in every_schedule(instance, 6))
    result = solve(instance, objective="mean_ttft,makespan", time_limit_s=120)
    assert result.status == "OPTIMAL" and result.objective == "mean_ttft,makespan"
    assert tuple(stage.objective_ticks for stage in result.stages) == best
    assert result.replay is not None
    assert (first.value(result.replay), second.value(result.replay)) == best


@given(small_instances(most_inputs=4, most_outputs=3, tight=False), st.sampled_from(["cpsat", "highs"]))
@examples(15)
def test_question(instance: Instance, solver: str) -> None:
    """Yes at the optimum with a schedule, no a millisecond below it, with proof."""
    best = optimum(instance, cost=LINEAR)
    assert best is not None
    yes = solve(instance, at_most=best.value, time_limit_s=60)
    assert yes.status == "FEASIBLE" and yes.objective_ticks == best.value
    no = solve(instance, at_most=best.value - 10**8, solver=solver, time_limit_s=60)
    assert (no.status, no.replay, no.objective_ticks) == ("INFEASIBLE", None, None)


def test_question_without_time_is_unknown() -> None:
    result = solve(load_instance("het16-00"), at_most=15 * 10**12, time_limit_s=0.5)
    assert result.status == "UNKNOWN" and result.replay is None and result.lower_bound_ticks


@pytest.mark.parametrize("name", names("csp.objectives"))
def test_every_objective_has_a_value_and_a_bound(name: str) -> None:
    goal = load_objective(name)
    instance = Instance((Request(3, 2), Request(2, 3, priority=1)), 5)
    for cost in (LINEAR, max_affine()):
        result = solve(instance, objective=name, cost=cost, time_limit_s=30)
        assert result.replay is not None
        assert goal.value(result.replay, cost) == result.objective_ticks
        assert replay(instance, result.replay.schedule, cost=cost) == result.replay
        assert goal.lower_bound(instance, cost, PAPER_RULES) <= (result.objective_ticks)
        data = result.to_dict()
        assert data["unit"] == goal.unit and data["objective_value"] is not None


def test_throughput_is_the_makespan_per_token() -> None:
    instance = TINY[0]
    fast, rate = solve(instance), solve(instance, objective="throughput")
    assert rate.objective_ticks * 5 == fast.objective_ticks and rate.status == "OPTIMAL"


@pytest.mark.parametrize("name", ["makespan:1", "max_ttft:x", "max_ttft:7", "nope", "mean_ttft:"])
def test_bad_objectives(name: str) -> None:
    with pytest.raises(InputError):
        solve(TINY[0], objective=name)
