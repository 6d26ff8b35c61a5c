"""The event engine makes the step engine's schedules, to the batch and to the tick."""

import pytest
from hypothesis import given, settings

from sim.cost.model import CostModel, load_cost_model
from sim.engine import Engine, Simulation, simulate
from sim.errors import InputError
from sim.events import compact_runs
from sim.instance import Instance, Request
from sim.registry import names
from sim.replay import RuleError
from sim.schedulers import Options, make_scheduler
from sim.schedulers.vllm import Vllm
from tests.sim.cost_models import max_affine
from tests.sim.strategies import instances

NAMES = """
vllm vllm_pf vllm_srf vllm_longest vllm_oldest vllm_lowest_priority vllm_most_remaining vllm_least_computed
vllm_watermark:watermark=0.1 vllm_hist vllm_srf_hist vllm_shortest_output vllm_longest_remaining_srf vllm_hy
vllm_hy_srf vllm_hy_pf vllm_hy_longest vllm_hy_shortest_input sarathi sarathi_pf sarathi_srf sarathi_longest
sarathi_oldest sarathi_lowest_priority sarathi_most_remaining sarathi_least_computed sarathi_cs_srf_hist
sarathi_priority sarathi_watermark:watermark=0.2 sarathi_nocp sarathi_nocp_srf sarathi_nocp_shortest_remaining
vllm-v1-0.33 vllm-v1-0.11 vllm-v1-0.33:watermark=0.1 vllm-v1-0.33:enable_chunked_prefill=off
vllm-v1-0.33_shortest_output vllm-v0 vllm-v0_pf vllm-v0_srf vllm-v0:watermark=0.1
"""
STEADY = """
vllm_lookahead sarathi_lookahead_srf vllm_fewest_lost_per_freed sarathi_fewest_lost_per_freed vllm_ratio vllm_random
vllm-v1-0.33:policy=priority vllm-v1-0.11:policy=priority vllm-v1-0.33:long_prefill_token_threshold=3 vllm-v1-0.33_srf
vllm-v1-0.33_hist vllm-v1-0.33_pf vllm-v1-0.33_lookahead vllm-v1-0.11:enable_chunked_prefill=off
vllm-v0-chunked vllm-v0-chunked_srf vllm-v0-chunked_pf vllm-v0:policy=priority
"""
KNOWN, DECLARED = NAMES.split(), STEADY.split()
OTHERS = [
    name for name in names("sim.schedulers") if name not in [other.replace("-", "_") for other in KNOWN + DECLARED]
]
COSTS = [load_cost_model("linear/llama2-7b-a100"), max_affine()]


def run(instance: Instance, name: str, cost: CostModel, engine: Engine) -> Simulation | str:
    """The simulation, or the rule it breaks (a budget below the number of running requests, in vLLM V0)."""
    try:
        return simulate(instance, name, cost=cost, engine=engine)
    except RuleError as error:
        return str(error)


@pytest.mark.parametrize("name", KNOWN + DECLARED + OTHERS)
@given(instances())
@settings(deadline=None, derandomize=True, max_examples=30)
def test_same_schedule_and_times(name: str, instance: Instance) -> None:
    cost = COSTS[len(instance.requests) % 2]
    step, event = run(instance, name, cost, "step"), run(instance, name, cost, "auto")
    if isinstance(step, str) or isinstance(event, str):
        assert event == step
        return
    assert name in OTHERS or event.replay.log is not None
    assert (event.infeasible, event.stalled) == (step.infeasible, step.stalled)
    assert event.replay.schedule.batches == step.replay.schedule.batches
    assert event.replay == step.replay


@pytest.mark.parametrize("name", KNOWN)
def test_known_schedulers_run_on_events(name: str) -> None:
    instance = Instance((Request(2, 3),), 10)
    assert compact_runs(make_scheduler(name, instance), instance, COSTS[0]) is not None


def test_long_outputs_cost_no_more_runs() -> None:
    instance = Instance((Request(10, 100_000), Request(10, 50_000)), 200_000)
    runs = compact_runs(make_scheduler("vllm", instance), instance, COSTS[0])
    assert runs is not None and len(runs) == 3
    assert len(simulate(instance, "vllm").replay.schedule) == 100_000


@pytest.mark.parametrize("name", ["vllm-v1-0.33:policy=priority", "vllm-v0-chunked", "sarathi_lookahead"])
def test_schedulers_that_declare_it_repeat_batches_at_once(name: str) -> None:
    instance = Instance((Request(10, 5000), Request(10, 3000)), 20_000)
    runs = compact_runs(make_scheduler(name, instance), instance, COSTS[0])
    assert runs is not None and len(runs) < 10
    assert simulate(instance, name, engine="event").replay == simulate(instance, name, engine="step").replay


def test_swapping_is_left_to_the_step_engine() -> None:
    instance = Instance((Request(2, 3),), 10)
    assert compact_runs(make_scheduler("vllm_swap", instance), instance, COSTS[0]) is None
    with pytest.raises(InputError, match="does not know"):
        simulate(instance, "vllm_swap", engine="event")


class Outsider(Vllm):
    """Someone else's scheduler that happens to build on one of ours."""


def test_subclasses_are_not_taken_for_their_base() -> None:
    instance = Instance((Request(2, 3),), 10)
    assert compact_runs(Outsider(instance, Options()), instance, COSTS[0]) is None


def test_a_scheduler_that_never_gets_anywhere_is_stopped() -> None:
    # One block; a fill under way wants a second one and evicts itself, for good.
    instance = Instance((Request(10, 4),), 30, 4, block_size=16)
    runs = [simulate(instance, "vllm-v0-chunked", engine=engine) for engine in ("step", "event")]
    assert runs[0].stalled == runs[1].stalled == (0,)
    assert runs[0].replay.makespan_ticks == runs[1].replay.makespan_ticks
