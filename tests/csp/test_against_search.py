"""Property: formulations and solvers agree with the independent search; bounds and schedulers bracket the optimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csp.result import Result
from csp.solve import solve
from csp.warm import heuristic_schedules
from sim.cost import CostModel, load_cost_model
from sim.instance import Instance
from sim.replay import PAPER_RULES, Rules
from tests.csp.strategies import small_instances, switches
from tests.oracle import Limits, optimum
from tests.sim.cost_models import max_affine

LINEAR = load_cost_model("linear/llama2-7b-a100")


def examples(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Fixed random examples without a time limit each."""
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def check(
    instance: Instance, *, rules: Rules = PAPER_RULES, limits: Limits | None = None, cost: CostModel = LINEAR,
    **options: Any,
) -> Result:  # fmt: skip
    """The solver's answer must be the search's, proven; where no schedule exists both must say so."""
    expected = optimum(instance, limits=limits or Limits(), cost=cost)
    result = solve(instance, rules=rules, cost=cost, time_limit_s=120, **options)
    assert result.exact, result.exact_reason
    if expected is None:
        assert result.status == "INFEASIBLE"
    else:
        assert (result.status, result.objective_ticks) == ("OPTIMAL", expected.value)
    return result


@given(small_instances(tight=False))
@examples(200)
def test_bounds_optimum_schedulers(instance: Instance) -> None:
    result = check(instance, solver="highs")
    assert all(bound.value_ticks <= result.objective_ticks for bound in result.bounds)
    for _, run in heuristic_schedules(instance, LINEAR, PAPER_RULES):
        assert result.objective_ticks <= run.makespan_ticks


@given(small_instances(tight=True, most_inputs=5, most_outputs=2))
@examples(40)
def test_partial_chunks(instance: Instance) -> None:
    assert "chunk" in check(instance, solver="cpsat").exact_reason


@pytest.mark.parametrize("tight", [True, False])
def test_bigm_is_flow_is_search(tight: bool) -> None:
    @given(small_instances(most_inputs=3, most_outputs=2, tight=tight))
    @examples(20)
    def agree(instance: Instance) -> None:
        check(instance, solver="cpsat", formulation="bigm")

    agree()


@pytest.mark.parametrize("solver", ["cpsat", "highs", "cbc"])
def test_solvers_agree(solver: str) -> None:
    @given(small_instances(most_inputs=4, most_outputs=3, tight=False))
    @examples(25)
    def agree(instance: Instance) -> None:
        check(instance, solver=solver)

    agree()


@given(small_instances(most_inputs=5, most_outputs=2), switches())
@examples(50)
def test_switches(instance: Instance, chosen: tuple[Rules, Limits]) -> None:
    check(instance, rules=chosen[0], limits=chosen[1])


@given(small_instances(most_inputs=3, most_outputs=2), switches())
@examples(12)
def test_switches_in_bigm(instance: Instance, chosen: tuple[Rules, Limits]) -> None:
    check(instance, rules=chosen[0], limits=chosen[1], formulation="bigm")


@given(small_instances(most_inputs=5, most_outputs=2))
@examples(30)
def test_max_affine_cost(instance: Instance) -> None:
    check(instance, cost=max_affine())


@given(small_instances(most_inputs=3, most_outputs=2))
@examples(8)
def test_max_affine_cost_in_bigm(instance: Instance) -> None:
    check(instance, cost=max_affine(), formulation="bigm")


@given(small_instances(most_inputs=4, most_outputs=3), switches(swap=True))
@examples(30)
def test_swapping(instance: Instance, chosen: tuple[Rules, Limits]) -> None:
    check(instance, rules=chosen[0], limits=chosen[1])


@given(small_instances(most_inputs=4, most_outputs=2, arrivals=True))
@examples(40)
def test_arrivals(instance: Instance) -> None:
    check(instance)


@given(small_instances(tight=True), st.integers(0, 3))
@examples(15)
def test_a_network_without_chunks_never_claims_more(instance: Instance, seed: int) -> None:
    """Too large for chunk nodes: its own dual bound must not be passed on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("csp.formulations.flow.MAX_CHUNK_VARIABLES", 0)
        result = solve(instance, solver="highs", seed=seed, cost=LINEAR, time_limit_s=20)
    best = optimum(instance, cost=LINEAR)
    assert best is not None and not result.exact
    assert result.lower_bound_ticks <= best.value <= result.objective_ticks
    assert result.lower_bound_source in {bound.name for bound in result.bounds}
