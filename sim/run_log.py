"""What a schedule did, by runs of equal batches: the form in which metrics and timelines are read off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sim.cost.model import Features
from sim.cost.runs import Stretch
from sim.runs import Run, RunBatches, RunBuilder

if TYPE_CHECKING:
    from sim.replay import Entry, Replay

_NO_STEP = Features(0, 0, 0, 0, 0, 0, 0, 0, 0)


class RunRecord(NamedTuple):
    """What a run of equal batches did and when."""

    first_batch: int
    repeat: int
    start_ticks: int
    stretches: tuple[Stretch, ...]
    """Batch times: (batches, ticks of the first, growth per batch)."""
    features: Features
    """Of the first batch."""
    step: Features
    """What each next batch has more."""
    fills: tuple[Entry, ...]
    """Of the first batch; ``generates`` is about the last one."""
    preempted: tuple[tuple[int, int], ...]
    """(request, KVs dropped) in order, in the first batch."""
    completed: tuple[int, ...]
    """By the last batch."""
    kv_tokens: int
    """KVs resident after the first batch; each next one adds its tokens."""
    kv_blocks: int
    """Blocks occupied after the last batch, the most of the run."""


class RunLog(NamedTuple):
    """All runs of a schedule, and between which batches tokens came out."""

    records: tuple[RunRecord, ...]
    token_pairs: tuple[tuple[int, int], ...]
    """(batch, later batch) in which one request generated neighbouring tokens."""
    stints: tuple[tuple[int, int], ...]
    """(a, b): a request generated in the a-th to the b-th batch that decodes, in all of them."""

    def times_ticks(self) -> Iterator[tuple[int, int]]:
        """(start, end) of each batch."""
        for record in self.records:
            now = record.start_ticks
            for batches, ticks, growth in record.stretches:
                for k in range(batches):
                    start, now = now, now + ticks + k * growth
                    yield start, now


def run_log(replay: Replay) -> RunLog:
    """The log of a compact schedule; of any other, one with a run per batch."""
    if replay.log is not None:
        return replay.log
    records = []
    pairs = []
    last_token: dict[int, int] = {}
    for j, record in enumerate(replay.records):
        fills = tuple(e for e in record.entries if e.kind != "decode")
        records.append(
            RunRecord(j, 1, record.start_ticks, ((1, record.end_ticks - record.start_ticks, 0),), record.features,
                      _NO_STEP, fills, record.preempted, record.completed, record.kv_tokens, record.kv_blocks)
        )  # fmt: skip
        for entry in record.entries:
            if entry.generates:
                if entry.request in last_token:
                    pairs.append((last_token[entry.request], j))
                last_token[entry.request] = j
    return RunLog(tuple(records), tuple(pairs), ())


def schedule_runs(replay: Replay) -> tuple[Run, ...]:
    """The runs of a compact schedule; of any other, one per batch. They match the log's records."""
    batches = replay.schedule.batches
    if isinstance(batches, RunBatches):
        return batches.runs
    builder = RunBuilder()
    for batch, record in zip(batches, replay.records, strict=True):
        builder.add(batch, [e.request for e in record.entries if e.kind == "decode"])
    return tuple(builder.runs)
