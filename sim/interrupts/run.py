"""Run one policy on one drawn workload, and measure what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel, Features, load_cost_model
from sim.engine import Simulation, simulate
from sim.interrupts import constants
from sim.interrupts.policy import CHECKPOINT, RECOMPUTE, load_policy
from sim.interrupts.server import Interrupt, InterruptServer
from sim.interrupts.workload import Drawn
from sim.metrics import distribution
from sim.replay import REFILL, BatchRecord, Replay, Rules, SwapLink


def server_rules(link: SwapLink) -> Rules:
    """The engine's rules with checkpoints over this link and abandoned requests."""
    return Rules(allow_empty=True, swap=link, abandon=True)


@dataclass(frozen=True, slots=True)
class Run:
    """A policy's run."""

    drawn: Drawn
    policy: str
    simulation: Simulation
    interrupts: tuple[Interrupt, ...]
    cost: CostModel
    link: SwapLink


def run_policy(drawn: Drawn, policy: str, link: SwapLink | None = None) -> Run:
    """Simulate.

    Parameters
    ----------
    link
        The constants' PCIe link by default.

    Examples
    --------
    >>> from sim.interrupts.workload import draw
    >>> run = run_policy(draw("urgent_prefill_injections", 0), "no_preemption")
    >>> len(run.interrupts), run.simulation.stalled
    (0, ())
    """
    link = link or constants.swap_link()
    server = InterruptServer(drawn.instance, load_policy(policy), link, resumes=drawn.resumes,
                             resume_probability=drawn.workload.resume_probability)  # fmt: skip
    simulation = simulate(drawn.instance, server, rules=server_rules(link))
    return Run(drawn, policy, simulation, tuple(server.interrupts), load_cost_model(drawn.instance.cost_model), link)


@dataclass(frozen=True, slots=True)
class ClassOutcome:
    """One class in one run; shares are of all its requests, times in ms, None where no request has one.

    Parameters
    ----------
    ttft_attained
        Share whose first token came within the class's limit.
    slo_attained
        Share that was also completed within the limit per output token: an abandoned request counts as missed.
    """

    requests: int
    abandoned: int
    ttft_mean_ms: float | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    ttft_max_ms: float | None
    e2e_mean_ms: float | None
    ttft_attained: float | None
    slo_attained: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run in figures.

    Parameters
    ----------
    classes
        By priority.
    checkpoint_ms, recompute_ms
        Time spent moving KVs, and time refills added to their batches beyond the decode step that was due anyway.
    prompt_only_ms
        What the recomputed victims' prompts alone would have cost, the original benchmark's formula: prompt tokens
        times prefill ms per token. Less than is possible: generated tokens must be refilled too.
    overhead_share
        Of the time the server was busy.
    value_score
        Value of the requests that met their SLO over the value of all.
    """

    classes: tuple[ClassOutcome, ...]
    makespan_ms: float
    batches: int
    interrupts: int
    checkpoints: int
    recomputes: int
    abandoned: int
    victim_kv_tokens: float | None
    victim_generated: float | None
    checkpoint_ms: float
    recompute_ms: float
    prompt_only_ms: float
    overhead_share: float
    value_score: float

    @property
    def overhead_ms(self) -> float:
        """All time lost to interruptions."""
        return self.checkpoint_ms + self.recompute_ms


def measure(run: Run) -> Outcome:
    """Figures of one run."""
    replay, events = run.simulation.replay, run.interrupts
    requests = run.drawn.instance.requests
    checkpoint, recompute, busy = overheads(replay, run.cost)
    refilled = [e for e in events if e.mechanism == RECOMPUTE and e.resumes]
    slope = constants.prefill_ms_per_token(run.cost)
    classes = tuple(_class_outcome(replay, events, p) for p in range(len(constants.CLASSES)))
    value = sum(constants.CLASSES[r.priority].value for r in requests)
    gained = sum((c.slo_attained or 0) * c.requests * s.value for c, s in zip(classes, constants.CLASSES, strict=True))
    return Outcome(
        classes=classes,
        makespan_ms=replay.makespan_ms,
        batches=len(replay.records),
        interrupts=len(events),
        checkpoints=sum(e.mechanism == CHECKPOINT for e in events),
        recomputes=sum(e.mechanism == RECOMPUTE for e in events),
        abandoned=sum(not e.resumes for e in events),
        victim_kv_tokens=_mean([e.kv_tokens for e in events]),
        victim_generated=_mean([e.generated for e in events]),
        checkpoint_ms=checkpoint / TICKS_PER_MS,
        recompute_ms=recompute / TICKS_PER_MS,
        prompt_only_ms=slope * sum(requests[e.request].input_tokens for e in refilled),
        overhead_share=(checkpoint + recompute) / busy,
        value_score=gained / value,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def overheads(replay: Replay, cost: CostModel) -> tuple[int, int, int]:
    """(transfers, extra time of refills, time in batches) in ticks; transfers must not overlap with batches.

    A refill is charged what it adds to its batch beyond the decode step that was due anyway.
    """
    transfers = extra = busy = 0
    for batch, record in zip(replay.schedule.batches, replay.records, strict=True):
        busy += record.end_ticks - record.start_ticks
        if batch.swap_out or batch.swap_in:
            computed = cost.batch_ticks(record.features) if record.entries else 0
            transfers += record.end_ticks - record.start_ticks - computed
        if any(entry.kind == REFILL for entry in record.entries):
            extra += cost.batch_ticks(record.features) - cost.batch_ticks(_without_refills(record))
    return transfers, extra, busy


def _without_refills(record: BatchRecord) -> Features:
    """The batch as if those who refill had kept their KVs: a decode step where the refill generates, else nothing."""
    n_prefill = n_decode = tokens = square = prefill_reads = decode_reads = 0
    for entry in record.entries:
        c, m = entry.tokens, entry.kv_before
        if entry.kind == REFILL:
            if entry.generates:
                n_decode, tokens, decode_reads = n_decode + 1, tokens + 1, decode_reads + m + c - 1
        elif entry.kind == "prefill":
            n_prefill, tokens = n_prefill + 1, tokens + c
            square, prefill_reads = square + c * c + 2 * c * m, prefill_reads + m
        else:
            n_decode, tokens, decode_reads = n_decode + 1, tokens + c, decode_reads + m
    busy = int(n_prefill + n_decode > 0)
    return Features(busy, int(n_prefill > 0), int(n_decode > 0), n_prefill, n_decode, tokens, square, prefill_reads,
                    decode_reads)  # fmt: skip


def _class_outcome(replay: Replay, events: tuple[Interrupt, ...], priority: int) -> ClassOutcome:
    requests = replay.instance.requests
    members = [i for i, r in enumerate(requests) if r.priority == priority]
    slo = constants.CLASSES[priority]
    all_ttft, all_tpot, all_e2e = replay.ttft_ticks(), replay.tpot_ticks(), replay.e2e_ticks()
    ttft = {i: t for i in members if (t := all_ttft[i]) is not None}
    in_time = {i for i, t in ttft.items() if t <= slo.ttft_slo_ms * TICKS_PER_MS}
    e2e = {i: t for i in members if (t := all_e2e[i]) is not None}
    met = {i for i in in_time & e2e.keys() if (all_tpot[i] or 0) <= slo.tpot_slo_ms * TICKS_PER_MS}
    times = distribution(np.array([t / TICKS_PER_MS for t in ttft.values()]))
    return ClassOutcome(
        requests=len(members),
        abandoned=sum(not e.resumes and requests[e.request].priority == priority for e in events),
        ttft_mean_ms=times.mean if times else None,
        ttft_p50_ms=times.p50 if times else None,
        ttft_p95_ms=times.p95 if times else None,
        ttft_max_ms=times.max if times else None,
        e2e_mean_ms=_mean([t / TICKS_PER_MS for t in e2e.values()]),
        ttft_attained=len(in_time) / len(members) if members else None,
        slo_attained=len(met) / len(members) if members else None,
    )
