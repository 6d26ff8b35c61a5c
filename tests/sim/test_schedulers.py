"""Every scheduler, alone and with every rule it takes: valid schedules that conserve tokens and memory."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine import Simulation, simulate
from sim.errors import InputError
from sim.instance import Instance, Request
from sim.registry import names
from sim.replay import ENGINE_RULES, Rules, SwapLink, replay
from sim.schedulers import REFILLS, make_scheduler, official_name, parse_name
from tests.sim.strategies import instances

SCHEDULERS = [official_name("sim.schedulers", module) for module in names("sim.schedulers")]
RULES = {
    "victim": names("sim.preemption"),
    "admission": names("sim.admission"),
    "queue": names("sim.queues"),
    "refill": list(REFILLS),
}
SWAP_RULES = Rules(allow_empty=True, swap=SwapLink(10**6, 10**5))
PAPER = ["vllm", "vllm_hy", "sarathi", "sarathi_cs", "sarathi_nocp"]


def _accepted(name: str) -> bool:
    try:
        make_scheduler(name, Instance((Request(1, 1),), 1))
    except InputError:
        return False
    return True


NAMES = SCHEDULERS + [
    name for s in SCHEDULERS for words in RULES.values() for w in words if _accepted(name := f"{s}_{w}")
]
NAMES += ["vllm-v0:policy=priority", "vllm-v1-0.11:policy=priority", "vllm-v1-0.33:policy=priority:watermark=0.1",
          "vllm-v1-0.33:long_prefill_token_threshold=3", "vllm-v1-0.33:enable_chunked_prefill=off",
          "vllm-v1-0.11:enable_chunked_prefill=off", "sarathi_cs_swap:swap_overlap=on",
          "vllm_hy_srf_hist_swap"]  # fmt: skip


@lru_cache
def _workloads() -> list[Instance]:
    """Random small workloads; some requests can never fit, some prompts exceed the token budget."""
    generator = np.random.default_rng(20241)
    found = []
    for _ in range(24):
        arrivals = generator.choice([0, 1]) * np.sort(generator.integers(0, 400, 40))
        requests = tuple(
            Request(int(i), int(o), int(at) * 10**6, int(p))
            for i, o, at, p in zip(generator.integers(1, 14, 40), generator.integers(1, 9, 40), arrivals,
                                   generator.integers(0, 3, 40), strict=True)
        )[: int(generator.integers(1, 14))]  # fmt: skip
        found.append(Instance(requests, int(generator.integers(9, 60)), int(generator.choice([6, 16, 64, 512])),
                              int(generator.choice([2, 5, 100])), int(generator.choice([1, 1, 4]))))  # fmt: skip
    return found


def _check(instance: Instance, name: str) -> Simulation:
    """Simulate and check what must hold of every scheduler."""
    run = simulate(instance, name, rules=SWAP_RULES)
    again = replay(instance, run.replay.schedule, rules=SWAP_RULES, complete=False)
    assert again.makespan_ticks == run.replay.makespan_ticks
    processed: Counter[int] = Counter()
    for record in run.replay.records:
        assert record.kv_blocks <= instance.kv_blocks
        assert record.features.tokens <= instance.token_budget
        assert len(record.entries) <= (instance.max_num_seqs or len(instance.requests))
        for entry in record.entries:
            processed[entry.request] += entry.tokens
    longest = max((r.peak_kv_tokens for r in instance.requests), default=0)
    if longest <= instance.token_budget:
        assert not run.stalled
    for i, r in enumerate(instance.requests):
        done = run.replay.completed_ticks[i] is not None
        assert done + (i in run.infeasible) + (i in run.stalled) == 1
        if done:
            assert processed[i] == r.peak_kv_tokens + run.replay.refilled_tokens[i]
    return run


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    for instance in _workloads():
        run = _check(instance, name)
        if "_pf" in name:
            assert not any(run.replay.preemptions)


@pytest.mark.parametrize("name", SCHEDULERS)
@given(instances())
@settings(deadline=None, derandomize=True, max_examples=25)
def test_contract_on_drawn_instances(name: str, instance: Instance) -> None:
    _check(instance, name)


@pytest.mark.parametrize("name", NAMES[::7])
def test_same_run_twice(name: str) -> None:
    instance = _workloads()[3]
    first, second = (simulate(instance, name, rules=SWAP_RULES).replay for _ in range(2))
    assert tuple(first.schedule.batches) == tuple(second.schedule.batches)


@pytest.mark.parametrize("name", ["vllm", "vllm_hy", "sarathi_nocp", "vllm-v1-0.33"])
@given(instances(), st.integers(1, 4))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_look_ahead_never_preempts_when_fills_are_whole(name: str, instance: Instance, block_size: int) -> None:
    roomy = instance.replace(token_budget=2**20, block_size=block_size, max_num_seqs=None)
    run = simulate(roomy, f"{name}_lookahead")
    assert not any(run.replay.preemptions)
    assert not run.stalled


def test_look_ahead_admits_what_peaks_forbid() -> None:
    """Peaks 10 + 10 exceed M = 19, but the first is gone when the second gets there."""
    instance = Instance((Request(4, 7), Request(6, 5)), 19)
    reserved, ahead = (simulate(instance, name).replay for name in ("vllm_hy_pf", "vllm_hy_lookahead"))
    assert len(reserved.schedule) == 12
    assert not any(ahead.preemptions)
    assert len(ahead.schedule) == 7


@pytest.mark.parametrize("name", PAPER)
def test_preempted_requests_are_refilled_from_the_front(name: str) -> None:
    instance = Instance((Request(2, 4), Request(2, 4), Request(2, 1)), 7, max_num_seqs=2)
    run = simulate(instance, name).replay
    assert run.preemptions == (0, 1, 0)
    refill = next(e for r in run.records for e in r.entries if e.kind == "refill")
    assert (refill.request, refill.tokens) == (1, 4)


def test_swapped_requests_lose_nothing() -> None:
    instance = Instance((Request(2, 4), Request(2, 4)), 7)
    run = simulate(instance, "sarathi_swap")
    batches = tuple(run.replay.schedule.batches)
    assert [b.swap_out for b in batches if b.swap_out] == [(1,)]
    assert [b.swap_in for b in batches if b.swap_in] == [(1,)]
    assert sum(run.replay.refilled_tokens) == 0
    assert simulate(instance, "sarathi_swap", rules=SWAP_RULES).replay.makespan_ticks != run.replay.makespan_ticks


def test_cheapest_refill_depends_on_the_link() -> None:
    instance = Instance((Request(20, 4), Request(20, 4)), 43)
    fast, slow = Rules(allow_empty=True, swap=SwapLink(0, 1)), Rules(allow_empty=True, swap=SwapLink(0, 10**12))
    swapped, refilled = (simulate(instance, "sarathi_cheapest", rules=r).replay for r in (fast, slow))
    assert sum(swapped.preemptions) == 0 < sum(refilled.preemptions)
    plain = simulate(instance, "sarathi", rules=ENGINE_RULES).replay
    assert tuple(refilled.schedule.batches) == tuple(plain.schedule.batches)


def test_swapping_needs_a_known_link() -> None:
    with pytest.raises(InputError, match="swap_link"):
        simulate(Instance((Request(2, 4),), 7), "vllm_swap:swap_link=carrier-pigeon")


def test_shortest_remaining_takes_memory_from_longer_ones() -> None:
    instance = Instance((Request(6, 6), Request(8, 2, 1)), 12)
    run = simulate(instance, "shortest_remaining").replay
    assert run.preemptions == (1, 0)
    finished = run.completed_ticks
    assert finished[1] is not None and finished[0] is not None
    assert finished[1] < finished[0]


def test_longest_remaining_serves_long_outputs_first() -> None:
    instance = Instance((Request(5, 2), Request(5, 5)), 9)
    run = simulate(instance, "longest_remaining").replay
    assert run.schedule.batches[0].process == ((1, 5),)


@pytest.mark.parametrize("name", ["vlm", "vllm_", "vllm_foo", "vllm_srf_nrf", "vllm_pf_hist", "vllm_swap_cheapest",
                                  "vllm:x=1", "vllm:seed", "vllm:seed=a", "vllm:seed=-1", "vllm-v1-0.33:policy=lifo",
                                  "vllm-v0:policy=lifo", "vllm-v0_hist", "vllm-v1-0.33_swap", "vllm-v1-0.11_watermark",
                                  "shortest_remaining_srf", "sarathi:swap_overlap=maybe", "", ":seed=1",
                                  "vllm-v1-0.33:watermark=nan"])  # fmt: skip
def test_bad_names_are_one_line(name: str) -> None:
    with pytest.raises(InputError) as caught:
        make_scheduler(name, Instance((Request(1, 1),), 1))
    assert "\n" not in str(caught.value)


def test_names_in_any_spelling() -> None:
    assert parse_name("vllm-v1-0.33_srf") == parse_name("vllm_v1_0_33_srf") == parse_name("vllm.v1.0.33-srf")
    assert parse_name("sarathi_cs_srf_hist")[0] == "sarathi_cs"
    assert parse_name("vllm_hist_srf")[1] == parse_name("vllm_srf_hist")[1]
    assert "vllm-v1-0.33" in SCHEDULERS


def test_token_budget_is_the_smaller_one() -> None:
    instance = Instance((Request(600, 1), Request(600, 1)), 2000, token_budget=700)
    for name, largest in (("sarathi", 512), ("sarathi_cs", 700), ("sarathi:token_budget=100", 100)):
        run = simulate(instance, name).replay
        assert max(r.features.tokens for r in run.records) == largest, name
