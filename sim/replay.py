"""The rules of a schedule, in one place: everything called a schedule has been replayed here.

Kim et al. (arXiv:2411.07447), section 7.1, equations 7-10, with these readings. In a batch every unfinished request
processes c tokens
(1 <= c <= s - m, generating a token exactly when c = s - m), holds, or is preempted (KVs after: 0). Afterwards the
tokens are at most C, the KVs at most M, the processed requests at most max_num_seqs. A request is complete after O
tokens; its KVs are free from the next batch on. Time is exact (`sim.clock`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from sim.clock import TICKS_PER_NS, ms_from_ticks, ns_from_ticks
from sim.cost.model import CostModel, Features, load_cost_model
from sim.instance import Instance
from sim.prefixes import Prefixes
from sim.schedule import Batch, Schedule

if TYPE_CHECKING:
    from sim.cost.runs import RunTimer
    from sim.run_log import RunLog


class RuleError(ValueError):
    """A schedule breaks a rule.

    Attributes
    ----------
    rule
        Short name of the rule ("kv-capacity").
    batch
        Index of the batch, or None where the whole schedule is meant.
    request
        Index of the request, or None where the whole batch is meant.
    """

    def __init__(self, rule: str, detail: str, batch: int | None = None, request: int | None = None) -> None:
        self.rule, self.detail, self.batch, self.request = rule, detail, batch, request
        where = "" if batch is None else f"batch {batch}"
        where += "" if request is None else f"{', ' if where else ''}request {request}"
        super().__init__(f"{where + ': ' if where else ''}{detail} [rule: {rule}]")


@dataclass(frozen=True, slots=True)
class SwapLink:
    """The link over which KVs move between GPU and host memory.

    Parameters
    ----------
    latency_ticks
        Per transfer of one request.
    ticks_per_kv_token
        Bytes of one token's KVs over the bandwidth.
    overlap
        Whether transfers run beside the batch (its time is then the longer of the two) instead of before it.
    """

    latency_ticks: int
    ticks_per_kv_token: int
    overlap: bool = False

    def transfer_ticks(self, kv_tokens: int) -> int:
        """Time to move one request's KVs one way."""
        return self.latency_ticks + self.ticks_per_kv_token * kv_tokens

    def add(self, ticks: int, serial: int, beside: int) -> tuple[int, int]:
        """Count a transfer among those before the batch or among those beside it."""
        return (serial, beside + ticks) if self.overlap else (serial + ticks, beside)


@dataclass(frozen=True, slots=True)
class Rules:
    """Switches on the rules; the defaults are the paper's.

    Parameters
    ----------
    allow_empty
        Accept batches that process nothing (real engines make such calls; they take no time).
    preemption, chunking, hybrid, holding
        False forbids preempting, fills split over batches, prefill and decode in one batch, or that whoever holds KVs
        is left out of a batch.
    swap
        The link, where KVs may be swapped to host memory; None forbids it.
    abandon
        Whether requests may leave unfinished.
    prefix_sharing
        Whether requests that name the same prefix share its KVs (`sim.prefixes`).
    receive
        The link over which the KVs of prefilled requests arrive; ``swap`` where it is None.
    """

    allow_empty: bool = False
    preemption: bool = True
    chunking: bool = True
    hybrid: bool = True
    swap: SwapLink | None = None
    abandon: bool = False
    prefix_sharing: bool = False
    receive: SwapLink | None = None
    holding: bool = True


PAPER_RULES = Rules()
ENGINE_RULES = Rules(allow_empty=True)

PREFILL, REFILL, DECODE = "prefill", "refill", "decode"


@dataclass(frozen=True, slots=True)
class Entry:
    """One request's part in a batch."""

    request: int
    tokens: int
    kv_before: int
    kind: str
    """"prefill", "refill" (a fill after a preemption) or "decode"."""
    generates: bool


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What one batch did and when."""

    start_ticks: int
    end_ticks: int
    features: Features
    entries: tuple[Entry, ...]
    preempted: tuple[tuple[int, int], ...]
    """(request, KVs dropped) in order."""
    completed: tuple[int, ...]
    kv_tokens: int
    """KVs resident after the batch, M counted without block rounding."""
    kv_blocks: int
    """Blocks occupied after the batch."""


class State:
    """Where every request stands between two batches; `apply` is the only way forward.

    Attributes
    ----------
    generated, kv
        Tokens generated k and KVs resident m, per request.
    ready
        Whether the request generated a token since it was last filled (its next step is a decode step).
    done
        Whether the request is complete or has left.
    """

    def __init__(self, instance: Instance, cost: CostModel, rules: Rules = PAPER_RULES) -> None:
        n = len(instance.requests)
        self.instance, self.cost, self.rules = instance, cost, rules
        self.inputs = [r.input_tokens for r in instance.requests]
        self.outputs = [r.output_tokens for r in instance.requests]
        self.arrival_ticks = [r.arrival_ns * TICKS_PER_NS for r in instance.requests]
        self.generated = [0] * n
        self.kv = [0] * n
        self.ready = [False] * n
        self.done = [False] * n
        self.abandoned = [False] * n
        self.host_kv = [0] * n
        self.host_ready = [False] * n
        self.preemptions = [0] * n
        self.dropped_kv = [0] * n
        self.first_token_ticks: list[int | None] = [None] * n
        self.completed_ticks: list[int | None] = [None] * n
        self.now_ticks = 0
        self.batches = 0
        self.kv_tokens = 0
        self.kv_blocks = 0
        self.unfinished = n
        self._freed: list[int] = []
        self.prefixes = Prefixes(instance) if rules.prefix_sharing else None
        self.given_kv = [0] * n
        self.received = [False] * n
        for i, request in enumerate(instance.requests):
            if request.prefilled:
                self.generated[i] = 1
                self.host_kv[i] = self.given_kv[i] = request.input_tokens
                self.host_ready[i] = self.received[i] = True
                self.first_token_ticks[i] = self.arrival_ticks[i]

    def sequence_tokens(self, i: int) -> int:
        """s = I + k, all tokens known of a request."""
        return self.inputs[i] + self.generated[i]

    def remaining_fill(self, i: int) -> int:
        """s - m, tokens to process until the next token comes out (1 for a decode step)."""
        sequence = self.inputs[i] + self.generated[i]
        if self.kv[i] == 0 and self.prefixes is not None:
            return sequence - self.prefixes.hit(i)
        return sequence - self.kv[i]

    def own_kv(self, i: int) -> int:
        """KVs resident for this request alone: all but those of a shared prefix."""
        return self.kv[i] if self.prefixes is None else max(0, self.kv[i] - self.prefixes.attached[i])

    def place(self, i: int, generated: int, kv: int, *, ready: bool) -> None:
        """Put a request where a part of a schedule finds it: tokens generated, KVs, whether it decodes next."""
        self.generated[i], self.ready[i] = generated, ready
        self._set_kv(i, kv)

    def _set_kv(self, i: int, kv: int) -> None:
        if self.prefixes is None:
            before, self.kv[i] = self.kv[i], kv
            self._occupy(before, kv)
            return
        before = self.own_kv(i)
        if kv == 0:
            self.prefixes.detach(i)
        self.kv[i] = kv
        self._occupy(before, self.own_kv(i))

    def _occupy(self, before: int, after: int) -> None:
        size = self.instance.block_size
        self.kv_tokens += after - before
        self.kv_blocks += -(-after // size) - -(-before // size)

    def _share(self, i: int) -> None:
        """Stand a request that holds its prefix on the shared KVs."""
        assert self.prefixes is not None
        before = self.own_kv(i)
        new = self.prefixes.attach(i)
        self._occupy(before, self.own_kv(i))
        self._occupy(0, new)

    def _link(self, i: int, j: int) -> SwapLink:
        link = self.rules.receive if self.received[i] and self.rules.receive is not None else self.rules.swap
        if link is None:
            raise RuleError("no-swap", "swapping is not allowed here", j, i)
        return link

    def release_completed(self) -> None:
        """Free the KVs of requests completed in the last batch (`apply` does this first)."""
        for i in self._freed:
            self._set_kv(i, 0)
        self._freed.clear()

    def apply(self, batch: Batch) -> BatchRecord:
        """Carry out one batch.

        Raises
        ------
        RuleError
            If it breaks a rule; the state is then of no further use.
        """
        j, rules, instance = self.batches, self.rules, self.instance
        self.release_completed()
        touched: set[int] = set()
        requests = len(self.done)

        def claim(i: int) -> None:
            if not 0 <= i < requests:
                raise RuleError("request", f"no such request; there are {requests}", j, i)
            if i in touched:
                raise RuleError("one-action", "request named twice in a batch", j, i)
            if self.done[i]:
                raise RuleError("complete", "request is already complete", j, i)
            touched.add(i)

        serial_ticks = beside_ticks = 0
        dropped: list[tuple[int, int]] = []
        for i in batch.preempt:
            claim(i)
            if not rules.preemption:
                raise RuleError("no-preemption", "preemption is forbidden here", j, i)
            if self.kv[i] == 0 and self.host_kv[i] == 0:
                raise RuleError("preempt-resident", "only a request that holds KVs can be preempted", j, i)
            lost = self.own_kv(i) if self.kv[i] else self.host_kv[i]
            dropped.append((i, lost))
            self.preemptions[i] += 1
            self.dropped_kv[i] += lost
            self._set_kv(i, 0)
            self.host_kv[i], self.ready[i], self.host_ready[i] = 0, False, False
        for i in (*batch.swap_out, *batch.swap_in):
            if not 0 <= i < requests:
                raise RuleError("request", f"no such request; there are {requests}", j, i)
        for i in batch.swap_out:
            if rules.swap is None:
                raise RuleError("no-swap", "swapping is not allowed here", j, i)
            claim(i)
            if self.own_kv(i) != self.kv[i]:
                raise RuleError("swap-shared", "a request that shares a prefix cannot be swapped out", j, i)
            if self.kv[i] == 0:
                raise RuleError("swap-resident", "only a request that holds KVs can be swapped out", j, i)
            moved = rules.swap.transfer_ticks(self.kv[i])
            serial_ticks, beside_ticks = rules.swap.add(moved, serial_ticks, beside_ticks)
            self.host_kv[i], self.host_ready[i] = self.kv[i], self.ready[i]
            self._set_kv(i, 0)
            self.ready[i] = False
        for i in batch.abandon:
            claim(i)
            if not rules.abandon:
                raise RuleError("no-abandon", "abandoning is not allowed here", j, i)
            self._set_kv(i, 0)
            self.host_kv[i] = 0
            self.done[i] = self.abandoned[i] = True
            self.unfinished -= 1
        swapped_in: set[int] = set()
        for i in batch.swap_in:
            link = self._link(i, j)
            if self.host_kv[i] == 0 or i in touched or i in swapped_in:
                raise RuleError("swap-host", "only a request with KVs in host memory can be swapped in", j, i)
            serial_ticks, beside_ticks = link.add(link.transfer_ticks(self.host_kv[i]), serial_ticks, beside_ticks)
            self.received[i] = False
            self._set_kv(i, self.host_kv[i])
            self.ready[i] = self.host_ready[i]
            self.host_kv[i], self.host_ready[i] = 0, False
            swapped_in.add(i)

        for name in batch.drop_prefix:
            if self.prefixes is None:
                raise RuleError("no-prefixes", "prefixes are not shared here", j)
            tokens_dropped = self.prefixes.drop(name)
            if tokens_dropped is None:
                raise RuleError("prefix-unused", f"only a resident prefix that nobody uses can be dropped: {name!r}", j)
            self._occupy(tokens_dropped, 0)
        shared_before = set() if self.prefixes is None else set(self.prefixes.resident)

        entries: list[Entry] = []
        n_prefill = n_decode = tokens = square = prefill_reads = decode_reads = 0
        latest_arrival = max((self.arrival_ticks[i] for i in swapped_in), default=0)
        generating: list[int] = []
        for i, c in batch.process:
            claim(i)
            m = self.kv[i]
            if m == 0 and self.prefixes is not None and self.prefixes.names[i] in shared_before:
                m = self.prefixes.hit(i)
                if self.first_token_ticks[i] is None and not self.preemptions[i]:
                    self.given_kv[i] = m
                self._share(i)
                self._set_kv(i, m)
            rest = self.inputs[i] + self.generated[i] - m
            if not 1 <= c <= rest:
                raise RuleError("tokens", f"processes {c} tokens; must be from 1 to s - m = {rest}", j, i)
            if self.host_kv[i]:
                raise RuleError("swap-host", "its KVs are in host memory: swap in or preempt first", j, i)
            generates = c == rest
            if not generates and not rules.chunking:
                raise RuleError("no-chunking", "a fill must be processed whole here", j, i)
            if self.ready[i]:
                kind = DECODE
                n_decode += 1
                decode_reads += m
            else:
                kind = REFILL if self.preemptions[i] else PREFILL
                n_prefill += 1
                square += c * c + 2 * c * m
                prefill_reads += m
            tokens += c
            entries.append(Entry(i, c, m, kind, generates))
            latest_arrival = max(latest_arrival, self.arrival_ticks[i])
            self._set_kv(i, m + c)
            if self.prefixes is not None and self.prefixes.can_attach(i, m + c):
                self._share(i)
            if generates:
                generating.append(i)
        if not entries and not rules.allow_empty:
            raise RuleError("non-empty", "a batch must process at least one token", j)
        if not rules.holding:
            self._require_everybody(touched, j)
        if n_prefill and n_decode and not rules.hybrid:
            raise RuleError("no-hybrid", "prefill and decode in one batch are forbidden here", j)
        if tokens > instance.token_budget:
            raise RuleError("token-budget", f"processes {tokens} tokens, more than C = {instance.token_budget}", j)
        if instance.max_num_seqs is not None and len(entries) > instance.max_num_seqs:
            raise RuleError("max-num-seqs", f"processes {len(entries)} requests, more than {instance.max_num_seqs}", j)
        if self.kv_blocks > instance.kv_blocks:
            raise RuleError(
                "kv-capacity",
                f"{self.kv_tokens} KV tokens in {self.kv_blocks} blocks after the batch, more than M = "
                f"{instance.kv_capacity_tokens} ({instance.kv_blocks} blocks of {instance.block_size})", j,
            )  # fmt: skip

        features = Features(int(bool(entries)), int(n_prefill > 0), int(n_decode > 0), n_prefill, n_decode, tokens,
                            square, prefill_reads, decode_reads)  # fmt: skip
        start = self._start(batch, latest_arrival, j)
        compute = self.cost.batch_ticks(features) if entries else 0
        end = start + serial_ticks + max(compute, beside_ticks)
        completed = []
        for i in generating:
            self.ready[i] = True
            self.generated[i] += 1
            if self.first_token_ticks[i] is None:
                self.first_token_ticks[i] = end
            if self.generated[i] == self.outputs[i]:
                self.done[i] = True
                self.completed_ticks[i] = end
                completed.append(i)
                self._freed.append(i)
        self.unfinished -= len(completed)
        self.now_ticks = end
        self.batches += 1
        return BatchRecord(start, end, features, tuple(entries), tuple(dropped), tuple(completed), self.kv_tokens,
                           self.kv_blocks)  # fmt: skip

    def repeat(self, record: BatchRecord, times: int, timer: RunTimer) -> None:
        """Carry out the last batch, which must have been of decode steps alone, so many times again.

        Raises
        ------
        RuleError
            If a request would be complete before the end, or memory does not last.
        """
        n = len(record.entries)
        if any(e.kind != DECODE for e in record.entries) or record.completed or record.preempted or self._freed:
            raise RuleError("repeat", "only a batch of decode steps can be repeated at once", self.batches)
        reads = sum(self.kv[e.request] for e in record.entries)
        first = Features(1, 0, 1, 0, n, n, 0, 0, reads)
        for entry in record.entries:
            i = entry.request
            if self.generated[i] + times >= self.outputs[i]:
                raise RuleError("complete", f"completes within {times} more batches", self.batches, i)
            self._set_kv(i, self.kv[i] + times)
            self.generated[i] += times
        if self.kv_blocks > self.instance.kv_blocks:
            raise RuleError("kv-capacity", f"{self.kv_blocks} blocks after {times} more batches", self.batches)
        self.now_ticks += timer.total(first, Features(0, 0, 0, 0, 0, 0, 0, 0, n), times)
        self.batches += times

    def _require_everybody(self, touched: set[int], j: int) -> None:
        for i, kv in enumerate(self.kv):
            if kv and not self.done[i] and i not in touched:
                raise RuleError("no-holding", "holds KVs and is left out of the batch", j, i)

    def _start(self, batch: Batch, latest_arrival: int, j: int) -> int:
        """Exact start. A file's nanoseconds are rounded up, so a start within the same nanosecond is back to back."""
        earliest = max(self.now_ticks, latest_arrival)
        if batch.start_ns is None or batch.start_ns == ns_from_ticks(earliest):
            return earliest
        start = batch.start_ns * TICKS_PER_NS
        if start < self.now_ticks:
            raise RuleError("order", f"starts at {batch.start_ns} ns, before the previous batch ends at "
                                     f"{ns_from_ticks(self.now_ticks)} ns", j)  # fmt: skip
        if start < latest_arrival:
            late = next(i for i, _ in batch.process if self.arrival_ticks[i] == latest_arrival)
            raise RuleError("arrival", f"starts at {batch.start_ns} ns, before the request arrives", j, late)
        return start


@dataclass(frozen=True, slots=True)
class Replay:
    """A checked and timed schedule.

    Attributes
    ----------
    records
        One per batch.
    makespan_ticks
        End of the last batch, from time zero.
    first_token_ticks, completed_ticks
        Per request; None where it never happened (infeasible or abandoned requests).
    preemptions
        How often each request was preempted.
    refilled_tokens
        Per request, tokens processed again because their KVs had been dropped: sum of c - (I + O - 1).
    """

    instance: Instance
    schedule: Schedule
    records: Sequence[BatchRecord] = field(repr=False)
    makespan_ticks: int
    first_token_ticks: tuple[int | None, ...] = field(repr=False)
    completed_ticks: tuple[int | None, ...] = field(repr=False)
    preemptions: tuple[int, ...] = field(repr=False)
    refilled_tokens: tuple[int, ...] = field(repr=False)
    log: RunLog | None = field(default=None, repr=False, compare=False)
    """Records by run, where the schedule is compact."""

    @property
    def makespan_ms(self) -> float:
        """End of the last batch in ms."""
        return ms_from_ticks(self.makespan_ticks)

    @property
    def times_ns(self) -> list[tuple[int, int]]:
        """(start, end) of each batch in whole nanoseconds, rounded up."""
        if self.log is not None:
            return [(ns_from_ticks(start), ns_from_ticks(end)) for start, end in self.log.times_ticks()]
        return [(ns_from_ticks(r.start_ticks), ns_from_ticks(r.end_ticks)) for r in self.records]

    def ttft_ticks(self) -> list[int | None]:
        """Time to first token per request: end of the batch that generates it minus arrival."""
        return [None if t is None else t - r.arrival_ns * TICKS_PER_NS
                for t, r in zip(self.first_token_ticks, self.instance.requests, strict=True)]  # fmt: skip

    def e2e_ticks(self) -> list[int | None]:
        """Completion minus arrival per request."""
        return [None if t is None else t - r.arrival_ns * TICKS_PER_NS
                for t, r in zip(self.completed_ticks, self.instance.requests, strict=True)]  # fmt: skip

    def tpot_ticks(self) -> list[Fraction | None]:
        """Time per output token after the first; None for O = 1."""
        return [None if first is None or last is None or r.output_tokens == 1
                else Fraction(last - first, r.output_tokens - 1)
                for first, last, r in zip(self.first_token_ticks, self.completed_ticks, self.instance.requests,
                                          strict=True)]  # fmt: skip


def finish(state: State, schedule: Schedule, records: Sequence[BatchRecord]) -> Replay:
    """Close a state that has seen all batches of a schedule into a `Replay`."""
    processed = [0] * len(state.inputs)
    for record in records:
        for entry in record.entries:
            processed[entry.request] += entry.tokens
    refilled = []
    for i, c in enumerate(processed):
        sequence = state.inputs[i] + state.generated[i]
        again = c + state.given_kv[i] - (sequence - 1) if state.generated[i] else min(c, state.dropped_kv[i])
        refilled.append(max(0, again))
    return Replay(state.instance, schedule, tuple(records), state.now_ticks, tuple(state.first_token_ticks),
                  tuple(state.completed_ticks), tuple(state.preemptions), tuple(refilled))  # fmt: skip


def replay(
    instance: Instance,
    schedule: Schedule,
    *,
    rules: Rules = PAPER_RULES,
    cost: CostModel | None = None,
    claimed_ns: Sequence[tuple[int | None, int | None]] | None = None,
    complete: bool = True,
) -> Replay:
    """Check a schedule against the rules and time it exactly.

    Parameters
    ----------
    cost
        Cost model; the instance's by default.
    claimed_ns
        (start, end) per batch as a file states them; each given end must be the replayed one.
    complete
        Whether every request must be finished (or abandoned) at the end.

    Raises
    ------
    RuleError
        Naming the rule, the batch and the request.
    """
    cost = cost or load_cost_model(instance.cost_model)
    if claimed_ns is None:
        from sim.replay_runs import replay_runs

        at_once = replay_runs(instance, schedule, cost, rules, complete=complete)
        if at_once is not None:
            return at_once
    state = State(instance, cost, rules)
    records = []
    for j, batch in enumerate(schedule.batches):
        record = state.apply(batch)
        if claimed_ns is not None:
            _check_claim(claimed_ns[j], record, j)
        records.append(record)
    if complete:
        for i, done in enumerate(state.done):
            if not done:
                raise RuleError("termination", f"generates {state.generated[i]} of {state.outputs[i]} tokens",
                                request=i)  # fmt: skip
    return finish(state, schedule, records)


def _check_claim(claimed: tuple[int | None, int | None], record: BatchRecord, j: int) -> None:
    for word, value, exact in zip(("starts", "ends"), claimed, (record.start_ticks, record.end_ticks), strict=True):
        if value is not None and value != ns_from_ticks(exact):
            raise RuleError("times", f"{word} at {value} ns; replayed: {ns_from_ticks(exact)} ns", j)
