"""Unit rounds: MC-SF, the program of start times, the local search and its bound, against the independent search."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from csp.formulations.starts import exactness
from csp.rounds import states
from csp.rounds.bound import _SCALE, Relaxation, lower_bound
from csp.rounds.local_search import improve, start_rounds
from csp.solve import solve
from sim.engine import simulate
from sim.errors import InputError
from sim.instance import Instance, Request, load_instance
from sim.replay import RuleError, Rules, replay
from sim.schedule import Batch, Schedule
from tests.csp.test_against_search import examples
from tests.oracle import Limits, Makespan, WeightedCompletion, optimum

RULES = Rules(preemption=False, chunking=False, holding=False)
LIMITS = Limits(preemption=False, chunking=False, holding="never")
MEAN = WeightedCompletion(None, True)


@st.composite
def rounds(
    draw: st.DrawFn, most_requests: int = 4, cost_model: str = "unit", *, arrivals: bool = False
) -> Instance:  # fmt: skip
    arrival = st.sampled_from([0, 0, 10**6, 4 * 10**6]) if arrivals else st.just(0)
    request = st.builds(Request, st.integers(1, 5), st.integers(1, 5), arrival)
    requests = tuple(draw(st.lists(request, min_size=1, max_size=most_requests)))
    peak = max(r.peak_kv_tokens for r in requests)
    return Instance(requests, peak + draw(st.integers(0, 8)), cost_model=cost_model)


def test_holding_is_refused_where_forbidden() -> None:
    instance = Instance((Request(2, 2), Request(1, 1)), 9, cost_model="unit")
    schedule = Schedule((Batch(((0, 2),)), Batch(((1, 1),)), Batch(((0, 1),))))
    assert replay(instance, schedule).makespan_ms == 3
    with pytest.raises(RuleError, match=r"batch 1, request 0.*no-holding"):
        replay(instance, schedule, rules=RULES)


@given(rounds())
@examples(40)
def test_mc_sf_keeps_the_rules_and_starts_the_shortest_first(instance: Instance) -> None:
    run = simulate(instance, "mc_sf").replay
    assert replay(instance, run.schedule, rules=RULES).makespan_ticks == run.makespan_ticks
    by_output: dict[int, list[int]] = {}
    for r, t in zip(instance.requests, run.first_token_ticks, strict=True):
        by_output.setdefault(r.output_tokens, []).append(t or 0)
    assert all(max(by_output[a]) <= min(by_output[b]) for a, b in pairwise(sorted(by_output)))


def test_mc_sf_by_hand() -> None:
    """M = 6: two of (2, 3) peak at 4 each and overlap by one round at most, so the second starts two rounds later."""
    instance = Instance((Request(2, 3), Request(2, 3), Request(1, 2)), 6, cost_model="unit")
    run = simulate(instance, "mc_sf").replay
    assert [round(t / 10**11) for t in run.completed_ticks] == [3, 5, 2]


@given(rounds())
@examples(20)
def test_start_times_are_the_search(instance: Instance) -> None:
    for objective, searched in (("mean_completion", MEAN), ("makespan", Makespan())):
        expected = optimum(instance, searched, limits=LIMITS)
        result = solve(instance, objective=objective, rules=RULES, formulation="starts", solver="highs")
        assert expected is not None
        assert (result.status, result.objective_ticks) == ("OPTIMAL", expected.value)


@given(rounds(3, "linear/llama2-7b-a100", arrivals=True))
@examples(14)
def test_start_times_with_any_cost_are_flow_and_search(instance: Instance) -> None:
    expected = optimum(instance, limits=LIMITS)
    assert expected is not None
    for formulation in ("starts", "flow"):
        result = solve(instance, rules=RULES, formulation=formulation, solver="highs")
        assert (result.status, result.objective_ticks) == ("OPTIMAL", expected.value)


def test_start_times_are_only_exact_without_choices() -> None:
    assert exactness(RULES)[0]
    for name in ("preemption", "chunking", "holding"):
        assert not exactness(Rules(**{**dict.fromkeys(("preemption", "chunking", "holding"), False), name: True}))[0]
    result = solve(load_instance("paper-7.2-i0032"), formulation="starts")
    assert not result.exact and result.status == "FEASIBLE"


def total_and_pairs(instance: Instance) -> tuple[int, list[tuple[int, int]]]:
    """Least total of completion rounds by the independent search; (I, O) of each request."""
    expected = optimum(instance, MEAN, limits=LIMITS)
    assert expected is not None
    total = round(expected.value * len(instance.requests)) // 10**11
    return total, [(r.input_tokens, r.output_tokens) for r in instance.requests]


def random_prices(shape: tuple[int, int], parts: int, seed: int) -> Any:
    """Integer prices, many of them zero."""
    random = np.random.default_rng(seed)
    return (random.random(shape) * random.choice([0, 0.02, 0.3, 2], shape) * parts).astype(np.int64)


def held(requests: list[tuple[int, int]], starts: list[int]) -> list[int]:
    """KVs in every round."""
    last = max(start + o for start, (_, o) in zip(starts, requests, strict=True))
    return [sum(i + j - start for start, (i, o) in zip(starts, requests, strict=True) if 0 <= j - start < o)
            for j in range(last)]  # fmt: skip


def test_no_order_alone_is_optimal_where_waiting_helps() -> None:
    requests, memory = [(1, 3), (1, 6), (2, 6), (2, 3)], 7
    assert min(start_rounds(requests, memory, order)[0] for order in permutations(range(4))) == 29
    found, starts = improve(requests, memory, range(4), runs=4, seed=0)
    instance = Instance(tuple(Request(i, o) for i, o in requests), memory, cost_model="unit")
    assert found == total_and_pairs(instance)[0] == 28 and max(held(requests, starts)) <= memory


@given(rounds(5), st.integers(0, 9))
@examples(60)
def test_bounds_search_and_local_search_bracket(instance: Instance, seed: int) -> None:
    total, requests = total_and_pairs(instance)
    memory = instance.kv_capacity_tokens
    found, starts = improve(requests, memory, range(len(requests)), runs=2, seed=seed)
    assert sum(start + o for start, (_, o) in zip(starts, requests, strict=True)) == found >= total
    assert max(held(requests, starts)) <= memory
    for last in (1, 4, 20):
        assert lower_bound(Relaxation(requests, memory, last), steps=60) <= total
        assert (states.lower_bound(requests, memory, last, found, steps=60) or 0) <= total


@given(rounds(4), st.integers(0, 999))
@examples(40)
def test_any_prices_give_a_bound(instance: Instance, seed: int) -> None:
    total, requests = total_and_pairs(instance)
    rows = Relaxation(requests, instance.kv_capacity_tokens, 8)
    prices = random_prices((len(rows.right), rows.rounds + 1), _SCALE, seed)
    prices[:, 0] = 0
    assert rows.value(prices) <= total
    for spacing, last in ((1, 6), (2, 9), (4, 20)):
        of_states = states.States(requests, instance.kv_capacity_tokens, last, spacing)
        assert of_states.value(random_prices(of_states.shape, states._PARTS, seed)) <= total


@given(rounds(4), st.integers(0, 999))
@examples(40)
def test_dearest_state_is_the_dearest_of_all(instance: Instance, seed: int) -> None:
    from csp.rounds._state_kernels import dearest_state

    requests, memory = [(r.input_tokens, r.output_tokens) for r in instance.requests], instance.kv_capacity_tokens
    of_states = states.States(requests, memory, 4, 4)
    *_, peaks, offset, longest, copies = of_states.data
    price, chosen = random_prices((1, of_states.shape[0]), 100, seed)[0], np.zeros(of_states.shape[0], np.int64)
    pairs = [(int(p), r) for p, n in zip(peaks, longest, strict=True) for r in range(n)]
    dearest = 0
    for counts in product(*(range(n + 1) for n in np.minimum(copies, memory // np.repeat(peaks, longest)))):
        held = [sum(c * (p - r + d) for c, (p, r) in zip(counts, pairs, strict=True) if r >= d) for d in range(5)]
        if max(held) <= memory:
            dearest = max(dearest, int(np.dot(counts, price)))
    most = memory // of_states.smallest + 1
    room = np.empty((most + 1, memory + 1), np.int64)
    taken = np.empty((int(longest.max()), most + 1, memory + 1), np.int16)
    found = dearest_state(price, memory, of_states.smallest, peaks, offset, longest, copies, room, taken, chosen)
    assert found == dearest


def test_a_bound_of_states_with_one_kv_less_is_caught() -> None:
    """The check above can fail: forbidding states that fill memory gives more than the optimum."""
    instance = Instance((Request(2, 3), Request(2, 3), Request(1, 2), Request(3, 2)), 8, cost_model="unit")
    total, requests = total_and_pairs(instance)
    right, wrong = (states.lower_bound(requests, m, 16, 10**6, steps=400) or 0 for m in (8, 7))
    assert right == total < wrong


def test_backend_proves_a_small_optimum() -> None:
    instance = Instance((Request(2, 3), Request(2, 3), Request(1, 2), Request(3, 2)), 8, cost_model="unit")
    result = solve(instance, objective="mean_completion", solver="rounds", rules=RULES, formulation="starts")
    expected = optimum(instance, MEAN, limits=LIMITS)
    assert expected is not None and (result.status, result.objective_ticks) == ("OPTIMAL", expected.value)


def test_backend_takes_rows_where_states_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_MOST_WORK", 0)
    instance = Instance(tuple(Request(1 + i % 3, 2 + i % 5) for i in range(12)), 12, cost_model="unit")
    result = solve(instance, objective="mean_completion", solver="rounds", rules=RULES)
    assert result.lower_bound_source == "rounds" and 0 < result.gap < 0.4


def test_backend_improves_on_mc_sf_and_says_what_it_proves() -> None:
    requests = tuple(Request(1 + i % 5, 1 + 7 * i % 23) for i in range(24))
    instance = Instance(requests, 30, cost_model="unit")
    result = solve(instance, objective="mean_completion", solver="rounds", rules=RULES, seed=1)
    mc_sf = simulate(instance, "mc_sf").replay
    assert result.objective_ticks * 24 < sum(t or 0 for t in mc_sf.e2e_ticks())
    assert result.lower_bound_source == "rounds" and 0 < result.gap < 0.5


@pytest.mark.parametrize(
    "change", [{"cost_model": "linear/llama2-7b-a100"}, {"block_size": 2}, {"max_num_seqs": 1}, {"token_budget": 3}]
)
def test_backend_refuses_what_it_does_not_describe(change: dict) -> None:
    instance = Instance((Request(2, 2), Request(1, 3)), 6, cost_model="unit").replace(**change)
    with pytest.raises(InputError, match="rounds"):
        solve(instance, objective="mean_completion", solver="rounds", rules=RULES)
