"""Admission rules and queue orders on hand-checked states."""

from __future__ import annotations

import pytest

from sim.admission import Admission, AdmissionParameters, load_admission
from sim.cost.model import load_cost_model
from sim.engine import simulate
from sim.errors import InputError
from sim.instance import DEFAULT_COST_MODEL, Instance, Request
from sim.queues import load_rank
from sim.replay import State
from sim.schedule import Batch
from sim.schedulers._memory import Memory


def _rule(name: str, instance: Instance, **parameters: float) -> tuple[Admission, State, Memory]:
    state = State(instance, load_cost_model(DEFAULT_COST_MODEL))
    rule = load_admission(name, instance, AdmissionParameters(**parameters))  # type: ignore[arg-type]
    return rule, state, Memory(instance)


def test_memory_counts_blocks() -> None:
    memory = Memory(Instance((Request(1, 1),) * 2, 40, block_size=4))
    memory.hold(0, 9)
    assert (memory.held[0], memory.used_blocks, memory.free_blocks) == (3, 3, 7)
    assert [memory.missing(0, kv) for kv in (1, 12, 13, 40)] == [0, 0, 1, 7]
    memory.hold(0, 5)
    assert memory.held[0] == 3
    memory.release(0)
    memory.release(1)
    assert memory.used_blocks == 0


def test_preemption_free_holds_the_peak() -> None:
    rule, state, _ = _rule("pf", Instance((Request(5, 8),), 40))
    assert rule.hold_tokens(0, state) == 12


@pytest.mark.parametrize(("share", "allowed"), [(0.0, True), (0.1, True), (0.125, False), (0.5, False)])
def test_watermark_keeps_blocks_free(share: float, allowed: bool) -> None:
    """40 blocks, 20 held, 16 wanted: 4 stay free."""
    rule, state, memory = _rule("watermark", Instance((Request(20, 2), Request(16, 2)), 40), watermark=share)
    memory.hold(0, 20)
    assert rule.allows(1, state, memory, [0]) is allowed


def test_histogram_learns_from_completions() -> None:
    """Two requests of bucket 4-7 with 16 and 11 tokens in all: the third is expected to need 14."""
    instance = Instance((Request(4, 12), Request(7, 4), Request(5, 1), Request(8, 1)), 40)
    rule, state, memory = _rule("hist", instance)
    memory.hold(3, 27)
    assert rule.allows(2, state, memory, [3])
    for i, tokens in ((0, 4), (1, 7)):
        for _ in range(instance.requests[i].output_tokens):
            rule.update(state.apply(Batch(((i, tokens),))), state)
            tokens = 1
    assert not rule.allows(2, state, memory, [3])
    assert rule.allows(3, state, memory, [2])
    memory.release(3)
    memory.hold(3, 26)
    assert rule.allows(2, state, memory, [3])


def test_ratio_reserves_a_share_of_running_outputs() -> None:
    """Running: 8 tokens to come. New: peak 7. Free: 12. At 0.7 it takes 5.6 + 7 > 12, at 0.5 it fits."""
    instance = Instance((Request(2, 8), Request(3, 5)), 14)
    for share, allowed in ((0.7, False), (0.5, True)):
        rule, state, memory = _rule("ratio", instance, initial_ratio=share)
        memory.hold(0, 2)
        assert rule.allows(1, state, memory, [0]) is allowed


def test_ratio_falls_and_rises_after_a_preemption() -> None:
    instance = Instance((Request(2, 80), Request(3, 50)), 100)
    rule, state, _ = _rule("ratio", instance, decay_batches=10)
    rule.update(state.apply(Batch(((0, 2), (1, 3)))), state)
    assert rule.ratio == pytest.approx(0.64)  # type: ignore[attr-defined]
    rule.update(state.apply(Batch(((0, 1),), (1,))), state)
    assert rule.ratio == pytest.approx(22 / 80)  # type: ignore[attr-defined]
    for _ in range(20):
        rule.update(state.apply(Batch(((0, 1),))), state)
    assert rule.ratio == pytest.approx(0.1)  # type: ignore[attr-defined]


QUEUES = {
    "priority": [1, 2, 0, 3],
    "shortest_input": [2, 0, 1, 3],
    "longest_input": [3, 0, 1, 2],
    "shortest_output": [3, 1, 0, 2],
    "longest_output": [2, 0, 1, 3],
    "shortest_remaining": [3, 1, 0, 2],
    "longest_remaining": [2, 0, 1, 3],
}


@pytest.mark.parametrize("name", QUEUES)
def test_queue_order(name: str) -> None:
    requests = (Request(5, 5, 0, 1), Request(5, 4, 0, 0), Request(2, 9, 0, 0), Request(7, 1, 0, 2))
    state = State(Instance(requests, 40), load_cost_model(DEFAULT_COST_MODEL))
    rank = load_rank(name)
    assert rank is not None
    assert sorted(range(4), key=lambda i: rank(i, state)) == QUEUES[name]


def test_queue_order_is_the_order_of_admission() -> None:
    instance = Instance((Request(5, 1), Request(2, 1), Request(7, 1)), 40, max_num_seqs=1)
    for name, order in (
        ("vllm", [0, 1, 2]),
        ("vllm_shortest_input", [1, 0, 2]),
        ("vllm-v1-0.33_longest_input", [2, 0, 1]),
    ):
        batches = simulate(instance, name).replay.schedule.batches
        assert [b.process[0][0] for b in batches] == order


def test_unknown_rules() -> None:
    instance = Instance((Request(1, 1),), 4)
    with pytest.raises(InputError, match="watermark"):
        load_admission("watermrk", instance, AdmissionParameters())
    with pytest.raises(InputError, match="fcfs"):
        load_rank("fcf")
