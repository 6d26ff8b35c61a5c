"""First tokens first: every prompt is filled as soon as it can be and dropped at once; the rest is served afterwards.

Mean TTFT asks for nothing else, so this says how far below a service that also keeps its memory could come. The prompt
with the fewest tokens left is filled first, in chunks, so that a shorter one that arrives need not wait for all of a
long one. Another joins a batch if what it delays those in the batch is less than what sharing the batch's fixed charge
saves those that wait. Then prompts are moved to other places and batches nearby (`bounds.upper._order`), as one could
who knows what will arrive. The rest is a workload of its own, all present: a prompt is one token longer and an output
one token shorter, and its plan is the first found (`bounds.upper.staggered`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bounds.upper.staggered import coarse, plan
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features
from sim.instance import Instance, Request
from sim.runs import Run, RunBatches
from sim.schedule import Schedule

if TYPE_CHECKING:
    from bounds.upper._order import Items, Row

OBJECTIVES = ("mean_ttft",)
CHUNKS = (512, 1024, 1536, 2048, 3072, 4096)
"""Most tokens of a batch, tried in turn."""
_REORDERED = 2
"""The best so many are reordered."""
_HEATS = np.array([0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0])
"""Temperatures, in times between first tokens."""
_PASSES, _MOVES, _REACH = 20, 5, 12
"""Passes at each temperature, moves of a pass per prompt, and how far a prompt is moved at most."""
_NOTHING = Features(0, 0, 0, 0, 0, 0, 0, 0, 0)


def schedules(
    instance: Instance, cost: CostModel, objective: str, until: Callable[[], bool], below_ticks: float
) -> Iterator[tuple[Schedule, str]]:
    """One schedule; none where requests arrive prefilled or share prefixes, or no plan for the rest is found."""
    requests = instance.requests
    if any(r.prefilled or r.prefix for r in requests):
        return
    sizes = sorted({min(size, instance.token_budget) for size in CHUNKS}, reverse=True)
    tried = [_Filling(instance, cost, size) for size in sizes]
    best = sorted(tried, key=lambda filling: filling.run())[:_REORDERED]
    others = [(*reordered(instance, cost, filling.runs, until), filling.chunk) for filling in best]
    rest = [i for i, r in enumerate(requests) if r.output_tokens > 1]
    plain = (0.0, best[0].runs, best[0].dropped, best[0].chunk)
    for _, runs, dropped, chunk in (*sorted(others, key=lambda other: other[0]), plain):
        after = _rest(instance, rest, dropped, until) if rest else []
        if after is not None and _fits(instance, runs):
            yield Schedule(RunBatches([*runs, *after])), f"first tokens first, chunks of {chunk}"
            return


def reordered(
    instance: Instance, cost: CostModel, runs: Sequence[Run], until: Callable[[], bool]
) -> tuple[float, list[Run], tuple[int, ...]]:
    """Fills in a better order by simulated annealing (`bounds.upper._order`), and who is dropped after the last.

    First the sum of the ends of all first tokens, in ticks.

    Prompts that are there at once may not fit in memory.
    """
    from bounds.upper import _order as kernel
    from bounds.upper._batch_times import cost_pieces

    row, items = _row(instance, runs)
    pieces = cost_pieces(cost)
    n = len(row.item)
    limits = instance.token_budget, instance.max_num_seqs or n
    random = np.random.default_rng(0)
    kernel.timed(row, 0, n, n, items, pieces, *limits, row.end)
    typical = float(row.end[-1]) / n
    for heat in typical * _HEATS:
        for _ in range(_PASSES):
            kernel.improve(row, items, pieces, *limits, _MOVES * n, heat, _REACH, random)
            if until():
                break
    return float(items.weight[row.item] @ row.end), *_runs(instance, row, items)


def _row(instance: Instance, runs: Sequence[Run]) -> tuple[Row, Items]:
    """Fills as items in a row; ends are still to be timed."""
    from bounds.upper._order import Items, Row

    filled = [0] * len(instance.requests)
    rows: list[tuple[float, ...]] = []
    for run in runs:
        for place, (i, tokens) in enumerate(run.fills):
            request, before = instance.requests[i], filled[i]
            filled[i] += tokens
            rows.append((i, tokens, tokens * (tokens + 2 * before), before, filled[i] == request.input_tokens,
                         request.arrival_ns * TICKS_PER_NS, place == 0))  # fmt: skip
    columns = [np.array(column, float) for column in zip(*rows, strict=True)]
    items = Items(columns[0].astype(np.int64), columns[1].astype(np.int64), *columns[2:6])
    return Row(np.arange(len(rows)), columns[6].astype(np.int64), np.zeros(len(rows))), items


def _runs(instance: Instance, row: Row, items: Items) -> tuple[list[Run], tuple[int, ...]]:
    runs: list[Run] = []
    dropped: tuple[int, ...] = ()
    starts = [*np.flatnonzero(row.begins).tolist(), len(row.item)]
    for start, stop in pairwise(starts):
        batch = row.item[start:stop]
        fills = tuple(zip(items.request[batch].tolist(), items.tokens[batch].tolist(), strict=True))
        runs.append(Run(1, False, (), (), fills, preempt=dropped))
        ended = items.request[batch[items.weight[batch] == 1]].tolist()
        dropped = tuple(i for i in ended if instance.requests[i].output_tokens > 1)
    return runs, dropped


def _fits(instance: Instance, runs: Sequence[Run]) -> bool:
    """Whether prompts filled in part and those of the batch never need more memory than there is."""
    filled: dict[int, int] = {}
    for run in runs:
        for i, tokens in run.fills:
            filled[i] = filled.get(i, 0) + tokens
        if sum(instance.blocks(tokens) for tokens in filled.values()) > instance.kv_blocks:
            return False
        for i, _ in run.fills:
            if filled[i] == instance.requests[i].input_tokens:
                del filled[i]
    return True


class _Filling:
    """Batches that fill every prompt and drop it in the next batch; ``dropped`` is left to the batch after them."""

    def __init__(self, instance: Instance, cost: CostModel, chunk: int) -> None:
        self.instance, self.cost, self.chunk = instance, cost, chunk
        self.runs: list[Run] = []
        self.dropped: tuple[int, ...] = ()
        self.filled = [0] * len(instance.requests)
        self.fresh: list[tuple[int, int]] = []
        """Heap of (tokens left, request) not begun."""
        self.begun: list[tuple[int, int]] = []
        """The same for prompts partly filled; all of them fit whole."""
        self.free_blocks = instance.kv_blocks

    def run(self) -> int:
        """Sum of the ends of all first tokens, in ticks."""
        requests = self.instance.requests
        arrivals = sorted(range(len(requests)), key=lambda i: requests[i].arrival_ns, reverse=True)
        now = total = 0
        while arrivals or self.fresh or self.begun:
            if not (self.fresh or self.begun):
                now = max(now, requests[arrivals[-1]].arrival_ns * TICKS_PER_NS)
            while arrivals and requests[arrivals[-1]].arrival_ns * TICKS_PER_NS <= now:
                i = arrivals.pop()
                heappush(self.fresh, (requests[i].input_tokens, i))
            fills, features = self._batch()
            now += self.cost.batch_ticks(features)
            ended = [i for i, _ in fills if self.filled[i] == requests[i].input_tokens]
            total += now * len(ended)
            self.free_blocks += sum(self._blocks(i) for i in ended)
            self.runs.append(Run(1, False, (), (), tuple(fills), preempt=self.dropped))
            self.dropped = tuple(i for i in ended if requests[i].output_tokens > 1)
        return total

    def _batch(self) -> tuple[list[tuple[int, int]], Features]:
        """The next batch's fills and its features."""
        fills: list[tuple[int, int]] = []
        features = _NOTHING
        most = self.instance.max_num_seqs or len(self.instance.requests)
        while len(fills) < most and (heap := self._next()):
            left, i = heap[0]
            tokens = min(left, self.chunk) if not fills else left
            more = self._with(features, i, tokens)
            if fills:
                alone = self.cost.batch_ticks(self._with(_NOTHING, i, tokens))
                longer = self.cost.batch_ticks(more) - self.cost.batch_ticks(features)
                waiting = len(self.fresh) + len(self.begun)
                if more.tokens > self.chunk or len(fills) * longer > (alone - longer) * waiting:
                    break
            heappop(heap)
            if heap is self.fresh:
                self.free_blocks -= self._blocks(i)
            self.filled[i] += tokens
            fills.append((i, tokens))
            features = more
            if tokens < left:
                heappush(self.begun, (left - tokens, i))
                break
        return fills, features

    def _next(self) -> list[tuple[int, int]] | None:
        """The heap whose head has the fewest tokens left and fits; None if there is none."""
        fits = bool(self.fresh) and self._blocks(self.fresh[0][1]) <= self.free_blocks
        if fits and (not self.begun or self.fresh[0] < self.begun[0]):
            return self.fresh
        return self.begun or None

    def _blocks(self, i: int) -> int:
        return self.instance.blocks(self.instance.requests[i].input_tokens)

    def _with(self, f: Features, i: int, tokens: int) -> Features:
        """Features with one more fill."""
        before = self.filled[i]
        return Features(1, 1, 0, f.n_prefill + 1, 0, f.tokens + tokens,
                        f.prefill_square + tokens * (tokens + 2 * before), f.prefill_reads + before, 0)  # fmt: skip


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
