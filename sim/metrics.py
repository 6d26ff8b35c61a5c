"""What a run was like: makespan, latencies, throughput, goodput, recomputation, KV use and fairness.

Times are exact in the replay and become floats (ms) here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.clock import TICKS_PER_MS
from sim.engine import Simulation
from sim.replay import Replay

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
    spans = zip(replay.first_token_ticks, replay.completed_ticks, replay.instance.requests, strict=True)
    return np.array([(last - first) / (TICKS_PER_MS * (r.output_tokens - 1)) for first, last, r in spans
                     if first is not None and last is not None and r.output_tokens > 1])  # fmt: skip


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
