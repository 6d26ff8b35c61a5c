"""Interrupt policies, the server that asks them, and what a run costs: checked by hand on tiny cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.clock import TICKS_PER_NS
from sim.cost.model import Features, load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.interrupts import constants
from sim.interrupts.policy import CHECKPOINT, PAUSE, RECOMPUTE, Policy, View, load_policy, policy_names
from sim.interrupts.run import Run, measure, run_policy, server_rules
from sim.interrupts.server import InterruptServer
from sim.interrupts.workload import Drawn, Workload, busy_ms, draw, load_workload, mix
from sim.registry import names
from sim.replay import State, replay

WORKLOADS = names("sim.interrupts.workloads")
ALWAYS = [p for p in policy_names() if p not in ("no_preemption", "kv_pressure_checkpoint", "oracle_preemption")]
LINK = constants.swap_link()
COST = load_cost_model(constants.COST_MODEL)


def small(requests: list[Request], *, slots: int = 1, kv: int = 1000, budget: int = 512) -> Instance:
    return Instance(tuple(requests), kv, budget, slots, cost_model=constants.COST_MODEL)


def run_small(instance: Instance, policy: str, resumes: tuple[tuple[bool, ...], ...] | None = None) -> Run:
    resumes = resumes or ((True,),) * len(instance.requests)
    return run_policy(Drawn("small", Workload(mix(1, 0, 0), resume_probability=1.0), instance, resumes), policy)


def features(prefill: int = 0, decodes: tuple[int, ...] = ()) -> Features:
    """A batch with one whole fill of ``prefill`` tokens and decodes that hold the given KVs."""
    return Features(1, int(prefill > 0), int(bool(decodes)), int(prefill > 0), len(decodes), prefill + len(decodes),
                    prefill**2, 0, sum(decodes))  # fmt: skip


STANDARD = Request(100, 50, 0, constants.STANDARD)
URGENT = Request(20, 3, 30_000_000, constants.URGENT)  # arrives after 30 ms, while the other decodes


def test_no_preemption_waits_for_the_slot() -> None:
    run = run_small(small([STANDARD, URGENT]), "no_preemption")
    done = run.simulation.replay.completed_ticks[0]
    assert done is not None
    assert run.simulation.replay.first_token_ticks[1] == done + COST.batch_ticks(features(20))
    assert run.interrupts == ()


def test_checkpoint_delays_the_urgent_prefill_by_one_transfer_and_costs_two() -> None:
    run = run_small(small([STANDARD, URGENT]), "oldest_checkpoint")
    (event,) = run.interrupts
    assert (event.request, event.for_request, event.mechanism) == (0, 1, CHECKPOINT)
    transfer = LINK.transfer_ticks(event.kv_tokens)
    first = run.simulation.replay.first_token_ticks[1]
    assert first == event.at_ticks + transfer + COST.batch_ticks(features(20))
    assert measure(run).checkpoint_ms == pytest.approx(2 * transfer / 1e11)
    assert measure(run).recompute_ms == 0


def test_recompute_costs_the_refill_beyond_the_decode_step_it_replaces() -> None:
    run = run_small(small([STANDARD, URGENT]), "oldest_recompute")
    (event,) = run.interrupts
    known = 100 + event.generated
    assert event.kv_tokens == known - 1
    extra = COST.batch_ticks(features(known)) - COST.batch_ticks(features(0, (known - 1,)))
    outcome = measure(run)
    assert outcome.recompute_ms == pytest.approx(extra / 1e11)
    assert outcome.checkpoint_ms == 0
    assert outcome.prompt_only_ms == pytest.approx(100 * constants.prefill_ms_per_token(COST))
    assert run.simulation.replay.first_token_ticks[1] == event.at_ticks + COST.batch_ticks(features(20))


def test_pause_costs_nothing_and_keeps_the_kvs() -> None:
    run = run_small(small([STANDARD, URGENT]), "oldest_pause")
    (event,) = run.interrupts
    assert event.mechanism == PAUSE
    outcome = measure(run)
    assert outcome.overhead_ms == 0
    work = measure(run_small(small([STANDARD, URGENT]), "no_preemption")).makespan_ms
    assert outcome.makespan_ms == pytest.approx(work)


def test_pause_falls_back_to_a_checkpoint_where_memory_lacks() -> None:
    run = run_small(small([STANDARD, URGENT], kv=150), "oldest_pause")
    assert [event.mechanism for event in run.interrupts] == [CHECKPOINT]


def test_abandoned_requests_leave_and_miss_their_slo() -> None:
    run = run_small(small([STANDARD, URGENT]), "oldest_checkpoint", ((False,), (True,)))
    outcome = measure(run)
    assert outcome.abandoned == 1
    assert run.simulation.replay.completed_ticks[0] is None and run.simulation.stalled == ()
    assert outcome.classes[constants.STANDARD].ttft_attained == 1.0
    assert outcome.classes[constants.STANDARD].slo_attained == 0.0
    assert outcome.value_score == pytest.approx(4 / 6)
    out_only = LINK.transfer_ticks(run.interrupts[0].kv_tokens)
    assert outcome.checkpoint_ms == pytest.approx(out_only / 1e11)


def test_urgent_requests_are_never_interrupted() -> None:
    first = Request(20, 60, 0, constants.URGENT)
    run = run_small(small([first, URGENT]), "oldest_checkpoint")
    assert run.interrupts == ()


def test_several_victims_make_room_or_none_is_touched() -> None:
    """The urgent request needs two victims' memory; a policy that gives up after one must leave both alone."""
    standards = [Request(30, 60, 0, constants.STANDARD)] * 2
    urgent = Request(150, 3, 30_000_000, constants.URGENT)
    instance = small([*standards, urgent], slots=3, kv=200)
    assert len(run_small(instance, "oldest_recompute").interrupts) == 2

    def once(view: View) -> tuple[int, str] | None:
        return (view.candidates[0], RECOMPUTE) if len(view.candidates) == 2 else None

    server = InterruptServer(instance, Policy("heuristic", "once", "recompute", once), LINK)  # type: ignore[arg-type]
    simulate(instance, server, rules=server_rules(LINK))
    assert server.interrupts == []


def test_a_policy_that_names_no_candidate_is_refused() -> None:
    instance = small([STANDARD, URGENT])
    server = InterruptServer(instance, Policy("heuristic", "wrong", "pause", lambda view: (view.urgent, PAUSE)), LINK)
    with pytest.raises(ValueError, match="no candidate"):
        simulate(instance, server, rules=server_rules(LINK))


# Policies, each asked directly.


def view(*, kv: tuple[int, ...], remaining: tuple[int, ...], priorities: tuple[int, ...], kv_used: float = 0.5,
         probability: float = 1.0, urgent_outputs: int = 10) -> View:  # fmt: skip
    """Requests with these KVs and remaining tokens are decoding; the last request is the urgent one."""
    requests = [Request(m, r + 1, 0, p) for m, r, p in zip(kv, remaining, priorities, strict=True)]
    instance = small([*requests, Request(20, urgent_outputs, 0, 0)], slots=len(kv), kv=100_000)
    state = State(instance, COST)
    for i, m in enumerate(kv):
        state.kv[i], state.generated[i], state.ready[i] = m, 1, True
    n = len(kv)
    return View(state, LINK, n, range(n), range(n), False, kv_used, probability)


def test_choices_of_each_policy() -> None:
    v = view(kv=(300, 100, 200), remaining=(5, 40, 90), priorities=(1, 2, 1))
    choose = {name: load_policy(name).choose for name in policy_names()}
    assert choose["no_preemption"](v) is None
    assert choose["oldest_checkpoint"](v) == (0, CHECKPOINT)
    assert choose["oldest_recompute"](v) == (0, RECOMPUTE)
    assert choose["oldest_pause"](v) == (0, PAUSE)
    assert choose["longest_remaining_checkpoint"](v) == (2, CHECKPOINT)
    assert choose["best_effort_first_checkpoint"](v) == (1, CHECKPOINT)
    assert choose["srf_recompute"](v) == (1, RECOMPUTE)


@pytest.mark.parametrize(("kv_used", "expected"), [(0.75, None), (0.76, (0, CHECKPOINT))])
def test_kv_pressure_interrupts_above_three_quarters_only(kv_used: float, expected: object) -> None:
    v = view(kv=(300, 100), remaining=(5, 40), priorities=(1, 1), kv_used=kv_used)
    assert load_policy("kv_pressure_checkpoint").choose(v) == expected


def test_cost_aware_turns_from_checkpoint_to_recompute_as_victims_stay_away() -> None:
    def mechanism(probability: float) -> object:
        v = view(kv=(800,), remaining=(50,), priorities=(1,), probability=probability)
        return load_policy("cost_aware").choose(v)

    assert mechanism(1.0) == (0, CHECKPOINT)
    assert mechanism(0.1) == (0, RECOMPUTE)


def test_oracle_waits_where_a_completion_is_near_and_interrupts_where_it_is_far() -> None:
    near = view(kv=(300, 300), remaining=(1, 400), priorities=(1, 1))
    far = view(kv=(300, 300), remaining=(400, 400), priorities=(1, 1))
    assert load_policy("oracle_preemption").choose(near) is None
    assert load_policy("oracle_preemption").choose(far) is not None


@pytest.mark.parametrize("policy", policy_names())
def test_nobody_to_interrupt_means_waiting(policy: str) -> None:
    v = view(kv=(300,), remaining=(40,), priorities=(1,), kv_used=0.9)
    nobody = View(v.state, v.link, v.urgent, [], v.running, True, 0.9, 1.0)
    assert load_policy(policy).choose(nobody) is None


# Contract: every policy on every workload, and on random small instances.


@pytest.mark.parametrize("policy", policy_names())
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_policy_on_every_workload(workload: str, policy: str) -> None:
    drawn = draw(workload, 3, requests=40)
    run = run_policy(drawn, policy)
    again = run.simulation.replay
    assert run.simulation.stalled == () and run.simulation.infeasible == ()
    replayed = replay(drawn.instance, again.schedule, rules=server_rules(LINK))
    assert replayed.makespan_ticks == again.makespan_ticks
    for event in run.interrupts:
        assert drawn.instance.requests[event.request].priority > drawn.instance.requests[event.for_request].priority
        assert event.kv_tokens == drawn.instance.requests[event.request].input_tokens + event.generated - 1
    outcome = measure(run)
    assert sum(c.requests for c in outcome.classes) == 40
    assert outcome.abandoned == sum(t is None for t in again.completed_ticks)
    assert outcome.overhead_ms >= 0 and 0 <= outcome.value_score <= 1
    if policy == "no_preemption":
        assert outcome.interrupts == 0


REQUESTS = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 12), st.integers(0, 60), st.integers(0, 2)), min_size=2, max_size=7
)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS, st.integers(1, 3), st.integers(41, 90), st.integers(1, 40), st.sampled_from(policy_names()),
       st.booleans())  # fmt: skip
def test_nobody_starves(
    rows: list[tuple[int, int, int, int]], slots: int, kv: int, budget: int, policy: str, leaves: bool
) -> None:
    requests = [Request(i, o, arrival * 10**6, p) for i, o, arrival, p in rows]
    instance = small(requests, slots=slots, kv=kv, budget=max(budget, slots))
    run = run_small(instance, policy, ((not leaves, True),) * len(requests))
    assert run.simulation.stalled == ()
    done = run.simulation.replay.completed_ticks
    assert sum(t is None for t in done) == sum(not event.resumes for event in run.interrupts)
    if policy == "no_preemption":
        assert not run.interrupts


# Workloads and constants.


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_seed_is_a_workload(name: str) -> None:
    assert draw(name, 1) == draw(name, 1)
    assert draw(name, 1).instance != draw(name, 2).instance


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_arrive_at_their_load_with_their_shares(name: str) -> None:
    workload, drawn = load_workload(name), draw(name, 5, requests=4000)
    requests = drawn.instance.requests
    span_ms = busy_ms(requests, workload.kv_capacity_tokens, COST) / workload.load
    assert span_ms * 0.99 < requests[-1].arrival_ns / 1e6 <= span_ms
    assert np.median([r.arrival_ns / 1e6 for r in requests]) == pytest.approx(span_ms / 2, rel=0.05)
    for traffic in workload.traffic:
        share = sum(r.priority == traffic.priority for r in requests) / len(requests)
        assert share == pytest.approx(traffic.share, abs=0.03)
    resumed = sum(map(sum, drawn.resumes)) / (len(requests) * len(drawn.resumes[0]))
    assert resumed == pytest.approx(workload.resume_probability, abs=0.01)
    assert drawn.instance.infeasible() == ()
    assert all(r.input_tokens + r.output_tokens <= constants.CONTEXT_TOKENS for r in requests)


def test_the_long_tail_is_heavier() -> None:
    def share_of_longest(name: str) -> float:
        outputs = sorted((r.output_tokens for r in draw(name, 1, requests=4000).instance.requests), reverse=True)
        return sum(outputs[:40]) / sum(outputs)

    assert share_of_longest("long_decode_tail") > 2 * share_of_longest("high_resume_prob")


def test_constants_follow_from_their_sources() -> None:
    assert constants.KV_BYTES_PER_TOKEN == 2 * 32 * 32 * 128 * 2
    assert constants.KV_CAPACITY_TOKENS == (36_000_000_000 - 2 * 6_738_415_616) // 524_288
    assert constants.MAX_NUM_SEQS == 10
    one_mb = constants.transfer_ms_per_mb()
    link = constants.swap_link()
    assert link.ticks_per_kv_token / 1e11 == pytest.approx(constants.KV_BYTES_PER_TOKEN / 1e6 * one_mb, rel=1e-6)
    assert link.latency_ticks == TICKS_PER_NS * 10_000
