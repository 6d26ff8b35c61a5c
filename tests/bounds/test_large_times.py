"""Batches that take years: nothing overflows unseen; what does not fit 64 bits says so."""

from __future__ import annotations

import pytest

from bounds.lower import all_bounds
from csp.solve import solve
from sim.cost import CostModel, OperatorGroup, load_cost_model
from sim.errors import InputError
from sim.instance import Instance, Request
from tests.oracle import optimum

INSTANCE = Instance((Request(4, 2),) * 3, 9, 4096)


def scaled_up(name: str, factor: int) -> CostModel:
    base = load_cost_model(name)
    groups = (OperatorGroup(g.name, tuple(tuple(a * factor for a in piece) for piece in g.pieces)) for g in base.groups)
    return CostModel("large", base.kind, 1, tuple(groups))


@pytest.mark.parametrize("name", ["linear/llama2-7b-a100", "max-affine/llama2-7b-a100"])
@pytest.mark.parametrize("factor", [10**3, 10**6, 10**9])
def test_bounds_and_solvers(name: str, factor: int) -> None:
    cost = scaled_up(name, factor)
    best = optimum(INSTANCE, cost=cost)
    assert best is not None
    assert 0 < all_bounds(INSTANCE, cost)[0].value_ticks <= best.value
    for solver in ("cpsat", "highs", "search"):
        try:
            result = solve(INSTANCE, cost=cost, solver=solver, time_limit_s=10, workers=1)
        except InputError as error:
            assert factor >= 10**6 and "64-bit" in error.rule
            continue
        assert result.lower_bound_ticks is not None and result.objective_ticks is not None
        assert result.lower_bound_ticks <= best.value <= result.objective_ticks
        assert result.status != "OPTIMAL" or result.objective_ticks == best.value
