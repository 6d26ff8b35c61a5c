"""Batches that take far less than a ms: tolerances of floating-point solvers are absolute and must not swallow them."""

from __future__ import annotations

import pytest

from csp.solve import solve
from sim.cost import CostModel, OperatorGroup, load_cost_model
from sim.instance import Instance, Request
from tests.oracle import optimum
from tests.sim.cost_models import max_affine

INSTANCES = [Instance((Request(3, 3), Request(2, 2)), 7, 3), Instance((Request(4, 2), Request(3, 2)), 6, 4096)]


def scaled_down(cost: CostModel, divisor: int) -> CostModel:
    """All coefficients divided, rounded up to whole ticks."""
    groups = tuple(
        OperatorGroup(g.name, tuple(tuple(-(-a // divisor) for a in piece) for piece in g.pieces)) for g in cost.groups
    )
    return CostModel("small", cost.kind, 1, groups)


@pytest.mark.parametrize("solver", ["cpsat", "highs", "cbc"])
@pytest.mark.parametrize("divisor", [10**4, 10**6, 10**8])
@pytest.mark.parametrize("base", [max_affine(), load_cost_model("linear/llama2-7b-a100")], ids=lambda cost: cost.kind)
def test_optima_of_small_times(base: CostModel, divisor: int, solver: str) -> None:
    """With times handed over in ms, HiGHS and CBC called schedules optimal that were 7 % above the optimum."""
    cost = scaled_down(base, divisor)
    for instance in INSTANCES:
        best = optimum(instance, cost=cost)
        result = solve(instance, solver=solver, cost=cost, time_limit_s=60, workers=1)
        assert best is not None
        assert (result.status, result.objective_ticks) == ("OPTIMAL", best.value)
