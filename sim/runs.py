"""Compact schedules: runs of equal batches instead of every batch, who decodes told by changes.

A service decodes the same few hundred requests batch after batch; written out, its schedule has millions of entries, as
runs it has a few per arrival and completion. `RunBatches` shows runs as the sequence of batches they stand for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from sim.schedule import Batch

_CHECKPOINT = 256


class Run(NamedTuple):
    """``repeat`` batches in a row that do the same.

    The *decoders* are an ordered list that lasts from run to run. ``left`` and ``joined`` change it before the run;
    with ``decode`` each of them takes a decode step in every batch of the run, otherwise they hold.
    """

    repeat: int = 1
    decode: bool = True
    left: tuple[int, ...] = ()
    """Requests no longer among the decoders: completed, preempted or held."""
    joined: tuple[tuple[int, int], ...] = ()
    """(position, request), inserted one after the other."""
    fills: tuple[tuple[int, int], ...] = ()
    """(request, tokens) processed in every batch besides the decode steps."""
    places: tuple[int, ...] = ()
    """Position of each fill within the batch; without, the fills stand behind the decode steps."""
    preempt: tuple[int, ...] = ()
    """Preempted in the first batch of the run."""
    start_ns: int | None = None
    """Start of the first batch; None for as early as possible."""


class RunBatches(Sequence[Batch]):
    """The batches that runs stand for, built when asked for.

    Examples
    --------
    >>> batches = RunBatches([Run(fills=((0, 5), (1, 2)), decode=False), Run(3, joined=((0, 0), (1, 1)))])
    >>> len(batches), batches[0].process, batches[-1].process
    (4, ((0, 5), (1, 2)), ((0, 1), (1, 1)))
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = tuple(runs)
        self._ends = list(accumulate(run.repeat for run in self.runs))
        self._checkpoints: list[tuple[int, ...]] = [()]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Batch]:
        order: list[int] = []
        for run in self.runs:
            change_decoders(order, run)
            yield from _batches(run, order)

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Batch, ...]: ...
    def __getitem__(self, index: int | slice) -> Batch | tuple[Batch, ...]:
        if isinstance(index, slice):
            return tuple(self[j] for j in range(*index.indices(len(self))))
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        number = bisect_right(self._ends, position)
        run = self.runs[number]
        first = position == self._ends[number] - run.repeat
        return next(_batches(run if first else run._replace(preempt=(), start_ns=None), self.decoders(number)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def decoders(self, number: int) -> list[int]:
        """The decoders, in order, during a run."""
        while len(self._checkpoints) <= number // _CHECKPOINT:
            start = (len(self._checkpoints) - 1) * _CHECKPOINT
            self._checkpoints.append(tuple(self._advance(len(self._checkpoints) - 1, start + _CHECKPOINT)))
        return self._advance(number // _CHECKPOINT, number + 1)

    def _advance(self, checkpoint: int, until: int) -> list[int]:
        order = list(self._checkpoints[checkpoint])
        for run in self.runs[checkpoint * _CHECKPOINT : until]:
            change_decoders(order, run)
        return order


def change_decoders(order: list[int], run: Run) -> None:
    """Apply a run's ``left`` and ``joined`` to the list of decoders."""
    for i in run.left:
        order.remove(i)
    for position, i in run.joined:
        order.insert(position, i)


def _batches(run: Run, order: Sequence[int]) -> Iterator[Batch]:
    entries = [(i, 1) for i in order] if run.decode else []
    if run.places:
        for place, fill in zip(run.places, run.fills, strict=True):
            entries.insert(place, fill)
    else:
        entries += run.fills
    process = tuple(entries)
    yield Batch(process, run.preempt, run.start_ns)
    if run.repeat > 1:
        batch = Batch(process)
        for _ in range(run.repeat - 1):
            yield batch


class RunBuilder:
    """Collects batches, or many equal ones at once, into runs."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._order: list[int] = []

    def add(self, batch: Batch, decodes: Sequence[int], repeat: int = 1) -> None:
        """Append a batch ``repeat`` times.

        Parameters
        ----------
        decodes
            Who takes a decode step in it, in the batch's order; everything else in it is a fill.
        """
        now = set(decodes)
        if not decodes:
            left = tuple(i for i in batch.preempt if i in set(self._order))
            kept = [i for i in self._order if i not in left]
            joined: tuple[tuple[int, int], ...] = ()
        else:
            kept = [i for i in self._order if i in now]
            before = set(kept)
            if kept != [i for i in decodes if i in before]:
                kept, before = [], set()
            left = tuple(i for i in self._order if i not in before)
            joined = tuple((place, i) for place, i in enumerate(decodes) if i not in before)
            kept = list(decodes)
        self._order = kept
        fills = tuple(pair for pair in batch.process if pair[0] not in now)
        places = tuple(place for place, pair in enumerate(batch.process) if pair[0] not in now)
        if places == tuple(range(len(decodes), len(batch.process))):
            places = ()
        self.runs.append(Run(repeat, bool(decodes), left, joined, fills, places, batch.preempt, batch.start_ns))
