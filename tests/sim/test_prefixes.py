"""Prefix sharing and prefilled requests in the rules module, by hand-made schedules."""

import pytest

from sim.cost import load_cost_model
from sim.cost.model import Features
from sim.instance import Instance, Request
from sim.replay import RuleError, Rules, State, SwapLink, replay
from sim.schedule import Batch, Schedule

COST = load_cost_model("linear/llama2-7b-a100")
SHARING = Rules(prefix_sharing=True)


def pair(kv_capacity: int = 100, block_size: int = 1, **changes: int) -> Instance:
    request = Request(10, 3, prefix="p", prefix_tokens=8)
    return Instance((request, request), kv_capacity, block_size=block_size)


def test_a_later_request_starts_behind_the_resident_prefix() -> None:
    state = State(pair(), COST, SHARING)
    first = state.apply(Batch(((0, 10),)))
    assert (first.kv_tokens, state.own_kv(0), state.remaining_fill(1)) == (10, 2, 2)
    second = state.apply(Batch(((0, 1), (1, 2))))
    assert second.features == Features(1, 1, 1, 1, 1, 3, 2 * 2 + 2 * 2 * 8, 8, 10)
    assert second.kv_tokens == 8 + 3 + 2


def test_computing_the_same_prefix_in_one_batch_costs_twice_and_is_merged() -> None:
    state = State(pair(), COST, SHARING)
    record = state.apply(Batch(((0, 10), (1, 10))))
    assert record.features.tokens == 20
    assert record.kv_tokens == 8 + 2 + 2


def test_without_the_rule_nothing_is_shared() -> None:
    state = State(pair(), COST)
    assert state.apply(Batch(((0, 10), (1, 10)))).kv_tokens == 20


def test_preempting_drops_only_what_is_not_shared_and_the_prefix_stays() -> None:
    state = State(pair(), COST, SHARING)
    state.apply(Batch(((0, 10), (1, 10))))
    record = state.apply(Batch(((0, 1),), preempt=(1,)))
    assert record.preempted == ((1, 2),)
    assert record.kv_tokens == 8 + 3
    assert state.remaining_fill(1) == 3
    refill = state.apply(Batch(((0, 1), (1, 3))))
    assert refill.entries[1].kind == "refill" and refill.entries[1].kv_before == 8


def test_a_cached_prefix_outlives_its_users_until_dropped() -> None:
    schedule = [Batch(((0, 10),)), Batch(((0, 1),)), Batch(((0, 1),))]
    state = State(pair(), COST, SHARING)
    for batch in schedule:
        state.apply(batch)
    state.release_completed()
    assert state.kv_tokens == 8
    kept = state.apply(Batch(((1, 2),)))
    assert kept.features.prefill_reads == 8
    state = State(pair(), COST, SHARING)
    for batch in schedule:
        state.apply(batch)
    again = state.apply(Batch(((1, 10),), drop_prefix=("p",)))
    assert again.features.prefill_reads == 0 and again.kv_tokens == 10


@pytest.mark.parametrize("name", ["p", "q"])
def test_only_a_resident_unused_prefix_can_be_dropped(name: str) -> None:
    state = State(pair(), COST, SHARING)
    state.apply(Batch(((0, 10),)))
    with pytest.raises(RuleError, match="prefix-unused"):
        state.apply(Batch(((0, 1),), drop_prefix=(name,)))


def test_capacity_counts_a_shared_prefix_once_in_whole_blocks() -> None:
    both = Batch(((0, 10), (1, 10)))
    assert State(pair(12), COST, SHARING).apply(both).kv_tokens == 12
    with pytest.raises(RuleError, match="kv-capacity"):
        State(pair(11), COST, SHARING).apply(both)
    assert State(pair(16, 4), COST, SHARING).apply(both).kv_blocks == 2 + 1 + 1


def test_the_last_prompt_token_is_always_a_requests_own() -> None:
    with pytest.raises(ValueError, match="prefix_tokens = 8: must be an integer <= 7"):
        Request(8, 2, prefix="p", prefix_tokens=8)


def test_refilled_tokens_do_not_count_what_was_found() -> None:
    batches = (Batch(((0, 10), (1, 10))), Batch(((0, 1),), preempt=(1,)), Batch(((0, 1), (1, 3))), Batch(((1, 1),)))
    result = replay(pair(), Schedule(batches), rules=SHARING)
    assert result.refilled_tokens == (0, 2)


def test_a_prefilled_request_swaps_its_kvs_in_and_decodes() -> None:
    instance = Instance((Request(10, 3, arrival_ns=1000, prefilled=True),), 100)
    link = SwapLink(7, 3)
    state = State(instance, COST, Rules(receive=link))
    assert state.first_token_ticks[0] == 1000 * 100_000
    record = state.apply(Batch(((0, 1),), swap_in=(0,)))
    compute = COST.batch_ticks(record.features)
    assert record.features.decode_reads == 10
    assert record.end_ticks - record.start_ticks == compute + 7 + 30
    beside = State(instance, COST, Rules(receive=SwapLink(7, 3, overlap=True)))
    record = beside.apply(Batch(((0, 1),), swap_in=(0,)))
    assert record.end_ticks - record.start_ticks == max(compute, 37)


def test_prefilled_kvs_need_a_link() -> None:
    state = State(Instance((Request(10, 3, prefilled=True),), 100), COST)
    with pytest.raises(RuleError, match="no-swap"):
        state.apply(Batch(((0, 1),), swap_in=(0,)))


def test_a_prefilled_request_can_be_preempted_and_refilled_here() -> None:
    instance = Instance((Request(10, 3, prefilled=True),), 100)
    batches = (Batch(((0, 1),), swap_in=(0,)), Batch((), preempt=(0,)), Batch(((0, 12),)))
    result = replay(instance, Schedule(batches), rules=Rules(receive=SwapLink(0, 0), allow_empty=True))
    assert result.refilled_tokens == (11,)


def test_the_fields_survive_a_round_trip_and_are_checked() -> None:
    from sim.errors import InputError
    from sim.instance import instance_from_dict

    instance = Instance((Request(10, 3, prefix="p", prefix_tokens=8), Request(4, 2, prefilled=True)), 100)
    assert instance_from_dict(instance.to_dict()) == instance
    data = instance.to_dict()
    data["requests"].append({"input_tokens": 9, "output_tokens": 1, "prefix": "p", "prefix_tokens": 7})
    with pytest.raises(InputError, match="share prefix 'p' must give the same length"):
        instance_from_dict(data)
    data["requests"][-1] = {"input_tokens": 9, "output_tokens": 1, "prefilled": True}
    with pytest.raises(InputError, match=r"requests\[2\].output_tokens = 1"):
        instance_from_dict(data)
