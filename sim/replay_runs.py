"""The rules of a schedule for compact schedules: whole runs of equal batches checked and timed at once.

Part of the rules module (`sim.replay`), which explains the rules and remains the reference: this file accepts only what
it can vouch for run by run, with totals that change as requests join or leave the decoders. Whatever it cannot vouch
for, broken or merely unusual, is left to the batch by batch replay, which names the broken rule, batch and request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import overload

from sim.clock import TICKS_PER_NS, ns_from_ticks
from sim.cost.model import CostModel, Features
from sim.cost.runs import RunTimer, stretch_ticks
from sim.instance import Instance
from sim.replay import PREFILL, REFILL, BatchRecord, Entry, Replay, Rules, State
from sim.run_log import RunLog, RunRecord
from sim.runs import Run, RunBatches
from sim.schedule import Schedule


class _CannotVouch(Exception):
    """Something is broken or not of the kind handled here."""


class LazyRecords(Sequence[BatchRecord]):
    """The batch records of a compact schedule, made by the batch by batch replay when asked for."""

    def __init__(self, instance: Instance, schedule: Schedule, cost: CostModel, rules: Rules) -> None:
        self._instance, self._schedule, self._cost, self._rules = instance, schedule, cost, rules
        self._all: tuple[BatchRecord, ...] | None = None

    def __len__(self) -> int:
        return len(self._schedule)

    def __iter__(self) -> Iterator[BatchRecord]:
        if self._all is not None:
            yield from self._all
            return
        state = State(self._instance, self._cost, self._rules)
        for batch in self._schedule.batches:
            yield state.apply(batch)

    @overload
    def __getitem__(self, index: int) -> BatchRecord: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[BatchRecord, ...]: ...
    def __getitem__(self, index: int | slice) -> BatchRecord | tuple[BatchRecord, ...]:
        if self._all is None:
            self._all = tuple(self)
        return self._all[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


def replay_runs(
    instance: Instance, schedule: Schedule, cost: CostModel, rules: Rules, *, complete: bool
) -> Replay | None:
    """Check and time a compact schedule; None if the batch by batch replay must decide."""
    batches = schedule.batches
    if (
        not (isinstance(batches, RunBatches) and rules.holding)
        or rules.prefix_sharing
        or any(r.prefilled for r in instance.requests)
    ):
        return None
    state = _RunState(instance, cost, rules)
    try:
        for run in batches.runs:
            state.apply(run)
        if complete and not all(state.done):
            return None
    except _CannotVouch:
        return None
    state.close()
    log = RunLog(tuple(state.records), tuple(state.token_pairs), tuple(state.stints))
    records = LazyRecords(instance, schedule, cost, rules)
    return Replay(instance, schedule, records, state.now_ticks, tuple(state.first_token_ticks),
                  tuple(state.completed_ticks), tuple(state.preemptions), tuple(state.refilled()), log)  # fmt: skip


class _RunState:
    """Requests between two runs. Of a decoder only the decode step it completes at is kept: at decode step s it holds
    I + O - 1 - (finish - s) KVs."""

    def __init__(self, instance: Instance, cost: CostModel, rules: Rules) -> None:
        n = len(instance.requests)
        self.instance, self.rules, self.timer = instance, rules, RunTimer(cost)
        self.inputs = [r.input_tokens for r in instance.requests]
        self.outputs = [r.output_tokens for r in instance.requests]
        self.arrival_ticks = [r.arrival_ns * TICKS_PER_NS for r in instance.requests]
        self.block_size, self.capacity = instance.block_size, instance.kv_blocks
        self.generated, self.kv, self.processed, self.preemptions, self.dropped = ([0] * n for _ in range(5))
        self.ready, self.done = [False] * n, [False] * n
        self.first_token_ticks: list[int | None] = [None] * n
        self.completed_ticks: list[int | None] = [None] * n
        self.last_token_batch = [-1] * n
        self.now_ticks = self.batches = self.kv_tokens = self.kv_blocks = 0
        self.freed: list[int] = []
        # Decoders
        self.steps = 0
        self.finish = [0] * n
        self.joined_at = [-1] * n
        self.completions: list[tuple[int, int]] = []
        self.decoders = self.reads = 0
        self.lingering: set[int] = set()
        self.fresh: list[int] = []
        self.last_decode_batch = -1
        self.by_residue: Counter[int] = Counter()
        """Decoders by the decode step, modulo the block size, at which they open a block."""
        # Log
        self.records: list[RunRecord] = []
        self.token_pairs: list[tuple[int, int]] = []
        self.stints: list[tuple[int, int]] = []

    def apply(self, run: Run) -> None:
        """Carry out one run."""
        self._free()
        for i in run.left:
            if i in self.lingering:
                self.lingering.remove(i)
            else:
                self._leave(i)
        for _, i in run.joined:
            self._join(i)
        dropped = tuple(self._preempt(i) for i in run.preempt)
        repeat, rules = run.repeat, self.rules
        if repeat < 1 or (run.decode and self.lingering):
            raise _CannotVouch
        first, step, fills, latest_arrival = self._features(run)
        n_entries = first.n_decode + len(fills)
        limit = self.instance.max_num_seqs
        if (
            (n_entries == 0 and not (rules.allow_empty and repeat == 1))
            or (first.n_prefill and first.n_decode and not rules.hybrid)
            or first.tokens > self.instance.token_budget
            or (limit is not None and n_entries > limit)
        ):
            raise _CannotVouch
        start = self._start(run.start_ns, latest_arrival)
        stretches = tuple(self.timer.stretches(first, step, repeat)) if n_entries else ((1, 0, 0),)
        end = start
        for stretch in stretches:
            end += stretch_ticks(*stretch)
        kv_after_first = self.kv_tokens + first.tokens
        last_batch = self.batches + repeat - 1
        completed: list[int] = []
        if first.n_decode:
            self._decode(repeat, end, completed)
        for entry in fills:
            self._fill(entry, repeat, end, last_batch, completed)
        if self.kv_blocks > self.capacity:
            raise _CannotVouch
        self.records.append(RunRecord(self.batches, repeat, start, stretches, first, step, fills, dropped,
                                      tuple(completed), kv_after_first, self.kv_blocks))  # fmt: skip
        self.freed = completed
        self.batches += repeat
        self.now_ticks = end

    def close(self) -> None:
        """Bring the decoders' own counts up to date."""
        for i, since in enumerate(self.joined_at):
            if since >= 0:
                self._leave(i)

    def refilled(self) -> list[int]:
        """Tokens processed again, per request, as `sim.replay.finish` counts them."""
        return [max(0, c - (self.inputs[i] + self.generated[i] - 1)) if self.generated[i] else min(c, self.dropped[i])
                for i, c in enumerate(self.processed)]  # fmt: skip

    def _blocks(self, kv: int) -> int:
        return -(-kv // self.block_size)

    def _free(self) -> None:
        for i in self.freed:
            self.kv_tokens -= self.kv[i]
            self.kv_blocks -= self._blocks(self.kv[i])
            self.kv[i] = 0

    def _join(self, i: int) -> None:
        if self.joined_at[i] >= 0 or self.done[i] or not self.ready[i]:
            raise _CannotVouch
        self.joined_at[i] = self.steps
        self.finish[i] = self.steps + self.outputs[i] - self.generated[i]
        heappush(self.completions, (self.finish[i], i))
        self.decoders += 1
        self.reads += self.kv[i]
        self.fresh.append(i)
        if self.block_size > 1:
            self.by_residue[(self.steps - self.kv[i]) % self.block_size] += 1

    def _leave(self, i: int) -> None:
        """Whoever leaves has decoded in every decode step since it joined."""
        since = self.joined_at[i]
        if since < 0:
            raise _CannotVouch
        self.joined_at[i] = -1
        took = self.steps - since
        self.generated[i] += took
        self.processed[i] += took
        self.kv[i] += took
        self.decoders -= 1
        self.reads -= self.kv[i]
        if self.block_size > 1:
            self.by_residue[(self.steps - self.kv[i]) % self.block_size] -= 1
        if took:
            self.last_token_batch[i] = self.last_decode_batch
            self.stints.append((since + 1, self.steps))
        else:
            self.fresh.remove(i)

    def _preempt(self, i: int) -> tuple[int, int]:
        kv = self.kv[i]
        if self.joined_at[i] >= 0 or self.done[i] or kv == 0 or not self.rules.preemption:
            raise _CannotVouch
        self.preemptions[i] += 1
        self.dropped[i] += kv
        self.kv_tokens -= kv
        self.kv_blocks -= self._blocks(kv)
        self.kv[i], self.ready[i] = 0, False
        return i, kv

    def _features(self, run: Run) -> tuple[Features, Features, tuple[Entry, ...], int]:
        """Features of the first batch, their growth, the fills, and the latest arrival among them."""
        n, reads = (self.decoders, self.reads) if run.decode else (0, 0)
        fills: list[Entry] = []
        fill_tokens = square = prefill_reads = square_step = arrival = 0
        for i, c in run.fills:
            m = self.kv[i]
            rest = self.inputs[i] + self.generated[i] - m
            generates = c * run.repeat == rest
            if (
                self.joined_at[i] >= 0 or self.done[i] or self.ready[i] or c < 1 or c * run.repeat > rest
                or i in run.preempt or (not self.rules.chunking and c != rest)
            ):  # fmt: skip
                raise _CannotVouch
            fills.append(Entry(i, c, m, REFILL if self.preemptions[i] else PREFILL, generates))
            fill_tokens += c
            square += c * (c + 2 * m)
            prefill_reads += m
            square_step += 2 * c * c
            arrival = max(arrival, self.arrival_ticks[i])
        if len(fills) > 1 and len({e.request for e in fills}) < len(fills):
            raise _CannotVouch
        any_entry, p = int(bool(n or fills)), len(fills)
        first = Features(any_entry, int(p > 0), int(n > 0), p, n, n + fill_tokens, square, prefill_reads, reads)
        step = Features(0, 0, 0, 0, 0, 0, square_step, fill_tokens, n)
        return first, step, tuple(fills), arrival

    def _start(self, start_ns: int | None, latest_arrival: int) -> int:
        earliest = max(self.now_ticks, latest_arrival)
        if start_ns is None or start_ns == ns_from_ticks(earliest):
            return earliest
        if start_ns * TICKS_PER_NS < earliest:
            raise _CannotVouch
        return start_ns * TICKS_PER_NS

    def _decode(self, repeat: int, end: int, completed: list[int]) -> None:
        """Advance all decoders by ``repeat`` steps."""
        for i in self.fresh:
            if self.last_token_batch[i] >= 0:
                self.token_pairs.append((self.last_token_batch[i], self.batches))
        self.fresh.clear()
        self.kv_tokens += repeat * self.decoders
        self.kv_blocks += self._new_blocks(repeat)
        self.reads += repeat * self.decoders
        self.steps += repeat
        self.last_decode_batch = self.batches + repeat - 1
        while self.completions and self.completions[0][0] <= self.steps:
            finish, i = heappop(self.completions)
            if self.joined_at[i] < 0 or self.finish[i] != finish:
                continue
            if finish < self.steps:
                raise _CannotVouch
            self._leave(i)
            self.lingering.add(i)
            self._complete(i, end, completed)

    def _new_blocks(self, repeat: int) -> int:
        """Blocks the decoders' next steps open: a request opens one when its last is full."""
        size = self.block_size
        if size == 1:
            return repeat * self.decoders
        cycles, rest = divmod(repeat, size)
        return cycles * self.decoders + sum(self.by_residue[(self.steps + t) % size] for t in range(rest))

    def _fill(self, entry: Entry, repeat: int, end: int, last_batch: int, completed: list[int]) -> None:
        i, tokens = entry.request, entry.tokens * repeat
        self.kv_blocks += self._blocks(entry.kv_before + tokens) - self._blocks(entry.kv_before)
        self.kv_tokens += tokens
        self.kv[i] += tokens
        self.processed[i] += tokens
        if not entry.generates:
            return
        self.ready[i] = True
        self.generated[i] += 1
        if self.first_token_ticks[i] is None:
            self.first_token_ticks[i] = end
        if self.last_token_batch[i] >= 0:
            self.token_pairs.append((self.last_token_batch[i], last_batch))
        self.last_token_batch[i] = last_batch
        if self.generated[i] == self.outputs[i]:
            self._complete(i, end, completed)

    def _complete(self, i: int, end: int, completed: list[int]) -> None:
        self.done[i] = True
        self.completed_ticks[i] = end
        completed.append(i)
