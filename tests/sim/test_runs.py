"""Compact schedules: the view, and the replay of whole runs against the batch by batch replay."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.model import load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.replay import ENGINE_RULES, PAPER_RULES, Replay, RuleError, Rules, replay
from sim.replay_runs import replay_runs
from sim.runs import Run, RunBatches, RunBuilder
from sim.schedule import Schedule
from tests.sim.strategies import instances

TWO = Instance((Request(3, 4), Request(2, 6)), 20, 8)
GOOD = (Run(fills=((0, 3), (1, 2)), decode=False), Run(3, joined=((0, 0), (1, 1))), Run(2, left=(0,)))


def compact(result: Replay) -> Schedule:
    """A schedule made compact batch by batch."""
    builder = RunBuilder()
    for batch, record in zip(result.schedule.batches, result.records, strict=True):
        builder.add(batch, [e.request for e in record.entries if e.kind == "decode"])
    return Schedule(RunBatches(builder.runs))


@given(instances(), st.sampled_from(["vllm", "vllm_srf", "sarathi", "sarathi_pf"]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_replay_of_runs_equals_replay_of_batches(instance: Instance, name: str) -> None:
    plain = simulate(instance, name, engine="step").replay
    schedule = compact(plain)
    assert schedule.batches == plain.schedule.batches
    cost = load_cost_model(instance.cost_model)
    at_once = replay_runs(instance, schedule, cost, ENGINE_RULES, complete=False)
    assert at_once is not None
    for field in dataclasses.fields(Replay):
        if field.name not in ("schedule", "log", "records"):
            assert getattr(at_once, field.name) == getattr(plain, field.name), field.name
    assert tuple(at_once.records) == plain.records
    assert at_once.times_ns == simulate(instance, name, engine="event").replay.times_ns == plain.times_ns


def test_the_view_answers_like_a_tuple() -> None:
    view = RunBatches(GOOD)
    batches = tuple(view)
    assert len(view) == len(batches) == 6
    assert [view[j] for j in range(-6, 6)] == [*batches, *batches]
    assert view[1:5:2] == batches[1:5:2] and view == batches and batches != view[:3]
    with pytest.raises(IndexError):
        view[6]


def test_views_of_many_runs_are_read_from_any_place() -> None:
    runs = [Run(fills=((0, 1),), decode=False)] + [
        Run(joined=((k % 2, k + 1),), left=(k,) if k else (), preempt=(9,) if k == 300 else ()) for k in range(700)
    ]
    runs[1] = Run(joined=((0, 1),))
    view = RunBatches(runs)
    assert [view[j] for j in reversed(range(len(view)))] == list(view)[::-1]


BROKEN = {
    "decodes after completion": (GOOD[0], Run(4, joined=((0, 0), (1, 1))), Run(1, left=(0,))),
    "decodes while not filled": (Run(fills=((0, 3),), decode=False), Run(3, joined=((0, 0), (1, 1)))),
    "fills too much": (Run(fills=((0, 4), (1, 2)), decode=False),),
    "fills nothing": (Run(fills=((0, 0), (1, 2)), decode=False),),
    "fills twice": (Run(fills=((0, 1), (0, 1)), decode=False),),
    "preempts who holds nothing": (Run(fills=((0, 3),), decode=False, preempt=(1,)),),
    "preempts and fills": (GOOD[0], Run(fills=((1, 1),), decode=False, preempt=(1,))),
    "more than C": (GOOD[0], Run(1, joined=((0, 0),), fills=((1, 9),))),
    "starts early": (GOOD[0], Run(3, joined=((0, 0), (1, 1)), start_ns=5)),
    "empty batch": (Run(decode=False),),
    "never finishes": GOOD[:2],
}


@pytest.mark.parametrize("runs", BROKEN.values(), ids=BROKEN)
def test_broken_runs_are_named_by_the_batch_by_batch_replay(runs: tuple[Run, ...]) -> None:
    schedule = Schedule(RunBatches(runs))
    assert replay_runs(TWO, schedule, load_cost_model(TWO.cost_model), PAPER_RULES, complete=True) is None
    with pytest.raises(RuleError):
        replay(TWO, schedule)
    with pytest.raises(RuleError):
        replay(TWO, Schedule(tuple(schedule.batches)))


@pytest.mark.parametrize(
    ("instance", "rules"),
    [
        (TWO.replace(kv_capacity_tokens=10), PAPER_RULES),
        (TWO.replace(token_budget=4), PAPER_RULES),
        (TWO.replace(max_num_seqs=1), PAPER_RULES),
        (TWO.replace(block_size=4, kv_capacity_tokens=12), PAPER_RULES),
    ],
)
def test_limits_hold_within_a_run(instance: Instance, rules: Rules) -> None:
    schedule = Schedule(RunBatches(GOOD))
    assert replay_runs(instance, schedule, load_cost_model(instance.cost_model), rules, complete=True) is None
    with pytest.raises(RuleError):
        replay(instance, schedule, rules=rules)


def test_arrivals_hold_in_runs() -> None:
    late = TWO.replace(requests=(Request(3, 4, 10**6), Request(2, 6)))
    good = replay(late, Schedule(RunBatches(GOOD)))
    assert good.records[0].start_ticks == 10**11
    early = (GOOD[0]._replace(start_ns=10), *GOOD[1:])
    with pytest.raises(RuleError, match="arrives"):
        replay(late, Schedule(RunBatches(early)))


def test_forbidden_kinds_of_batches() -> None:
    chunks = (Run(3, fills=((0, 1),), decode=False), Run(fills=((1, 2),), joined=((0, 0),)), Run(2),
              Run(5, left=(0,), joined=((0, 1),)))  # fmt: skip
    replay(TWO, Schedule(RunBatches(chunks)))
    for rules in (Rules(chunking=False), Rules(hybrid=False)):
        with pytest.raises(RuleError):
            replay(TWO, Schedule(RunBatches(chunks)), rules=rules)
