"""The prefix-aware scheduler and disaggregated serving."""

import numpy as np
import pytest

from sim.disaggregation import Pools, simulate_disaggregated
from sim.engine import simulate
from sim.errors import InputError
from sim.instance import Instance, Request
from sim.replay import ENGINE_RULES, Rules, SwapLink, replay

SHARING = Rules(allow_empty=True, prefix_sharing=True)


def answers(prompts: int, each: int, kv_capacity: int, seed: int = 0) -> Instance:
    """One prompt, several answers."""
    rng = np.random.default_rng(seed)
    requests = []
    for group in range(prompts):
        tokens = int(rng.integers(50, 200))
        outputs = rng.integers(20, 150, size=each)
        requests += [Request(tokens, int(o), prefix=f"p{group}", prefix_tokens=tokens - 1) for o in outputs]
    return Instance(tuple(requests), kv_capacity)


@pytest.mark.parametrize("victim", ["nrf", "srf", "longest"])
@pytest.mark.parametrize("kv_capacity", [400, 1500, 100_000])
def test_every_answer_is_finished_and_the_schedule_replays(victim: str, kv_capacity: int) -> None:
    instance = answers(6, 5, kv_capacity)
    run = simulate(instance, f"sglang_{victim}", rules=SHARING)
    assert not run.stalled
    again = replay(instance, run.replay.schedule, rules=SHARING)
    assert again.makespan_ticks == run.replay.makespan_ticks


def test_sharing_saves_prefill_tokens_and_time() -> None:
    instance = answers(6, 5, 100_000)
    alone, shared = (simulate(instance, "sglang", rules=rules).replay for rules in (ENGINE_RULES, SHARING))
    tokens = [sum(record.features.tokens for record in r.records) for r in (alone, shared)]
    saved = sum(4 * group[0].prefix_tokens for group in zip(*[iter(instance.requests)] * 5, strict=True))
    assert tokens[0] - tokens[1] == saved
    assert shared.makespan_ticks < alone.makespan_ticks


def test_unused_prefixes_are_dropped_for_room_least_recently_used_first() -> None:
    requests = tuple(Request(40, 2, prefix=f"p{i}", prefix_tokens=39) for i in range(4))
    run = simulate(Instance(requests, 90), "sglang", rules=SHARING)
    assert not run.stalled
    dropped = [name for batch in run.replay.schedule.batches for name in batch.drop_prefix]
    assert dropped == sorted(dropped) and dropped


def test_its_own_admission_cannot_be_replaced() -> None:
    with pytest.raises(InputError, match="victim rule only"):
        simulate(answers(1, 1, 1000), "sglang_pf")


@pytest.mark.parametrize(("scheduler", "offload"), [("sarathi_cs", None), ("sarathi_cs_srf_swap", SwapLink(50, 3000))])
def test_disaggregated_pools_finish_everything(scheduler: str, offload: SwapLink | None) -> None:
    rng = np.random.default_rng(1)
    requests = tuple(
        Request(int(i), int(o), arrival_ns=int(a))
        for i, o, a in zip(*rng.integers(1, 120, size=(2, 40)), rng.integers(0, 10**9, 40), strict=True)
    )
    instance = Instance(requests, 400)
    both = simulate_disaggregated(instance, Pools(2, 2, SwapLink(10, 1000), offload), decode_scheduler=scheduler)
    completed = both.completed_ticks()
    assert all(t is not None for t in completed)
    assert max(t for t in completed if t is not None) <= both.makespan_ticks
    assert both.preemptions > 0 or offload is not None
    decoded = sum(len(run.replay.instance.requests) for run in both.decode)
    assert decoded == sum(r.output_tokens > 1 for r in requests)
    first = {i: run.replay.completed_ticks[k] for run, members in zip(both.prefill, both.prefill_requests, strict=True)
             for k, i in enumerate(members)}  # fmt: skip
    for i, end in enumerate(completed):
        start = first[i]
        assert end is not None and start is not None and (end > start) == (requests[i].output_tokens > 1)
