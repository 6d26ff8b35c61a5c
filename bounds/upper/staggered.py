"""Staggered admission: plans that keep memory full by packing requests backwards from the end.

Each request's KVs only grow until it completes, so seen backwards they only shrink: if the requests that complete in a
batch fit together with those placed before, they fit in all earlier batches too, and one comparison places a request.
Starting from a full last batch, memory stays full back to the first batches. Fills are gathered into one batch out of
``every``, since each batch that prefills pays its fixed charge again; those filled early hold their prompt's KVs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bounds.upper._backward import kernel
from bounds.upper.plan import RANKED_OBJECTIVES, Ints, Plan, value_ticks
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.schedule import Schedule

OBJECTIVES = RANKED_OBJECTIVES
_ROUNDS = 24
"""Groups of arrivals that "latest longest" sorts by length within."""
MAX_HORIZON = 40_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What a plan is made with.

    Parameters
    ----------
    order
        Who is tried first, from the end of the schedule; see `orders`.
    every
        Fills start in one batch out of this many.
    most_hold
        Most batches a request may hold its prompt before decoding.
    rate
        Most area (KVs times batches) that may start, in units of M per batch.
    burst
        Batches' worth of rate that may be saved up.
    first_burst
        Share of M that may complete together in the last batch regardless of the rate.
    most_failures
        Requests tried in vain before going one batch back.
    room
        Tokens of a batch kept free of fills for decode steps, in units of how many requests of mean size fit in M.
    fill_tokens
        Most tokens of fills in a batch; longer prompts are filled in chunks. Spreads fills over batches that are bound
        by memory traffic anyway, where the cost model knows such batches. None for no limit of its own.
    """

    order: str = "longest"
    every: int = 8
    most_hold: int = 7
    rate: float = 1e9
    burst: float = 1.0
    first_burst: float = 1.0
    most_failures: int = 16
    room: float = 1.2
    fill_tokens: int | None = None

    def describe(self) -> str:
        """In a few words, for reports."""
        words = [self.order, f"every {self.every}", f"hold {self.most_hold}"]
        words += [f"rate {self.rate:g}"] if self.rate < 1e6 else []
        words += [f"fills <= {self.fill_tokens}"] if self.fill_tokens is not None else []
        return f"staggered({', '.join(words)})"


def orders(inputs: Ints, outputs: Ints, arrivals: Ints) -> dict[str, Ints]:
    """Orders in which requests are placed, from the end backwards."""
    rounds = np.argsort(np.argsort(arrivals, kind="stable"), kind="stable") * _ROUNDS // len(arrivals)
    area = outputs * inputs + outputs * (outputs - 1) // 2
    return {
        "longest": np.lexsort((-inputs, -outputs)),
        "shortest": np.lexsort((inputs, outputs)),
        "largest": np.lexsort((outputs, -(inputs + outputs))),
        "smallest": np.lexsort((outputs, inputs + outputs)),
        "area": np.argsort(-area, kind="stable"),
        "input": np.lexsort((-outputs, -inputs)),
        "latest": np.lexsort((-outputs, -arrivals)),
        "latest longest": np.lexsort((-outputs, -rounds)),
    }


def plan(instance: Instance, settings: Settings) -> Plan | None:
    """A plan; None if these settings lead to none. Arrivals only matter for the order, batches wait for them."""
    inputs = np.array([r.input_tokens for r in instance.requests], np.int64)
    outputs = np.array([r.output_tokens for r in instance.requests], np.int64)
    arrivals = np.array([r.arrival_ns for r in instance.requests], np.int64)
    order = orders(inputs, outputs, arrivals)[settings.order]
    ranked_in, ranked_out = inputs[order], outputs[order]
    n = len(order)
    seqs = instance.max_num_seqs or n
    area = float(outputs @ inputs + (outputs * (outputs - 1) // 2).sum())
    steps = int(outputs.sum() + (-(-inputs // instance.token_budget)).sum()) + n
    filled = area / max(1, instance.kv_blocks * instance.block_size) + 2 * inputs.sum() / instance.token_budget
    horizon = 4 * int(outputs.max()) + int(2 * filled + steps / seqs) + 8 * settings.every + 200
    running = min(seqs, instance.kv_blocks * instance.block_size * float(outputs.sum()) / area)
    room_tokens = min(instance.token_budget // 2, math.ceil(settings.room * running))
    limit = min(settings.fill_tokens or instance.token_budget, instance.token_budget - room_tokens)
    while horizon <= MAX_HORIZON:
        last, batch, request, tokens, batches = kernel()(
            ranked_in, ranked_out, _group_ends(ranked_in, ranked_out), instance.kv_blocks, instance.block_size,
            instance.token_budget, limit, seqs, settings.every, settings.most_hold, settings.rate, settings.burst,
            settings.first_burst, settings.most_failures, horizon,
        )  # fmt: skip
        if batches >= 0:
            forward = batches - 1 - batch
            by_batch = np.argsort(forward, kind="stable")
            completion = np.empty(n, np.int64)
            completion[order] = batches - 1 - last
            return Plan(inputs, outputs, forward[by_batch], order[request[by_batch]], tokens[by_batch], completion,
                        batches)  # fmt: skip
        if horizon > 2 * steps:
            return None
        horizon *= 3
    return None


def _group_ends(inputs: Ints, outputs: Ints) -> Ints:
    """Per request the end of its stretch of equal ones."""
    change = np.flatnonzero((np.diff(inputs) != 0) | (np.diff(outputs) != 0)) + 1
    ends = np.append(change, len(inputs))
    return ends[np.searchsorted(change, np.arange(len(inputs)), side="right")]


def coarse(instance: Instance, *, spread: bool = False) -> Iterator[Settings]:
    """A first look over very different settings, promising ones first; with ``spread`` also fills in small chunks."""
    if spread:
        for tokens in (1024, 512, 256, 2048):
            yield Settings("longest" if instance.offline else "latest", 1, 0, fill_tokens=tokens)
    longest = max(r.output_tokens for r in instance.requests)
    grid = [every for every in (16, 4, 64, 1, 8, 32, 2, 128, 256) if every <= max(1, 2 * longest)]
    kinds = {(r.input_tokens, r.output_tokens) for r in instance.requests}
    names = ["longest"] if len(kinds) == 1 else ["longest", "area", "largest", "shortest"]
    if not instance.offline:
        names = ["latest", "latest longest", "longest"]
    for name in names:
        for every in grid if name == names[0] else grid[:4]:
            for hold in dict.fromkeys((every - 1, 0, every // 2)):
                yield Settings(name, every, hold)
                if name == names[0]:
                    yield Settings(name, every, hold, 1.1, float(every), 0.0)


def near(settings: Settings) -> Iterator[Settings]:
    """Settings that differ from these in one or two numbers."""
    every = settings.every
    for other in sorted({max(1, every + d) for d in (-4, -2, -1, 1, 2, 4)} | {max(1, every // 2), every * 2}):
        hold = min(other - 1, max(0, round(settings.most_hold * other / every)))
        yield replace(settings, every=other, most_hold=hold)
    for hold in sorted({0, every // 4, every // 2, 3 * every // 4, every - 1}):
        yield replace(settings, most_hold=hold)
    for rate in (0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1e9):
        for burst in (1.0, every / 2, float(every), 2.0 * every):
            for first in (0.0, 0.5, 1.0):
                if (rate, burst, first) != (settings.rate, settings.burst, settings.first_burst):
                    yield replace(settings, rate=rate, burst=burst, first_burst=first)
    for failures in (4, 64, 256):
        yield replace(settings, most_failures=failures)
    for room in (0.0, 0.5, 2.0):
        yield replace(settings, room=room)
    spread = settings.fill_tokens or 1024
    for tokens in (
        None,
        *dict.fromkeys(max(16, round(spread * factor)) for factor in (0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2)),
    ):
        yield replace(settings, fill_tokens=tokens)
        yield replace(settings, fill_tokens=tokens, every=1, most_hold=0)


def best_plan(
    instance: Instance, cost: CostModel, objective: str, until: Callable[[], bool]
) -> tuple[float, Plan, Settings] | None:
    """Search settings, coarsely first, then near the best ones, until ``until()`` says stop or nothing near is better.

    Returns
    -------
    Value in ticks as a float, the plan and its settings; None if no setting leads to a plan.
    """
    best: tuple[float, Plan, Settings] | None = None
    tried: set[Settings] = set()

    def attempt(settings: Settings) -> bool:
        nonlocal best
        if settings in tried:
            return False
        tried.add(settings)
        made = plan(instance, settings)
        if made is None:
            return False
        value = value_ticks(made, instance, cost, objective)
        if best is not None and value >= best[0]:
            return False
        best = value, made, settings
        return True

    for settings in coarse(instance, spread=not cost.additive):
        attempt(settings)
        if until():
            return best
    better = best is not None
    while better:
        better = False
        assert best is not None
        for settings in near(best[2]):
            better = attempt(settings) or better
            if until():
                return best
    return best


def schedules(
    instance: Instance, cost: CostModel, objective: str, until: Callable[[], bool], below_ticks: float
) -> Iterator[tuple[Schedule, str]]:
    """The best plan found until ``until()`` says stop, if it beats ``below_ticks``."""
    found = best_plan(instance, cost, objective, until)
    if found is not None and found[0] < below_ticks:
        yield found[1].schedule(), found[2].describe()
