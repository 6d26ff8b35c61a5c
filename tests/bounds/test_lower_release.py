"""The release bound: by hand, and never above a schedule. Optima are compared in
test_lower_against_search."""

from dataclasses import replace

import numpy as np
import pytest

from bounds.lower import all_bounds
from bounds.lower.release import bound
from sim.clock import TICKS_PER_NS
from sim.cost import load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request, load_instance

COST = load_cost_model("linear/llama2-7b-a100")


def made(*requests: Request) -> Instance:
    return Instance(requests, kv_capacity_tokens=60, token_budget=64, cost_model=COST.name)


def test_a_request_that_arrives_when_all_is_done_is_served_alone() -> None:
    late = Request(input_tokens=20, output_tokens=9, arrival_ns=10**12)
    instance = made(Request(input_tokens=5, output_tokens=4), late)
    found = bound(instance, COST)
    assert found is not None and found.inputs["late_requests"] == 1 and found.inputs["release_s"] == 1000
    assert found.value_ticks == simulate(instance, "vllm").replay.makespan_ticks
    alone = all_bounds(made(replace(late, arrival_ns=0)), COST, only=["aggregate"])[0]
    assert found.value_ticks == 10**12 * TICKS_PER_NS + alone.value_ticks


def test_offline_it_does_not_apply() -> None:
    assert bound(load_instance("paper-7.2-i0032"), COST) is None


@pytest.mark.parametrize("seed", range(12))
def test_below_every_scheduler(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, (12, 2))
    arrivals = rng.integers(0, 3 * 10**8, 12)
    instance = made(*(Request(int(i), int(o), int(a)) for (i, o), a in zip(lengths, arrivals, strict=True)))
    bounds = all_bounds(instance, COST, only=["aggregate", "release"])
    least = min(simulate(instance, name).replay.makespan_ticks for name in ("vllm", "vllm_pf", "sarathi_pf"))
    assert bounds[0].value_ticks <= least
    assert "release" in {b.name for b in bounds}
