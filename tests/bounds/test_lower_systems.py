"""Bounds for shared prefixes and disaggregated pools stay below what schedulers reach."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds.lower import QUICK, all_bounds
from bounds.lower._systems import decode_bound_ticks, disaggregated_bound_ticks, without_prefixes
from sim.cost import load_cost_model
from sim.disaggregation import Pools, simulate_disaggregated
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.replay import Rules, SwapLink

COSTS = ("linear/llama2-7b-a100", "max-affine/llama2-7b-a100")
SHARING = Rules(allow_empty=True, prefix_sharing=True)
requests = st.lists(st.tuples(st.integers(2, 12), st.integers(1, 6), st.integers(0, 2)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(requests, st.integers(20, 60), st.sampled_from([1, 4]), st.sampled_from(COSTS))
def test_shared_prefixes(lengths: list[tuple[int, int, int]], capacity: int, block: int, cost: str) -> None:
    shortest = min(i for i, _, _ in lengths)
    made = tuple(Request(i, o, prefix=f"p{g}", prefix_tokens=shortest - 1) for i, o, g in lengths)
    instance = Instance(made, capacity, block_size=block, cost_model=cost)
    run = simulate(instance, "sglang_srf", rules=SHARING)
    assert not run.stalled
    if instance.infeasible():
        return
    for bound in all_bounds(without_prefixes(instance), load_cost_model(cost), only=QUICK):
        assert bound.value_ticks <= run.replay.makespan_ticks, bound


@settings(max_examples=60, deadline=None, derandomize=True)
@given(requests, st.integers(18, 60), st.integers(1, 3), st.integers(1, 3), st.integers(0, 40), st.sampled_from(COSTS))
def test_disaggregated(
    lengths: list[tuple[int, int, int]], capacity: int, prefill: int, decode: int, gap_ms: int, cost: str
) -> None:
    made = tuple(Request(i, o, k * wait * gap_ms * 10**6) for k, (i, o, wait) in enumerate(lengths))
    instance = Instance(made, capacity, cost_model=cost)
    offload = SwapLink(0, 0) if gap_ms % 2 else None
    pools = Pools(prefill, decode, SwapLink(0, 0), offload)
    scheduler = "sarathi_cs_srf_swap" if offload else "sarathi_cs"
    both = simulate_disaggregated(instance, pools, decode_scheduler=scheduler)
    assert all(t is not None for t in both.completed_ticks())
    assert disaggregated_bound_ticks(instance, load_cost_model(cost), pools) <= both.makespan_ticks


@pytest.mark.parametrize("cost", COSTS)
def test_the_decode_bound_is_tight_for_one_request(cost: str) -> None:
    instance = Instance((Request(5, 4),), 100, cost_model=cost)
    both = simulate_disaggregated(instance, Pools(1, 1, SwapLink(0, 0)))
    busy = sum(r.end_ticks - r.start_ticks for r in both.decode[0].replay.records)
    bound = decode_bound_ticks(instance, load_cost_model(cost))
    assert bound <= busy
    if cost.startswith("linear"):
        assert bound == busy


def test_a_late_long_request_is_seen_by_the_bound_on_pools() -> None:
    made = (*(Request(20, 5) for _ in range(20)), Request(100, 200, 5 * 10**9))
    instance = Instance(made, 5000)
    pools = Pools(2, 2, SwapLink(0, 0))
    reached = simulate_disaggregated(instance, pools).makespan_ticks
    assert 0.999 * reached < disaggregated_bound_ticks(instance, load_cost_model(instance.cost_model), pools) <= reached


def test_a_broken_relaxation_would_be_noticed() -> None:
    made = (Request(12, 2, prefix="p", prefix_tokens=11),) * 6
    instance = Instance(made, 40)
    run = simulate(instance, "sglang", rules=SHARING)
    plain = instance.replace(requests=tuple(replace(r, prefix=None, prefix_tokens=0) for r in made))
    unshared = all_bounds(plain, load_cost_model(instance.cost_model), only=["tokens"])[0]
    assert unshared.value_ticks > run.replay.makespan_ticks
