"""The urgent-class search against an exhaustive one that knows only the rules module."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds.preemption_bench.floors import max_ttft_floor_ticks
from csp.urgent import least_urgent_ttft
from sim.cost.model import CostModel, load_cost_model
from sim.engine import simulate
from sim.errors import InputError
from sim.instance import Instance, Request
from sim.interrupts import constants
from sim.interrupts.policy import load_policy, policy_names
from sim.interrupts.run import overheads, server_rules
from sim.interrupts.server import InterruptServer
from sim.replay import RuleError, Rules, replay
from sim.schedule import Batch, Schedule

COST = load_cost_model("linear/llama2-7b-a100")
LINK = constants.swap_link()
RULES = Rules(chunking=False, swap=LINK)


def every_schedule(instance: Instance, rules: Rules, most_batches: int) -> Iterator[Schedule]:
    """All schedules of whole fills with at most so many batches, as the rules module lets them pass."""
    n = len(instance.requests)
    outputs = [r.output_tokens for r in instance.requests]

    def extend(batches: tuple[Batch, ...]) -> Iterator[Schedule]:
        try:
            replay(instance, Schedule(batches), rules=rules, complete=False)
        except RuleError:
            return
        state = _state(instance, batches, rules)
        if state.unfinished == 0:
            yield Schedule(batches)
            return
        if len(batches) == most_batches or max(
            o - g for o, g, d in zip(outputs, state.generated, state.done, strict=True) if not d
        ) > most_batches - len(batches):
            return
        for actions in itertools.product(("hold", "run", "drop", "out", "in", "in-run"), repeat=n):
            if "run" not in actions and "in-run" not in actions:
                continue
            if any(a != "hold" and state.done[i] for i, a in enumerate(actions)):
                continue
            pick = {a: tuple(i for i in range(n) if actions[i] == a) for a in set(actions)}
            run = (*pick.get("run", ()), *pick.get("in-run", ()))
            process = tuple((i, 1 if actions[i] == "in-run" else state.remaining_fill(i)) for i in run)
            yield from extend((*batches, Batch(process, pick.get("drop", ()), None, pick.get("out", ()),
                                               (*pick.get("in", ()), *pick.get("in-run", ())))))  # fmt: skip

    yield from extend(())


def _state(instance: Instance, batches: tuple[Batch, ...], rules: Rules):  # type: ignore[no-untyped-def]
    from sim.replay import State

    state = State(instance, COST, rules)
    for batch in batches:
        state.apply(batch)
    state.release_completed()
    return state


def best_by_exhaustion(instance: Instance, rules: Rules, most_batches: int, limit: int | None = None,
                       cost: CostModel = COST) -> tuple[int, int] | None:  # fmt: skip
    """(max urgent TTFT, overhead) of the best schedule."""
    best = None
    for schedule in every_schedule(instance, rules, most_batches):
        run = replay(instance, schedule, rules=rules, cost=cost)
        if limit is not None and run.makespan_ticks > limit:
            continue
        ttft = run.ttft_ticks()
        worst = max(t for t, r in zip(ttft, instance.requests, strict=True) if r.priority == 0 and t is not None)
        transfers, extra, _ = overheads(run, cost)
        best = min(best or (worst, transfers + extra), (worst, transfers + extra))
    return best


TINY = [
    ([Request(11, 3, 0, 1), Request(12, 1, 2_000_000, 0)], 20, 2),
    ([Request(11, 3, 0, 1), Request(12, 2, 2_000_000, 0)], 16, 2),
    ([Request(11, 2, 0, 1), Request(12, 1, 1_000_000, 0), Request(11, 2, 500_000, 2)], 24, 2),
    ([Request(14, 2, 0, 0), Request(11, 2, 500_000, 1), Request(12, 1, 9_000_000, 0)], 100, 1),
]


@pytest.mark.parametrize(("requests", "kv", "slots"), TINY)
@pytest.mark.parametrize("stretch", [None, 0, 4])
def test_equals_exhaustive_search(requests: list[Request], kv: int, slots: int, stretch: int | None) -> None:
    """Without and with a limit on the end: that of the run without preemption, plus some ms."""
    instance = Instance(tuple(requests), kv, 512, slots, cost_model=COST.name)
    limit = None
    if stretch is not None:
        limit = _run(instance, "no_preemption").makespan_ticks + stretch * 10**11
    batches = sum(r.output_tokens for r in requests) + (1 if len(requests) == 2 else 0)
    found = least_urgent_ttft(instance, rules=RULES, makespan_limit_ticks=limit)
    expected = best_by_exhaustion(instance, RULES, batches, limit)
    assert found is not None and expected == (found.max_ttft_ticks, found.overhead_ticks)
    transfers, extra, _ = overheads(found.replay, COST)
    assert transfers + extra == found.overhead_ticks
    if limit is not None:
        assert found.replay.makespan_ticks <= limit


def _run(instance: Instance, policy: str):  # type: ignore[no-untyped-def]
    server = InterruptServer(instance, load_policy(policy), LINK)
    return simulate(instance, server, rules=server_rules(LINK)).replay


REQUESTS = st.lists(
    st.tuples(st.integers(11, 40), st.integers(1, 5), st.integers(0, 40), st.integers(0, 2)), min_size=1, max_size=3
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(REQUESTS, st.integers(1, 2), st.integers(45, 90), st.sampled_from(policy_names()))
def test_floor_then_optimum_then_every_policy(
    rows: list[tuple[int, int, int, int]], slots: int, kv: int, policy: str
) -> None:
    requests = [Request(i, o, a * 10**6, p) for i, o, a, p in rows] + [Request(15, 2, 5 * 10**6, 0)]
    instance = Instance(tuple(requests), kv, 512, slots, cost_model=COST.name)
    free = least_urgent_ttft(instance, rules=RULES)
    assert free is not None
    floor = max_ttft_floor_ticks(instance, COST)
    assert floor is not None and floor <= free.max_ttft_ticks
    run = _run(instance, policy)
    worst = max(t for t, r in zip(run.ttft_ticks(), requests, strict=True) if r.priority == 0 and t is not None)
    bounded = least_urgent_ttft(instance, rules=RULES, makespan_limit_ticks=run.makespan_ticks)
    assert bounded is not None and free.max_ttft_ticks <= bounded.max_ttft_ticks <= worst


def test_whoever_knows_the_future_idles_for_free() -> None:
    """The urgent request needs only its own prefill if the server waits for it, and nobody is interrupted."""
    instance = Instance((Request(20, 5, 0, 1), Request(12, 2, 10**6, 0)), 100, 512, 1, cost_model=COST.name)
    found = least_urgent_ttft(instance, rules=RULES)
    assert found is not None
    assert (found.max_ttft_ticks, found.overhead_ticks) == (max_ttft_floor_ticks(instance, COST), 0)


def test_overhead_is_left_open_where_refills_may_be_cheaper_than_decoding() -> None:
    """Prompts of two tokens: a refill saves the decode flag. The least TTFT still equals the exhaustive search's."""
    requests = (Request(2, 2, 0, 1), Request(3, 1, 10**6, 0))
    instance = Instance(requests, 4, 512, 2, cost_model=COST.name)
    found = least_urgent_ttft(instance, rules=RULES)
    expected = best_by_exhaustion(instance, RULES, 4)
    assert found is not None and expected is not None
    assert (found.max_ttft_ticks, found.overhead_ticks) == (expected[0], None)


def test_no_schedule_in_time_gives_none() -> None:
    instance = Instance((Request(20, 5, 0, 1), Request(12, 2, 10**6, 0)), 100, 512, 1, cost_model=COST.name)
    assert least_urgent_ttft(instance, rules=RULES, makespan_limit_ticks=10**11) is None


@pytest.mark.parametrize(
    "rules", [Rules(), replace(RULES, hybrid=False), Rules(chunking=False, swap=constants.swap_link(overlap=True))]
)
def test_rules_it_does_not_cover_are_refused(rules: Rules) -> None:
    instance = Instance((Request(12, 2, 0, 0),), 100, 512, 1, cost_model=COST.name)
    with pytest.raises(InputError):
        least_urgent_ttft(instance, rules=rules)


def test_no_urgent_request_is_an_error() -> None:
    with pytest.raises(InputError, match="no request of this class"):
        least_urgent_ttft(Instance((Request(12, 2, 0, 1),), 100, 512, 1, cost_model=COST.name), rules=RULES)
