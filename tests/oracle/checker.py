"""A second opinion on schedules: refuses or times one from the per-request actions of this package."""

from __future__ import annotations

import random
from collections import Counter

from sim.cost import CostModel, load_cost_model
from sim.instance import Instance
from sim.schedule import Batch, Schedule
from tests.oracle.cost import batch_ticks
from tests.oracle.slots import FRESH, Action, Limits, Slot, actions

TICKS_PER_NS = 10**5


def makespan(instance: Instance, schedule: Schedule, limits: Limits, cost: CostModel | None = None) -> int | None:
    """End of the last batch in ticks, or None if the schedule breaks a rule."""
    cost = cost or load_cost_model(instance.cost_model)
    slots: list[Slot | None] = [FRESH] * len(instance.requests)
    now = 0
    for batch in schedule.batches:
        chosen = _chosen(instance, slots, batch, limits)
        if chosen is None or not _fits(instance, list(chosen.values()), limits):
            return None
        arrivals = [
            instance.requests[i].arrival_ns * TICKS_PER_NS
            for i, action in chosen.items()
            if action.tokens or "swap-in" in action.what
        ]
        earliest = max([now, *arrivals])
        if batch.start_ns is None or batch.start_ns == -(-earliest // TICKS_PER_NS):
            now = earliest
        elif batch.start_ns * TICKS_PER_NS >= earliest:
            now = batch.start_ns * TICKS_PER_NS
        else:
            return None
        now += duration(cost, list(chosen.values()), limits)
        for i, action in chosen.items():
            slots[i] = action.after
    return now if all(slot is None for slot in slots) else None


def duration(cost: CostModel, chosen: list[Action], limits: Limits) -> int:
    """Ticks of a batch, transfers included."""
    total = {name: sum(getattr(action, name) for action in chosen) for name in Action._fields[1:-1]}
    compute = batch_ticks(cost, total["prefill"], total["decode"], total["tokens"], total["square"],
                          total["prefill_reads"], total["decode_reads"])  # fmt: skip
    overlap = limits.swap is not None and limits.swap.overlap
    return max(compute, total["transfer"]) if overlap else compute + total["transfer"]


def _chosen(instance: Instance, slots: list[Slot | None], batch: Batch, limits: Limits) -> dict[int, Action] | None:
    """What each unfinished request does, or None if some request cannot do what the batch says."""
    tokens = dict(batch.process)
    words = {"preempt": batch.preempt, "swap-out": batch.swap_out, "swap-in": batch.swap_in}
    named = [i for i, _ in batch.process] + [i for indices in words.values() for i in indices]
    for i, times in Counter(named).items():
        if slots[i] is None or times > (2 if i in tokens and i in batch.swap_in else 1):
            return None
    if batch.abandon:
        return None
    chosen = {}
    for i, slot in enumerate(slots):
        if slot is None:
            continue
        does = [word for word, indices in words.items() if i in indices]
        does += ["process"] if i in tokens else ["hold"] if not does or does == ["swap-in"] else []
        request = instance.requests[i]
        menu = actions(request.input_tokens, request.output_tokens, slot, limits, instance.token_budget)
        match = [a for a in menu if a.what == "+".join(does) and a.tokens == tokens.get(i, 0)]
        if len(match) != 1:
            return None
        chosen[i] = match[0]
    return chosen


def _fits(instance: Instance, chosen: list[Action], limits: Limits) -> bool:
    busy = sum(action.tokens > 0 for action in chosen)
    blocks = sum(-(-action.kv_after // instance.block_size) for action in chosen)
    mixed = any(a.prefill for a in chosen) and any(a.decode for a in chosen)
    return (
        0 < sum(action.tokens for action in chosen) <= instance.token_budget
        and blocks <= instance.kv_capacity_tokens // instance.block_size
        and (instance.max_num_seqs is None or busy <= instance.max_num_seqs)
        and (limits.hybrid or not mixed)
    )


def random_schedule(instance: Instance, limits: Limits, rng: random.Random, most_batches: int = 60) -> Schedule | None:
    """A valid schedule made of random batches; None if none was completed within ``most_batches``."""
    slots: list[Slot | None] = [FRESH] * len(instance.requests)
    batches: list[Batch] = []
    while any(slot is not None for slot in slots):
        if len(batches) == most_batches:
            return None
        for _ in range(200):
            chosen = {}
            for i, slot in enumerate(slots):
                if slot is not None:
                    r = instance.requests[i]
                    menu = actions(r.input_tokens, r.output_tokens, slot, limits, instance.token_budget)
                    busy = [a for a in menu if a.tokens]
                    chosen[i] = rng.choice(busy if busy and rng.random() < 0.6 else menu) if menu else None
            if None not in chosen.values() and _fits(instance, list(chosen.values()), limits):  # type: ignore[arg-type]
                break
        else:
            return None
        process, lists = [], {"preempt": [], "swap-out": [], "swap-in": []}  # type: ignore[var-annotated]
        for i, action in chosen.items():
            assert action is not None
            slots[i] = action.after
            if action.tokens:
                process.append((i, action.tokens))
            for word in action.what.split("+"):
                if word in lists:
                    lists[word].append(i)
        rng.shuffle(process)
        batches.append(Batch(tuple(process), tuple(lists["preempt"]), None, tuple(lists["swap-out"]),
                             tuple(lists["swap-in"])))  # fmt: skip
    return Schedule(tuple(batches))
