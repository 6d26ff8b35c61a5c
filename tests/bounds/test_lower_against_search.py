"""Property: lower bounds <= optimum of the independent search <= every scheduler, under odd limits and cost models.

The optimum also counts schedules with batches that process nothing, which real engines make and which can be shorter:
bounds hold for those too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bounds.lower import all_bounds, bound_names, iter_bounds
from sim.cost import CostModel, Features, OperatorGroup, load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.registry import names
from sim.replay import ENGINE_RULES, replay
from sim.schedulers import official_name
from tests.csp.strategies import small_instances
from tests.oracle import Limits, MeanTtft, WeightedCompletion, optimum

PUBLISHED = [load_cost_model(f"linear/{name}") for name in ("llama2-7b-a100", "llama3-70b-4xa100")]
SCHEDULERS = [official_name("sim.schedulers", name) for name in names("sim.schedulers")]
VARIANTS = ("vllm_pf", "vllm_srf", "sarathi_pf", "sarathi_srf")


def examples(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@st.composite
def odd_costs(draw: st.DrawFn) -> CostModel:
    """Any non-negative coefficients, many of them zero, one to three pieces a group."""
    scale = draw(st.sampled_from([1, 10**3, 10**6]))
    coefficient = st.sampled_from([0, 0, 1, 2, 7, 40, 1000]).map(lambda x: x * scale)
    piece = st.tuples(*[coefficient] * len(Features._fields))
    groups = draw(st.lists(st.lists(piece, min_size=1, max_size=3), min_size=1, max_size=3))
    made = tuple(OperatorGroup(f"g{number}", tuple(pieces)) for number, pieces in enumerate(groups))
    return CostModel("odd", "linear" if all(len(g) == 1 for g in groups) else "max-affine", 1, made)


def bracket(instance: Instance, cost: CostModel) -> None:
    """Bounds, optimum and schedulers in order."""
    best = optimum(instance, cost=cost)
    free = optimum(instance, cost=cost, limits=Limits(allow_empty=True))
    assert best is not None and free is not None
    assert replay(instance, best.schedule, cost=cost).makespan_ticks == best.value
    assert replay(instance, free.schedule, cost=cost, rules=ENGINE_RULES).makespan_ticks == free.value <= best.value
    for bound in iter_bounds(instance, cost, only=[name for name in bound_names() if name != "circulation"]):
        assert bound.value_ticks <= free.value, bound
    for name in (*SCHEDULERS, *VARIANTS):
        run = simulate(instance, name, cost=cost)
        if not run.stalled:
            empty = any(not record.entries for record in run.replay.records)
            assert (free if empty else best).value <= run.replay.makespan_ticks, name


@given(small_instances(), st.sampled_from(PUBLISHED))
@examples(120)
def test_published_costs(instance: Instance, cost: CostModel) -> None:
    bracket(instance, cost)


@given(small_instances(most_inputs=5), odd_costs())
@examples(80)
def test_odd_costs(instance: Instance, cost: CostModel) -> None:
    bracket(instance, cost)


@given(small_instances(most_inputs=4, arrivals=True), st.sampled_from(PUBLISHED))
@examples(40)
def test_arrivals(instance: Instance, cost: CostModel) -> None:
    bracket(instance, cost)


@given(small_instances(most_inputs=4, arrivals=True), st.one_of(st.sampled_from(PUBLISHED), odd_costs()))
@examples(80)
def test_bounds_of_other_objectives(instance: Instance, cost: CostModel) -> None:
    for objective, searched in (("mean_completion", WeightedCompletion(mean=True)), ("mean_ttft", MeanTtft())):
        best = optimum(instance, searched, cost=cost, limits=Limits(allow_empty=True))
        assert best is not None
        bounds = all_bounds(instance, cost, objective=objective)
        assert bounds
        for bound in bounds:
            assert bound.value_ticks <= best.value, bound


@pytest.mark.parametrize("cost", PUBLISHED, ids=lambda cost: cost.name)
def test_a_lone_request_leaves_no_slack(cost: CostModel) -> None:
    """So a bound that is a tick too high would be noticed above."""
    for inputs, outputs in ((1, 1), (1, 3), (5, 1), (5, 3)):
        instance = Instance((Request(inputs, outputs),), 10)
        best = optimum(instance, cost=cost)
        assert best is not None
        assert all_bounds(instance, cost)[0].value_ticks == best.value
