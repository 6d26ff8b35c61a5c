"""Solvers under the shipped cost models with several pieces: the optimum is the independent search's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csp.formulations.flow import whole_fills_suffice
from csp.solve import solve
from csp.solvers import Problem
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request
from sim.replay import Rules, replay
from sim.schedule import Batch, Schedule
from tests.csp.strategies import small_instances
from tests.oracle import Limits, optimum

COSTS = ("max-affine/llama2-7b-a100", "max-affine/llama3-70b-4xh100", "linear-fit/llama3-8b-h100",
         "roofline/llama3-8b-h200")  # fmt: skip
CASES = {
    "mixed": Instance((Request(3, 3), Request(2, 4), Request(6, 2)), 12),
    "alike": Instance((Request(5, 3), Request(5, 3), Request(5, 3)), 11),
    "long": Instance((Request(150, 2), Request(90, 3), Request(40, 3)), 260),
    "one slot": Instance((Request(4, 2), Request(3, 3), Request(4, 2)), 13, max_num_seqs=2),
}


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("case", CASES)
def test_optimum_is_the_searches(name: str, case: str) -> None:
    instance, cost = CASES[case], load_cost_model(name)
    expected = optimum(instance, limits=Limits(chunking=False), cost=cost)
    found = solve(instance, cost=cost, rules=Rules(chunking=False), time_limit_s=60, workers=1)
    assert expected is not None and found.exact
    assert (found.status, found.objective_ticks) == ("OPTIMAL", expected.value)


@pytest.mark.parametrize(("name", "saved"), [("max-affine/llama2-7b-a100", 0.0356), ("roofline/llama2-7b-a100", 0.101),
                                             ("max-affine/llama3-8b-h100", None)])  # fmt: skip
def test_partial_chunks_can_pay_under_several_pieces(name: str, saved: float | None) -> None:
    # M and C leave room for everything; a first chunk of the long prompt fills up the batch of the short one
    instance, cost = Instance((Request(20, 2), Request(200, 1)), 1000), load_cost_model(name)
    whole = solve(instance, cost=cost, rules=Rules(chunking=False), time_limit_s=60, workers=1)
    cuts = [replay(instance, Schedule((Batch(process=((0, 20), (1, c))), Batch(process=((0, 1), (1, 200 - c))))),
                   cost=cost).makespan_ticks for c in range(1, 200)]  # fmt: skip
    assert whole.status == "OPTIMAL" and whole.objective_ticks is not None
    if saved is None:
        assert min(cuts) > whole.objective_ticks
    else:
        assert 1 - min(cuts) / whole.objective_ticks == pytest.approx(saved, abs=1e-4)
    free = solve(instance, cost=cost, time_limit_s=60, workers=1)
    # Either every chunk is modelled and the optimum found, or the answer says that it is not exact.
    assert not free.exact or free.objective_ticks == min(*cuts, whole.objective_ticks)


@given(
    small_instances(tight=False, most_inputs=5, most_outputs=3), st.sampled_from(["llama2-7b-a100", "llama3-8b-h100"])
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_whole_fills_suffice_where_a_decode_entry_costs_more_than_a_prefill_entry(instance: Instance, llm: str) -> None:
    cost = load_cost_model(f"linear-fit/{llm}")
    assert cost.coefficient("n_decode") > cost.coefficient("n_prefill")
    assert whole_fills_suffice(Problem(instance, cost))[0]
    whole, free = (optimum(instance, limits=Limits(chunking=chunks), cost=cost) for chunks in (False, True))
    assert (whole and whole.value) == (free and free.value)
