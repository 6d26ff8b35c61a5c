"""Regression: the reference table of the section 7.2 family (4 requests, O = 4, M = max(2I, I + 3), C = 4096).

Values in ms, found twice independently (a flow program and a shortest-path search over states).
"""

from __future__ import annotations

import pytest

from csp.solve import solve
from sim.instance import Instance, Request, load_instance
from sim.replay import Rules

OPTIMA = {
    1: (40.918, 53.903), 2: (46.521, 54.151), 4: (49.804, 54.646), 8: (51.283, 55.638), 16: (54.245, 57.624),
    32: (60.181, 61.605), 64: (69.599, 69.599), 128: (85.719, 85.719), 256: (118.486, 118.486),
    512: (186.131, 186.131), 1024: (329.862, 329.862),
}  # fmt: skip
MORE = {3: 49.434, 40: 63.155, 41: 63.528, 43: 64.272, 44: 64.598, 48: 65.596}


@pytest.mark.parametrize("solver", ["cpsat", "highs", "cbc"])
@pytest.mark.parametrize("tokens", OPTIMA)
def test_both_optima_are_proven(tokens: int, solver: str) -> None:
    instance = load_instance(f"paper-7.2-i{tokens:04d}")
    for preemption, expected in zip((True, False), OPTIMA[tokens], strict=True):
        result = solve(instance, solver=solver, time_limit_s=60, rules=Rules(preemption=preemption))
        assert result.status == "OPTIMAL" and result.exact
        assert result.lower_bound_ticks == result.objective_ticks
        assert result.replay is not None
        assert result.replay.makespan_ms == pytest.approx(expected, abs=0.0006)


@pytest.mark.parametrize("tokens", MORE)
def test_more_optima(tokens: int) -> None:
    instance = Instance((Request(tokens, 4),) * 4, max(2 * tokens, tokens + 3))
    result = solve(instance, time_limit_s=60)
    assert result.status == "OPTIMAL" and result.replay is not None
    assert result.replay.makespan_ms == pytest.approx(MORE[tokens], abs=0.0006)
    assert any(result.replay.preemptions) == (tokens <= 43)
