"""Plans: who is filled, who starts decoding, and when, batch by batch; nobody is preempted.

A planned request is filled (in chunks, if its prompt is longer than the room in a batch), may hold its prompt's KVs for
some batches, and then decodes in every batch until it is complete.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features
from sim.instance import Instance
from sim.runs import Run, RunBatches
from sim.schedule import Schedule

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
RANKED_OBJECTIVES = ("makespan", "mean_completion", "mean_ttft")
"""Objectives that plans can be ranked by."""
_FEATURE = {name: i for i, name in enumerate(Features._fields)}


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule without preemption, as arrays.

    Parameters
    ----------
    inputs, outputs
        I and O per request.
    chunk_batch, chunk_request, chunk_tokens
        Fills, in order of batch; the chunks of a request sum to I.
    last
        Batch in which each request completes.
    batches
        Number of batches.
    """

    inputs: Ints
    outputs: Ints
    chunk_batch: Ints
    chunk_request: Ints
    chunk_tokens: Ints
    last: Ints
    batches: int

    @property
    def first_decode(self) -> Ints:
        """Batch of each request's first decode step (one after ``last`` if it has none)."""
        return self.last - self.outputs + 2

    def features(self) -> Ints:
        """Features of every batch, one row each (`sim.cost.model.Features`)."""
        total = np.zeros((self.batches, len(_FEATURE)), np.int64)

        def put(name: str, values: npt.NDArray[np.generic]) -> None:
            total[:, _FEATURE[name]] = values

        size = self.batches
        before = self._filled_before()
        for name, weight in (
            ("n_prefill", np.ones_like(self.chunk_tokens)),
            ("tokens", self.chunk_tokens),
            ("prefill_square", self.chunk_tokens * (self.chunk_tokens + 2 * before)),
            ("prefill_reads", before),
        ):
            np.add.at(total[:, _FEATURE[name]], self.chunk_batch, weight)
        start, stop = self.first_decode, self.last + 1
        running = _ranges(size, start, stop, np.ones_like(start))
        # A request reads I + (t - start) KVs in batch t.
        reads = _ranges(size, start, stop, self.inputs - start) + running * np.arange(size)
        put("n_decode", running)
        put("decode_reads", reads)
        put("tokens", total[:, _FEATURE["tokens"]] + running)
        put("prefill_batch", total[:, _FEATURE["n_prefill"]] > 0)
        put("decode_batch", running > 0)
        put("batch", total[:, _FEATURE["tokens"]] > 0)
        return total

    def _filled_before(self) -> Ints:
        """KVs each chunk's request holds before it."""
        before = np.zeros_like(self.chunk_tokens)
        seen: dict[int, int] = {}
        counts = np.bincount(self.chunk_request, minlength=len(self.inputs))
        for position in np.flatnonzero(counts[self.chunk_request] > 1):
            request = int(self.chunk_request[position])
            before[position] = seen.get(request, 0)
            seen[request] = int(before[position]) + int(self.chunk_tokens[position])
        return before

    def first_token(self) -> Ints:
        """Batch in which each request generates its first token."""
        first = np.zeros_like(self.last)
        np.maximum.at(first, self.chunk_request, self.chunk_batch)
        return first

    def schedule(self) -> Schedule:
        """The plan as a compact schedule; batches that would process nothing are left out."""
        events: set[int] = {0, self.batches}
        fills: dict[int, list[tuple[int, int]]] = defaultdict(list)
        joins: dict[int, list[int]] = defaultdict(list)
        leaves: dict[int, list[int]] = defaultdict(list)
        for batch, request, tokens in zip(
            self.chunk_batch.tolist(), self.chunk_request.tolist(), self.chunk_tokens.tolist(), strict=True
        ):
            fills[batch].append((request, tokens))
            events |= {batch, batch + 1}
        for i, (start, last) in enumerate(zip(self.first_decode.tolist(), self.last.tolist(), strict=True)):
            if start <= last:
                joins[start].append(i)
                leaves[last + 1].append(i)
                events |= {start, last + 1}
        runs = []
        running = 0
        left: list[int] = []
        ordered = sorted(events)
        for batch, following in pairwise(ordered):
            left += leaves[batch]
            running -= len(leaves[batch])
            joined = tuple((running + place, i) for place, i in enumerate(joins[batch]))
            running += len(joined)
            if running or fills[batch]:
                runs.append(Run(following - batch, running > 0, tuple(left), joined, tuple(fills[batch])))
                left = []
        return Schedule(RunBatches(runs))


def batch_ticks(features: Ints, cost: CostModel) -> Floats:
    """Time of each batch in ticks, as floats: for ranking plans; the replay is exact."""
    total = np.zeros(len(features))
    for group in cost.groups:
        pieces = features @ np.array(group.pieces, float).T
        total += pieces.max(axis=1)
    total[features[:, 0] == 0] = 0
    return total


def value_ticks(plan: Plan, instance: Instance, cost: CostModel, objective: str) -> float:
    """An objective of a plan, as a float; a batch starts when the requests filled in it have arrived.

    Raises
    ------
    ValueError
        For objectives that plans are not ranked by.
    """
    spent = batch_ticks(plan.features(), cost)
    ends = np.cumsum(spent)
    arrivals = np.array([r.arrival_ns for r in instance.requests], float) * TICKS_PER_NS
    if arrivals.any():
        earliest = np.zeros(plan.batches)
        np.maximum.at(earliest, plan.chunk_batch, arrivals[plan.chunk_request])
        ends += np.maximum.accumulate(np.maximum(0.0, earliest - (ends - spent)))
    if objective == "makespan":
        return float(ends[-1])
    if objective == "mean_completion":
        return float((ends[plan.last] - arrivals).mean())
    if objective == "mean_ttft":
        return float((ends[plan.first_token()] - arrivals).mean())
    raise ValueError(f"plans cannot be ranked by {objective}")


def _ranges(size: int, start: Ints, stop: Ints, weight: Ints) -> Ints:
    """Sum of the weights of the ranges start..stop-1 that cover each position."""
    steps = np.zeros(size + 1, np.int64)
    some = stop > start
    np.add.at(steps, start[some], weight[some])
    np.add.at(steps, stop[some], -weight[some])
    return np.cumsum(steps)[:size]
