"""First tokens first: every prompt is filled as soon as it can be and dropped at once; the rest is served afterwards.

Mean TTFT asks for nothing else, so this says how far below a service that also keeps its memory could come. Prompts are
filled shortest first. One more joins a batch if what it delays those in the batch is less than what sharing the batch's
fixed charge saves those that wait. The rest is a workload of its own, all present: a prompt is one token longer and an
output one token shorter, and its plan is the quickest found (`bounds.upper.staggered`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heappop, heappush

from bounds.upper.staggered import coarse, plan
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features
from sim.instance import Instance, Request
from sim.runs import Run, RunBatches
from sim.schedule import Schedule

OBJECTIVES = ("mean_ttft",)


def schedules(
    instance: Instance, cost: CostModel, objective: str, until: Callable[[], bool], below_ticks: float
) -> Iterator[tuple[Schedule, str]]:
    """One schedule; none where prompts need chunks or arrive prefilled or shared, or no plan for the rest is found."""
    requests = instance.requests
    longest = max(r.input_tokens for r in requests)
    if longest > min(instance.token_budget, instance.kv_capacity_tokens):
        return
    if any(r.prefilled or r.prefix for r in requests):
        return
    rest = [i for i, r in enumerate(requests) if r.output_tokens > 1]
    first, dropped = _first_runs(instance, cost)
    after = _rest(instance, rest, dropped, until) if rest else []
    if after is not None:
        yield Schedule(RunBatches([*first, *after])), "first tokens first"


def _first_runs(instance: Instance, cost: CostModel) -> tuple[list[Run], tuple[int, ...]]:
    """Batches that fill every prompt and drop it in the next batch; also whom the last one leaves to be dropped."""
    requests = instance.requests
    arrivals = sorted(range(len(requests)), key=lambda i: requests[i].arrival_ns, reverse=True)
    most_blocks, most_seqs = instance.kv_blocks, instance.max_num_seqs or len(requests)
    waiting: list[tuple[int, int]] = []
    runs: list[Run] = []
    dropped: tuple[int, ...] = ()
    now = 0
    while arrivals or waiting:
        if not waiting:
            now = max(now, requests[arrivals[-1]].arrival_ns * TICKS_PER_NS)
        while arrivals and requests[arrivals[-1]].arrival_ns * TICKS_PER_NS <= now:
            i = arrivals.pop()
            heappush(waiting, (requests[i].input_tokens, i))
        batch: list[int] = []
        tokens = blocks = 0
        features = Features(0, 0, 0, 0, 0, 0, 0, 0, 0)
        while waiting and len(batch) < most_seqs:
            size, i = waiting[0]
            own = -(-size // instance.block_size)
            if tokens + size > instance.token_budget or blocks + own > most_blocks:
                break
            more = Features(1, 1, 0, len(batch) + 1, 0, tokens + size, features.prefill_square + size * size, 0, 0)
            alone = cost.batch_ticks(Features(1, 1, 0, 1, 0, size, size * size, 0, 0))
            longer = cost.batch_ticks(more) - (cost.batch_ticks(features) if batch else 0)
            if batch and len(batch) * longer > (alone - longer) * len(waiting):
                break
            heappop(waiting)
            batch.append(i)
            tokens, blocks, features = tokens + size, blocks + own, more
        fills = tuple((i, requests[i].input_tokens) for i in batch)
        start = max(requests[i].arrival_ns for i in batch)
        runs.append(Run(1, False, (), (), fills, preempt=dropped))
        now = max(now, start * TICKS_PER_NS) + cost.batch_ticks(features)
        dropped = tuple(i for i in batch if requests[i].output_tokens > 1)
    return runs, dropped


def _rest(instance: Instance, rest: list[int], dropped: tuple[int, ...], until: Callable[[], bool]) -> list[Run] | None:
    """Runs that serve all tokens but the first; whoever is dropped in the first of them is not filled in it."""
    later = tuple(Request(instance.requests[i].input_tokens + 1, instance.requests[i].output_tokens - 1) for i in rest)
    theirs = replace(instance, requests=later)
    for settings in coarse(theirs):
        made = plan(theirs, settings)
        if made is not None:
            batches = made.schedule().batches
            assert isinstance(batches, RunBatches)
            runs = [_renamed(run, rest) for run in batches.runs]
            if not {i for i, _ in runs[0].fills} & set(dropped):
                return [runs[0]._replace(preempt=dropped), *runs[1:]]
        if until():
            break
    return None


def _renamed(run: Run, names: list[int]) -> Run:
    """The run with requests called by other indices."""
    return run._replace(
        left=tuple(names[i] for i in run.left), joined=tuple((at, names[i]) for at, i in run.joined),
        fills=tuple((names[i], tokens) for i, tokens in run.fills),
    )  # fmt: skip
