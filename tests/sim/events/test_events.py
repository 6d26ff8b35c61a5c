"""The event engine makes the step engine's schedules, to the batch and to the tick."""

import dataclasses

import pytest
from hypothesis import given, settings

from sim.cost.model import CostModel, load_cost_model
from sim.engine import simulate
from sim.events import compact_runs
from sim.instance import Instance, Request
from sim.replay import Replay
from sim.schedulers import make_scheduler
from tests.sim.cost_models import max_affine
from tests.sim.strategies import instances

KNOWN = ["vllm", "vllm_pf", "vllm_srf", "sarathi", "sarathi_pf", "sarathi_srf"]
COSTS = [load_cost_model("linear/llama2-7b-a100"), max_affine()]


def assert_same(instance: Instance, name: str, cost: CostModel) -> None:
    step = simulate(instance, name, cost=cost, engine="step")
    event = simulate(instance, name, cost=cost, engine="event")
    assert (event.infeasible, event.stalled) == (step.infeasible, step.stalled)
    assert event.replay.schedule.batches == step.replay.schedule.batches
    for field in dataclasses.fields(Replay):
        if field.name not in ("schedule", "log", "records"):
            assert getattr(event.replay, field.name) == getattr(step.replay, field.name), field.name
    assert tuple(event.replay.records) == tuple(step.replay.records)


@pytest.mark.parametrize("name", KNOWN)
@given(instances())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_same_schedule_and_times(name: str, instance: Instance) -> None:
    assert_same(instance, name, COSTS[len(instance.requests) % 2])


@pytest.mark.parametrize("name", KNOWN)
def test_known_schedulers_run_on_events(name: str) -> None:
    instance = Instance((Request(2, 3),), 10)
    assert compact_runs(make_scheduler(name, instance), instance, COSTS[0]) is not None


def test_long_outputs_cost_no_more_runs() -> None:
    instance = Instance((Request(10, 100_000), Request(10, 50_000)), 200_000)
    runs = compact_runs(make_scheduler("vllm", instance), instance, COSTS[0])
    assert runs is not None and len(runs) == 3
    assert len(simulate(instance, "vllm").replay.schedule) == 100_000
