"""The rules module: every rule is broken by a schedule that breaks nothing else, and timing is checked by hand and by
the independent search."""

from __future__ import annotations

import random
from dataclasses import replace as changed
from fractions import Fraction

import pytest

from sim.clock import TICKS_PER_NS, ns_from_ticks, ticks_from_ms
from sim.cost import CostModel, Features, OperatorGroup, load_cost_model
from sim.instance import Instance, Request, load_instance
from sim.replay import ENGINE_RULES, Replay, RuleError, Rules, State, SwapLink, replay
from sim.schedule import Batch, Schedule, load_schedule, schedule_from_dict, schedule_to_dict
from tests.oracle import Limits, Swap, optimum
from tests.oracle.checker import makespan, random_schedule

A, B = 0, 1
TWO = Instance((Request(3, 2), Request(2, 2)), kv_capacity_tokens=7, token_budget=5)
VALID = (Batch(((A, 3), (B, 2))), Batch(((A, 1), (B, 1))))
LINK = SwapLink(ticks_from_ms("0.01"), ticks_from_ms("0.001"))


def unit_cost(**coefficients: int) -> CostModel:
    """A cost model in whole milliseconds."""
    piece = tuple(ticks_from_ms(coefficients.get(f, 0)) for f in Features._fields)
    return CostModel("test", "linear", 1, (OperatorGroup("all", (piece,)),))


def run(*batches: Batch, instance: Instance = TWO, rules: Rules | None = None, **options: object) -> Replay:
    return replay(instance, Schedule(batches), rules=rules or Rules(), **options)  # type: ignore[arg-type]


FIRST = VALID[0]
FILL_A, FILL_B = Batch(((A, 3),)), Batch(((B, 2),))
SLOT = TWO.replace(max_num_seqs=1)
TIGHT = TWO.replace(kv_capacity_tokens=6)
LATE = TWO.replace(requests=(Request(3, 2), Request(2, 2, arrival_ns=500)))
SWAP = Rules(swap=LINK)

BROKEN = [
    ("one-action", 0, A, TWO, (Batch(((A, 1), (A, 2))),), Rules()),
    ("one-action", 1, A, TWO, (FIRST, Batch(((A, 1),), (A,))), Rules()),
    ("one-action", 1, B, TWO, (FIRST, Batch(((A, 1),), (B, B))), Rules()),
    ("complete", 2, A, TWO, (*VALID, Batch(((A, 1),))), Rules()),
    ("complete", 2, B, TWO, (FIRST, Batch(((B, 1),)), Batch(((A, 1),), (B,))), Rules()),
    ("tokens", 0, A, TWO, (Batch(((A, 4),)),), Rules()),
    ("tokens", 0, B, TWO, (Batch(((A, 3), (B, 0))),), Rules()),
    ("tokens", 0, B, TWO, (Batch(((B, -1),)),), Rules()),
    ("tokens", 1, A, TWO, (FIRST, Batch(((A, 2), (B, 1)))), Rules()),
    ("non-empty", 0, None, TWO, (Batch(()), *VALID), Rules()),
    ("non-empty", 1, None, TWO, (FIRST, Batch((), (A,))), Rules()),
    ("preempt-resident", 0, B, TWO, (Batch(((A, 3),), (B,)),), Rules()),
    ("token-budget", 0, None, TWO.replace(token_budget=4), (FIRST,), Rules()),
    ("max-num-seqs", 0, None, SLOT, (FIRST,), Rules()),
    ("kv-capacity", 1, None, TIGHT, VALID, Rules()),
    ("kv-capacity", 0, None, TIGHT.replace(block_size=4), (FIRST,), Rules()),
    ("no-preemption", 1, A, TWO, (FIRST, Batch(((B, 1),), (A,))), Rules(preemption=False)),
    ("no-chunking", 0, A, TWO, (Batch(((A, 2),)),), Rules(chunking=False)),
    ("no-hybrid", 1, None, TWO, (FILL_A, Batch(((A, 1), (B, 2)))), Rules(hybrid=False)),
    ("no-swap", 1, A, TWO, (FILL_A, Batch(((B, 2),), swap_out=(A,))), Rules()),
    ("no-swap", 1, A, TWO, (FILL_A, Batch(((B, 2),), swap_in=(A,))), Rules()),
    ("swap-resident", 0, B, TWO, (Batch(((A, 3),), swap_out=(B,)),), SWAP),
    ("swap-host", 1, A, TWO, (FILL_A, Batch(((A, 1),), swap_in=(A,))), SWAP),
    ("swap-host", 2, A, TWO, (FILL_A, Batch(((B, 2),), swap_out=(A,)), Batch(((A, 1),))), SWAP),
    ("swap-host", 2, A, TWO, (FILL_A, Batch(((B, 2),), swap_out=(A,)), Batch(((B, 1),), swap_in=(A, A))), SWAP),
    ("swap-host", 1, A, TWO, (FILL_A, Batch(((B, 2),), swap_out=(A,), swap_in=(A,))), SWAP),
    ("one-action", 1, A, TWO, (FILL_A, Batch(((A, 1),), swap_out=(A,))), SWAP),
    ("one-action", 1, A, TWO, (FILL_A, Batch(((B, 2),), (A,), swap_out=(A,))), SWAP),
    ("no-abandon", 1, A, TWO, (FILL_A, Batch(((B, 2),), abandon=(A,))), Rules()),
    ("complete", 2, A, TWO, (FILL_A, Batch(((B, 2),), abandon=(A,)), Batch(((A, 1),))), Rules(abandon=True)),
    ("order", 1, None, TWO, (FIRST, changed(VALID[1], start_ns=5)), Rules()),
    ("arrival", 0, B, LATE, (changed(FIRST, start_ns=499), VALID[1]), Rules()),
    ("termination", None, B, TWO, (FIRST, Batch(((A, 1),))), Rules()),
    ("termination", None, A, TWO, (), Rules()),
    ("request", 0, 2, TWO, (Batch(((2, 1),)),), Rules()),
    ("request", 0, -1, TWO, (Batch(((-1, 2),)),), Rules()),
    ("request", 1, 7, TWO, (FIRST, Batch(((A, 1),), (7,))), Rules()),
    ("request", 1, 9, TWO, (FIRST, Batch(((A, 1),), swap_in=(9,))), SWAP),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "batch", "request_", "instance", "batches", "rules"), BROKEN,
                         ids=[f"{case[0]}-{number}" for number, case in enumerate(BROKEN)])  # fmt: skip
def test_each_rule_is_named(
    rule: str, batch: int | None, request_: int | None, instance: Instance, batches: tuple[Batch, ...], rules: Rules
) -> None:
    with pytest.raises(RuleError) as caught:
        run(*batches, instance=instance, rules=rules)
    assert (caught.value.rule, caught.value.batch, caught.value.request) == (rule, batch, request_)
    text = str(caught.value)
    assert f"[rule: {rule}]" in text
    assert batch is None or f"batch {batch}" in text
    assert request_ is None or f"request {request_}" in text
    assert "\n" not in text


RELAXED = [
    ("preemption", (FIRST, Batch(((B, 1),), (A,)), Batch(((A, 4),)))),
    ("chunking", (Batch(((A, 2), (B, 2))), Batch(((A, 1), (B, 1))), Batch(((A, 1),)))),
    ("hybrid", (FILL_A, Batch(((A, 1), (B, 2))), Batch(((B, 1),)))),
]


@pytest.mark.parametrize(("switch", "batches"), RELAXED, ids=[case[0] for case in RELAXED])
def test_switches_forbid_exactly_what_they_name(switch: str, batches: tuple[Batch, ...]) -> None:
    run(*batches)
    with pytest.raises(RuleError, match=f"no-{switch}"):
        run(*batches, rules=Rules(**{switch: False}))


def test_engine_rules_accept_batches_that_process_nothing() -> None:
    empty = run(FIRST, Batch((), (A,)), Batch(((B, 1),)), Batch(((A, 4),)), rules=ENGINE_RULES)
    assert empty.records[1].start_ticks == empty.records[1].end_ticks
    assert empty.preemptions == (1, 0)
    assert empty.records[1].preempted == ((A, 3),)


def test_limits_are_inclusive() -> None:
    run(*VALID, instance=TWO.replace(token_budget=5, kv_capacity_tokens=7, max_num_seqs=2))
    # Five blocks of four tokens: 3 and 2 KVs take one each.
    run(*VALID, instance=TWO.replace(kv_capacity_tokens=9, block_size=4))


def test_blocks_round_the_capacity_down() -> None:
    fits = Instance((Request(4, 1), Request(4, 1)), 8, block_size=4)
    run(Batch(((A, 4), (B, 4))), instance=fits)
    with pytest.raises(RuleError, match="1 blocks of 4"):
        run(Batch(((A, 4), (B, 4))), instance=fits.replace(kv_capacity_tokens=7))


def test_kvs_of_a_complete_request_are_free_in_the_next_batch() -> None:
    instance = Instance((Request(4, 1), Request(4, 1)), 4)
    done = run(Batch(((A, 4),)), Batch(((B, 4),)), instance=instance)
    assert [r.kv_tokens for r in done.records] == [4, 4]
    with pytest.raises(RuleError, match="kv-capacity"):
        run(Batch(((A, 4), (B, 1))), Batch(((B, 3),)), instance=instance)


def test_decode_prefill_and_refill_are_told_apart() -> None:
    instance = Instance((Request(3, 3),), 6)
    steps = (Batch(((A, 2),)), Batch(((A, 1),)), Batch(((A, 1),)))
    told = run(*steps, instance=instance, complete=False)
    assert [r.entries[0].kind for r in told.records] == ["prefill", "prefill", "decode"]
    assert [r.entries[0].generates for r in told.records] == [False, True, True]
    # After an eviction prompt and generated tokens are filled together; a last chunk of one token is no decode step.
    other = Instance((Request(3, 3), Request(1, 2)), 6)
    refill = run(Batch(((A, 3), (B, 1))), Batch(((B, 1),), (A,)), Batch(((A, 3),)), Batch(((A, 1),)), Batch(((A, 1),)),
                 instance=other)  # fmt: skip
    assert [e.kind for r in refill.records for e in r.entries if e.request == A] == [
        "prefill",
        "refill",
        "refill",
        "decode",
    ]
    assert refill.refilled_tokens == (3, 0)
    assert refill.preemptions == (1, 0)


def test_features_by_hand() -> None:
    instance = Instance((Request(3, 2), Request(4, 1)), 20)
    record = run(Batch(((A, 3), (B, 1))), Batch(((A, 1), (B, 2))), Batch(((B, 1),)), instance=instance).records
    assert record[0].features == Features(1, 1, 0, 2, 0, 4, 9 + 1, 0, 0)
    assert record[1].features == Features(1, 1, 1, 1, 1, 3, 4 + 2 * 2 * 1, 1, 3)
    assert record[2].features == Features(1, 1, 0, 1, 0, 1, 1 + 2 * 1 * 3, 3, 0)


def test_times_by_hand() -> None:
    cost = unit_cost(batch=5, prefill_batch=2, decode_batch=1, n_prefill=3, tokens=10, decode_reads=100)
    timed = run(*VALID, cost=cost)
    first, second = 5 + 2 + 6 + 50, 5 + 1 + 20 + 500
    assert [r.end_ticks for r in timed.records] == [ticks_from_ms(first), ticks_from_ms(first + second)]
    assert timed.makespan_ms == first + second
    assert timed.ttft_ticks() == [ticks_from_ms(first)] * 2
    assert timed.e2e_ticks() == [ticks_from_ms(first + second)] * 2
    assert timed.tpot_ticks() == [Fraction(ticks_from_ms(second))] * 2


def test_tpot_of_a_single_token_is_unknown() -> None:
    timed = run(Batch(((A, 3),)), instance=Instance((Request(3, 1),), 3))
    assert timed.tpot_ticks() == [None]


def test_the_first_token_stays_the_first_after_a_preemption() -> None:
    timed = run(FIRST, Batch(((B, 1),), (A,)), Batch(((A, 4),)))
    assert timed.first_token_ticks == (timed.records[0].end_ticks,) * 2
    assert timed.completed_ticks == (timed.records[2].end_ticks, timed.records[1].end_ticks)


class TestArrivals:
    def test_a_batch_waits_for_the_latest_request_it_holds(self) -> None:
        timed = run(*VALID, instance=LATE)
        assert timed.records[0].start_ticks == 500 * TICKS_PER_NS
        assert timed.ttft_ticks()[B] == timed.records[0].end_ticks - 500 * TICKS_PER_NS

    def test_who_is_only_held_does_not_delay_the_others(self) -> None:
        timed = run(FILL_A, Batch(((B, 2), (A, 1))), Batch(((B, 1),)), instance=LATE)
        assert timed.records[0].start_ticks == 0
        assert timed.records[1].start_ticks == timed.records[0].end_ticks

    def test_idle_time_is_kept(self) -> None:
        timed = run(changed(FIRST, start_ns=10**6), VALID[1])
        assert timed.records[0].start_ticks == 10**6 * TICKS_PER_NS
        assert timed.records[1].start_ticks == timed.records[0].end_ticks

    def test_a_start_rounded_up_to_its_nanosecond_is_back_to_back(self) -> None:
        plain = run(*VALID)
        starts = [start for start, _ in plain.times_ns]
        assert plain.records[0].end_ticks % TICKS_PER_NS
        again = run(*(changed(b, start_ns=s) for b, s in zip(VALID, starts, strict=True)))
        assert again.records == plain.records

    def test_moving_all_arrivals_moves_the_schedule(self) -> None:
        by = 12_345
        moved = TWO.replace(requests=tuple(changed(r, arrival_ns=by) for r in TWO.requests))
        plain, later = run(*VALID), run(*VALID, instance=moved)
        assert later.makespan_ticks - plain.makespan_ticks == by * TICKS_PER_NS
        assert later.e2e_ticks() == plain.e2e_ticks()


class TestSwap:
    OUT = (FILL_A, Batch(((B, 2),), swap_out=(A,)), Batch(((A, 1), (B, 1)), swap_in=(A,)))

    def test_transfers_are_serial_with_the_batch(self) -> None:
        cost = unit_cost(batch=1)
        timed = run(*self.OUT, rules=SWAP, cost=cost)
        moved = ticks_from_ms("0.01") + 3 * ticks_from_ms("0.001")
        lengths = [r.end_ticks - r.start_ticks for r in timed.records]
        assert lengths == [ticks_from_ms(1), ticks_from_ms(1) + moved, ticks_from_ms(1) + moved]

    def test_overlapped_transfers_cost_the_longer_of_the_two(self) -> None:
        slow = SwapLink(ticks_from_ms(2), 0, overlap=True)
        timed = run(*self.OUT, rules=Rules(swap=slow), cost=unit_cost(batch=1))
        assert [r.end_ticks - r.start_ticks for r in timed.records] == [ticks_from_ms(m) for m in (1, 2, 2)]

    def test_a_swapped_request_decodes_where_it_stopped(self) -> None:
        timed = run(*self.OUT, rules=SWAP)
        assert timed.records[2].entries[0].kind == "decode"
        assert timed.preemptions == (0, 0)
        assert timed.refilled_tokens == (0, 0)

    def test_a_partial_fill_survives_a_swap(self) -> None:
        batches = (Batch(((A, 2),)), Batch(((B, 2),), swap_out=(A,)), Batch(((A, 1), (B, 1)), swap_in=(A,)),
                   Batch(((A, 1),)))  # fmt: skip
        kinds = [e.kind for r in run(*batches, rules=SWAP).records for e in r.entries if e.request == A]
        assert kinds == ["prefill", "prefill", "decode"]

    def test_host_kvs_take_no_gpu_memory(self) -> None:
        instance = TWO.replace(kv_capacity_tokens=4)
        batches = (FILL_A, Batch(((B, 2),), swap_out=(A,)), Batch(((B, 1),)), Batch(((A, 1),), swap_in=(A,)))
        assert [r.kv_tokens for r in run(*batches, instance=instance, rules=SWAP).records] == [3, 2, 3, 4]

    def test_host_kvs_can_be_dropped(self) -> None:
        batches = (FILL_A, Batch(((B, 2),), swap_out=(A,)), Batch(((B, 1),), (A,)), Batch(((A, 4),)))
        timed = run(*batches, rules=SWAP)
        assert timed.preemptions == (1, 0)
        assert timed.refilled_tokens == (3, 0)
        assert timed.records[3].entries[0].kind == "refill"

    def test_swapping_in_counts_against_the_capacity(self) -> None:
        batches = (FILL_A, Batch(((B, 2),), swap_out=(A,)), Batch(((B, 1),), swap_in=(A,)))
        with pytest.raises(RuleError, match="kv-capacity"):
            run(*batches, instance=TWO.replace(kv_capacity_tokens=5), rules=SWAP)


def test_abandoned_requests_leave_and_count_apart() -> None:
    left = run(FIRST, Batch(((B, 1),), abandon=(A,)), rules=Rules(abandon=True))
    assert left.completed_ticks[A] is None
    assert left.completed_ticks[B] == left.makespan_ticks
    assert left.records[1].kv_tokens == 3
    assert left.e2e_ticks()[A] is None and left.tpot_ticks()[A] is None


def test_work_lost_before_the_first_token_counts_as_refilled() -> None:
    """Two of A's tokens are filled, dropped and filled again; then it is left unfinished."""
    batches = (Batch(((A, 2),)), Batch(((B, 2),), (A,)), Batch(((A, 1), (B, 1))), Batch(((A, 1),)))
    assert run(*batches, complete=False).refilled_tokens == (2, 0)
    assert run(*batches, Batch(((A, 1),)), Batch(((A, 1),))).refilled_tokens == (2, 0)


class TestFiles:
    def test_round_trip(self) -> None:
        best = optimum(load_instance("paper-7.2-i0008"), limits=Limits(chunking=False))
        assert best is not None
        instance = load_instance("paper-7.2-i0008")
        timed = replay(instance, best.schedule)
        data = schedule_to_dict(best.schedule, instance, timed.times_ns)
        schedule, claimed = schedule_from_dict(data, instance, "x.json")
        again = replay(instance, schedule, claimed_ns=claimed)
        assert again.records == timed.records
        assert [b.process for b in schedule.batches] == [b.process for b in best.schedule.batches]

    def test_swap_and_abandon_lists_survive(self) -> None:
        rules = Rules(swap=LINK, abandon=True)
        batches = (FILL_A, Batch(((B, 2),), swap_out=(A,)), Batch(((B, 1),), abandon=(A,)))
        timed = run(*batches, rules=rules)
        data = schedule_to_dict(timed.schedule, TWO, timed.times_ns)
        schedule, claimed = schedule_from_dict(data, TWO, "x.json")
        assert replay(TWO, schedule, rules=rules, claimed_ns=claimed).records == timed.records

    @pytest.mark.parametrize(("batch", "which", "by"), [(0, 1, 1), (1, 1, -1), (1, 1, 1)])
    def test_a_wrong_end_is_named(self, batch: int, which: int, by: int) -> None:
        timed = run(*VALID)
        claimed = [list(t) for t in timed.times_ns]
        claimed[batch][which] += by
        with pytest.raises(RuleError) as caught:
            run(*VALID, claimed_ns=[tuple(t) for t in claimed])
        assert (caught.value.rule, caught.value.batch) == ("times", batch)

    def test_a_result_file_holds_its_schedule(self, tmp_path: object) -> None:
        import json
        from pathlib import Path

        timed = run(*VALID)
        path = Path(str(tmp_path)) / "result.json"
        path.write_text(
            json.dumps(
                {"status": "OPTIMAL", "batches": 2, "schedule": schedule_to_dict(timed.schedule, TWO, timed.times_ns)}
            )
        )
        schedule, _ = load_schedule(path, TWO)
        assert replay(TWO, schedule).makespan_ticks == timed.makespan_ticks


def a_schedule(instance: Instance, limits: Limits, rng: random.Random) -> Schedule:
    """The first random walk that finishes."""
    return next(s for s in (random_schedule(instance, limits, rng) for _ in range(1000)) if s is not None)


def random_case(seed: int) -> tuple[Instance, Limits, Rules, random.Random]:
    rng = random.Random(seed)
    requests = tuple(
        Request(rng.randint(1, 6), rng.randint(1, 4), rng.choice([0, 0, rng.randint(1, 5) * 10**6]))
        for _ in range(rng.randint(1, 4))
    )
    block = rng.choice([1, 1, 2, 4])
    capacity = max(r.peak_kv_tokens for r in requests) + block + rng.randint(0, 8)
    budget = rng.choice([6, 9, 4096])
    chunking, hybrid, preemption = budget < 9 or rng.random() < 0.7, rng.random() < 0.8, rng.random() < 0.8
    link = rng.choice([None, None, (ticks_from_ms("0.4"), 7_654_321, False), (ticks_from_ms("0.9"), 3, True)])
    limits = Limits(preemption, chunking, hybrid, swap=link and Swap(*link))
    rules = Rules(preemption=preemption, chunking=chunking, hybrid=hybrid, swap=link and SwapLink(*link))
    instance = Instance(requests, capacity, budget, max_num_seqs=rng.choice([None, None, 2]), block_size=block)
    return instance, limits, rules, rng


@pytest.mark.parametrize("name", ["linear/llama2-7b-a100", "linear/llama3-70b-4xa100"])
@pytest.mark.parametrize("seed", range(60))
def test_random_schedules_take_the_time_an_independent_checker_says(seed: int, name: str) -> None:
    instance, limits, rules, rng = random_case(seed)
    cost = load_cost_model(name)
    schedule = a_schedule(instance, limits, rng)
    assert replay(instance, schedule, rules=rules, cost=cost).makespan_ticks == makespan(
        instance, schedule, limits, cost
    )


def mutate(batches: list[Batch], n: int, rng: random.Random) -> list[Batch]:
    """A schedule with one thing changed: an entry, a victim, a batch, the order, a start."""
    j = rng.randrange(len(batches))
    batch = batches[j]
    process, preempt = list(batch.process), list(batch.preempt)
    kind = rng.randrange(9)
    if kind == 0 and process:
        e = rng.randrange(len(process))
        process[e] = (process[e][0], process[e][1] + rng.choice([-1, 1]))
    elif kind == 1 and process:
        process.pop(rng.randrange(len(process)))
    elif kind == 2:
        process.append((rng.randrange(n), rng.randint(1, 3)))
    elif kind == 3:
        preempt.append(rng.randrange(n))
    elif kind == 4 and preempt:
        preempt.pop()
    elif kind == 5 and process:
        e = rng.randrange(len(process))
        process[e] = (rng.randrange(n), process[e][1])
    elif kind == 6:
        return batches[:j] + batches[j + 1 :]
    elif kind == 7:
        k = rng.randrange(len(batches))
        swapped = list(batches)
        swapped[j], swapped[k] = swapped[k], swapped[j]
        return swapped
    elif kind == 8:
        return [*batches[:j], changed(batch, start_ns=rng.randrange(0, 30 * 10**6)), *batches[j + 1 :]]
    return [*batches[:j], changed(batch, process=tuple(process), preempt=tuple(preempt)), *batches[j + 1 :]]


@pytest.mark.parametrize("seed", range(60))
def test_mutated_schedules_are_refused_or_timed_anew(seed: int) -> None:
    """Rules module and independent checker agree on every mutant: both refuse it, or both give it the same time."""
    instance, limits, rules, rng = random_case(1000 + seed)
    schedule = a_schedule(instance, limits, rng)
    refused = 0
    for _ in range(40):
        mutant = Schedule(tuple(mutate(list(schedule.batches), len(instance.requests), rng)))
        expected = makespan(instance, mutant, limits)
        try:
            ours: int | None = replay(instance, mutant, rules=rules).makespan_ticks
        except RuleError:
            ours = None
        assert ours == expected
        refused += ours is None
    assert refused


def test_state_counts_match_the_records() -> None:
    instance = load_instance("paper-7.2-i0008")
    best = optimum(instance, limits=Limits(chunking=False))
    assert best is not None
    state = State(instance, load_cost_model(instance.cost_model))
    for batch in best.schedule.batches:
        record = state.apply(batch)
        assert state.kv_tokens == sum(state.kv) == record.kv_tokens <= instance.kv_capacity_tokens
    assert state.unfinished == 0
    assert ns_from_ticks(state.now_ticks) == ns_from_ticks(int(best.value))
