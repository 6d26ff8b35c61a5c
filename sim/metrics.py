"""What a run was like: makespan, latencies, throughput, goodput, recomputation, KV use and fairness.

Times are exact in the replay and become floats (ms) here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel, Features, load_cost_model
from sim.cost.runs import RunTimer
from sim.engine import Simulation
from sim.fairness import inversions, jain, slowdowns
from sim.replay import REFILL, Replay
from sim.run_log import RunLog, RunRecord, run_log

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures a comparison of schedules shows; milliseconds, None where no request has the figure."""

    makespan_ms: float
    batches: int
    preemptions: int
    refilled_tokens: int
    ttft_mean_ms: float | None
    tpot_mean_ms: float | None


def summary(run: Simulation | Replay) -> Summary:
    """Key figures of a simulation or of any replayed schedule.

    Examples
    --------
    >>> from sim.engine import simulate
    >>> from sim.instance import load_instance
    >>> summary(simulate(load_instance("paper-7.2-i0032"), "vllm")).preemptions
    2
    """
    replay = run.replay if isinstance(run, Simulation) else run
    return Summary(
        replay.makespan_ms, len(replay.schedule), sum(replay.preemptions), sum(replay.refilled_tokens),
        mean(ttft_ms(replay)), mean(tpot_ms(replay)),
    )  # fmt: skip


def mean(values: Floats) -> float | None:
    """Mean, or None of nothing."""
    return float(values.mean()) if len(values) else None


def ttft_ms(replay: Replay) -> Floats:
    """Time to first token of every request that has one."""
    return _ms(replay.ttft_ticks())


def e2e_ms(replay: Replay) -> Floats:
    """End-to-end latency of every completed request."""
    return _ms(replay.e2e_ticks())


def tpot_ms(replay: Replay) -> Floats:
    """Time per output token after the first, of every completed request with O > 1."""
    return np.array([t for t in tpot_of_requests_ms(replay) if t is not None])


def tpot_of_requests_ms(replay: Replay) -> list[float | None]:
    """Time per output token after the first, per request; None where it has none."""
    spans = zip(replay.first_token_ticks, replay.completed_ticks, replay.instance.requests, strict=True)
    return [None if first is None or last is None or r.output_tokens == 1
            else (last - first) / (TICKS_PER_MS * (r.output_tokens - 1)) for first, last, r in spans]  # fmt: skip


def _ms(ticks: Iterable[int | None]) -> Floats:
    return np.array([t / TICKS_PER_MS for t in ticks if t is not None])


@dataclass(frozen=True, slots=True)
class Distribution:
    """A latency over all requests (or tokens), in milliseconds."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float


def distribution(values: Floats, weights: Sequence[int] | npt.NDArray[np.int64] | None = None) -> Distribution | None:
    """Mean and nearest-rank percentiles; None of nothing.

    Parameters
    ----------
    weights
        How often each value occurs; once each by default.
    """
    if not len(values):
        return None
    counts = np.ones(len(values), np.int64) if weights is None else np.asarray(weights, np.int64)
    order = np.argsort(values, kind="stable")
    ranks = np.cumsum(counts[order])
    total = int(ranks[-1])
    p50, p95, p99 = (
        float(values[order[np.searchsorted(ranks, -(-total * percent // 100))]]) for percent in (50, 95, 99)
    )
    return Distribution(float(values @ counts / total), p50, p95, p99, float(values.max()))


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits a request must keep to count as good; None for no limit (ms)."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of the requests of one class, or of all.

    Parameters
    ----------
    requests, completed
        Requests in the class, and how many finished.
    good_share
        Share of all its requests that finished within the SLO; None without an SLO.
    """

    requests: int
    completed: int
    ttft: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None
    good_share: float | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """One run in figures.

    Parameters
    ----------
    summary
        The key figures.
    latencies
        Of all requests.
    itl
        Times between neighbouring tokens of a request.
    by_priority
        Latencies per priority, most urgent first.
    preempted_requests
        Requests preempted at least once.
    recompute_ms, recompute_share
        The recompute tax: time that refills add to their batches beyond the decode steps that were due anyway, and its
        share of the time in batches.
    busy_share
        Time in batches over the makespan.
    requests_per_s, output_tokens_per_s, processed_tokens_per_s, good_requests_per_s
        Over the makespan; the last one is the goodput.
    batch_requests_mean, batch_requests_max, batch_tokens_mean
        Size of a batch.
    kv_mean_share, kv_max_share
        KV tokens over M: averaged over the makespan, and blocks after the fullest batch over all blocks.
    slowdown_jain, slowdown_max
        Slowdown is a request's E2E over its time alone on the machine; Jain's index of it is 1 when all are equal.
    order_inversions
        Share of pairs of requests in which the later one (in order of arrival) got its first token earlier.
    """

    summary: Summary
    latencies: Latencies
    itl: Distribution | None
    by_priority: dict[int, Latencies]
    preempted_requests: int
    recompute_ms: float
    recompute_share: float | None
    busy_share: float | None
    requests_per_s: float | None
    output_tokens_per_s: float | None
    processed_tokens_per_s: float | None
    good_requests_per_s: float | None
    batch_requests_mean: float | None
    batch_requests_max: int
    batch_tokens_mean: float | None
    kv_mean_share: float | None
    kv_max_share: float
    slowdown_jain: float | None
    slowdown_max: float | None
    order_inversions: float | None


def measure(run: Simulation | Replay, *, cost: CostModel | None = None, slo: Slo | None = None) -> Metrics:
    """All figures of a run.

    Parameters
    ----------
    cost
        The cost model it ran under; the instance's by default.
    slo
        For goodput.
    """
    replay = run.replay if isinstance(run, Simulation) else run
    instance = replay.instance
    timer = RunTimer(cost or load_cost_model(instance.cost_model))
    log = run_log(replay)
    makespan_s = replay.makespan_ticks / TICKS_PER_MS / 1000

    def per_s(amount: float) -> float | None:
        return amount / makespan_s if makespan_s else None

    everybody = list(range(len(instance.requests)))
    latencies = _latencies(replay, everybody, slo)
    priorities = sorted({r.priority for r in instance.requests})
    by_priority = {p: _latencies(replay, [i for i in everybody if instance.requests[i].priority == p], slo)
                   for p in priorities}  # fmt: skip
    batches = len(replay.schedule)
    sizes = [(r.features.n_prefill + r.features.n_decode, r.repeat) for r in log.records]
    processed = sum(r.features.tokens * r.repeat for r in log.records)
    busy = sum(end - start for start, end in _spans(log.records))
    recompute = sum(_recompute_ticks(r, timer) for r in log.records if any(e.kind == REFILL for e in r.fills))
    slow = slowdowns(replay, timer)
    generated = sum(r.output_tokens for r, t in zip(instance.requests, replay.completed_ticks, strict=True)
                    if t is not None)  # fmt: skip
    good = None if latencies.good_share is None else per_s(latencies.good_share * len(everybody))
    return Metrics(
        summary=summary(replay),
        latencies=latencies,
        itl=_itl(log),
        by_priority=by_priority,
        preempted_requests=sum(p > 0 for p in replay.preemptions),
        recompute_ms=recompute / TICKS_PER_MS,
        recompute_share=recompute / busy if busy else None,
        busy_share=busy / replay.makespan_ticks if replay.makespan_ticks else None,
        requests_per_s=per_s(latencies.completed),
        output_tokens_per_s=per_s(generated),
        processed_tokens_per_s=per_s(processed),
        good_requests_per_s=good,
        batch_requests_mean=sum(n * k for n, k in sizes) / batches if batches else None,
        batch_requests_max=max((n for n, _ in sizes), default=0),
        batch_tokens_mean=processed / batches if batches else None,
        kv_mean_share=_kv_time(log) / (instance.kv_capacity_tokens * replay.makespan_ticks) if busy else None,
        kv_max_share=max((r.kv_blocks for r in log.records), default=0) / max(1, instance.kv_blocks),
        slowdown_jain=jain(slow),
        slowdown_max=float(slow.max()) if len(slow) else None,
        order_inversions=inversions(replay),
    )


def _latencies(replay: Replay, members: list[int], slo: Slo | None) -> Latencies:
    ttft, e2e, tpot = replay.ttft_ticks(), replay.e2e_ticks(), tpot_of_requests_ms(replay)
    good = None
    if slo is not None and members:
        good = sum(_is_good(ttft[i], e2e[i], tpot[i], slo) for i in members) / len(members)
    return Latencies(
        requests=len(members),
        completed=sum(e2e[i] is not None for i in members),
        ttft=distribution(_ms(ttft[i] for i in members)),
        tpot=distribution(np.array([t for i in members if (t := tpot[i]) is not None])),
        e2e=distribution(_ms(e2e[i] for i in members)),
        good_share=good,
    )


def _is_good(ttft: int | None, e2e: int | None, tpot_ms: float | None, slo: Slo) -> bool:
    """Whether a request finished within the limits; one output token has no TPOT to miss."""
    if ttft is None or e2e is None:
        return False
    in_time = slo.ttft_ms is None or ttft <= slo.ttft_ms * TICKS_PER_MS
    return in_time and (slo.tpot_ms is None or tpot_ms is None or tpot_ms <= slo.tpot_ms)


def _spans(records: Sequence[RunRecord]) -> Iterable[tuple[int, int]]:
    for r in records:
        took = sum(n * first + growth * (n * (n - 1) // 2) for n, first, growth in r.stretches)
        yield r.start_ticks, r.start_ticks + took


def batch_ends_ms(log: RunLog) -> Floats:
    """End of every batch."""
    ends: list[Floats] = []
    for record in log.records:
        start = record.start_ticks
        for batches, first, growth in record.stretches:
            k = np.arange(1, batches + 1, dtype=np.float64)
            ends.append(start / TICKS_PER_MS + (first * k + growth * (k * (k - 1) / 2)) / TICKS_PER_MS)
            start += batches * first + growth * (batches * (batches - 1) // 2)
    return np.concatenate(ends) if ends else np.array([])


def _itl(log: RunLog) -> Distribution | None:
    """Stints are differences between neighbouring decode batches, each counted once per request that was in both."""
    ends = batch_ends_ms(log)
    decoding = np.concatenate(
        [np.arange(r.first_batch, r.first_batch + r.repeat) for r in log.records if r.features.n_decode]
        or [np.array([], np.int64)]
    )  # fmt: skip
    counts = np.zeros(len(decoding) + 1, np.int64)
    for first, last in log.stints:
        counts[first] += 1
        counts[last] -= 1
    times = np.cumsum(counts)[1:-1] if len(decoding) else np.array([], np.int64)
    gaps = np.diff(ends[decoding])
    pairs = np.array(log.token_pairs, np.int64).reshape(-1, 2)
    values = np.concatenate([gaps[times > 0], ends[pairs[:, 1]] - ends[pairs[:, 0]]])
    return distribution(values, np.concatenate([times[times > 0], np.ones(len(pairs), np.int64)]))


def _kv_time(log: RunLog) -> float:
    """Integral of the KV tokens after each batch over the batch's time (tokens x ticks)."""
    total = 0
    for record in log.records:
        kv, tokens = record.kv_tokens, record.features.tokens
        for n, first, growth in record.stretches:
            ones, squares = n * (n - 1) // 2, (n - 1) * n * (2 * n - 1) // 6
            total += kv * first * n + (kv * growth + tokens * first) * ones + tokens * growth * squares
            kv += tokens * n
    return float(total)


def _recompute_ticks(record: RunRecord, timer: RunTimer) -> int:
    """Time the refills of a run add, against a decode step in the batch in which each of them generates."""
    refills = [e for e in record.fills if e.kind == REFILL]
    kept = [e for e in record.fills if e.kind != REFILL]
    first, repeat = record.features, record.repeat
    without = [0, 0, 0]
    for e in kept:
        without = [without[0] + e.tokens * (e.tokens + 2 * e.kv_before), without[1] + e.kv_before,
                   without[2] + 2 * e.tokens**2]  # fmt: skip
    p, n = len(kept), first.n_decode
    tokens = n + sum(e.tokens for e in kept)
    base = Features(int(p + n > 0), int(p > 0), int(n > 0), p, n, tokens, without[0], without[1], first.decode_reads)
    grow = Features(0, 0, 0, 0, 0, 0, without[2], sum(e.tokens for e in kept), n)
    spent = timer.total(first, record.step, repeat)
    due = timer.total(base, grow, repeat - 1) if repeat > 1 and p + n else 0
    last = Features(*(a + (repeat - 1) * b for a, b in zip(base, grow, strict=True)))
    reads = [e.kv_before + e.tokens * repeat - 1 for e in refills if e.generates]
    if reads:
        last = last._replace(batch=1, decode_batch=1, n_decode=n + len(reads), tokens=last.tokens + len(reads),
                             decode_reads=last.decode_reads + sum(reads))  # fmt: skip
    return spent - due - (timer.total(last, grow, 1) if last.batch else 0)
