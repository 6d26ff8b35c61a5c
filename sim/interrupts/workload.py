"""Seeded traffic: classes with their lengths, Poisson arrivals at a load relative to what the server can do."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel, Features, load_cost_model
from sim.instance import Instance, Request
from sim.interrupts import constants
from sim.registry import load

FATES = 32
"""Interruptions of one request whose outcome is drawn; later ones start over."""


SHORT_REQUESTS, SHORT_SLOTS, SHORT_PROMPT, SHORT_OUTPUT = 6, 2, 16, 32
SHORT_LEAST_PROMPT = 11
"""From here on a refill costs more than a decode step under the published coefficients, as it does at full length."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Distribution of token counts.

    Parameters
    ----------
    mean
        Before clipping.
    sigma
        Of the logarithm (lognormal), or None for a heavy tail: Pareto II (Lomax) with ``alpha``.
    alpha
        Tail exponent, > 1; smaller is heavier.
    """

    mean: float
    sigma: float | None = 0.8
    alpha: float = 1.5

    def draw(self, rng: Generator, most: int) -> int:
        """One length from 1 to ``most``."""
        if self.sigma is None:
            value = rng.pareto(self.alpha) * self.mean * (self.alpha - 1)
        else:
            value = rng.lognormal(math.log(self.mean) - self.sigma**2 / 2, self.sigma)
        return min(max(1, round(value)), most)


@dataclass(frozen=True, slots=True)
class Traffic:
    """One class's part of a workload.

    Parameters
    ----------
    priority
        Index into `constants.CLASSES`.
    share
        Of all requests.
    """

    priority: int
    share: float
    inputs: Lengths
    outputs: Lengths


# Mean lengths as published. Short instructions: Alpaca, and chat: ShareGPT, both as tabulated by Kwon et al.
# (arXiv:2309.06180, figure 11); long prompts: the Azure conversation trace of 2023 (19,366 requests). The spread
# (sigma of the logarithm 0.8) is a choice.
ALPACA = (Lengths(19.31), Lengths(58.45))
SHAREGPT = (Lengths(161.31), Lengths(337.99))
AZURE_CONVERSATION = (Lengths(1154.7), Lengths(211.1))
HEAVY_TAIL = Lengths(337.99, sigma=None)


def mix(urgent: float, standard: float, best_effort: float, *, urgent_lengths: tuple[Lengths, Lengths] = ALPACA,
        outputs: Lengths | None = None) -> tuple[Traffic, ...]:  # fmt: skip
    """Three classes by share; ``outputs`` replaces the output lengths of the two classes that can be interrupted."""
    return (
        Traffic(constants.URGENT, urgent, *urgent_lengths),
        Traffic(constants.STANDARD, standard, SHAREGPT[0], outputs or SHAREGPT[1]),
        Traffic(constants.BEST_EFFORT, best_effort, AZURE_CONVERSATION[0], outputs or AZURE_CONVERSATION[1]),
    )


@dataclass(frozen=True, slots=True)
class Workload:
    """What arrives at the server, and how interrupted users react.

    Parameters
    ----------
    traffic
        Per class; shares sum to 1.
    load
        Time a full server needs for all requests (`busy_ms`) over the time in which they arrive. 1.2 keeps it full for
        most of a run, the situation the benchmark is about.
    resume_probability
        That an interrupted request is still wanted; otherwise it is abandoned.
    kv_capacity_tokens
        Of the server.
    requests
        How many are drawn.
    """

    traffic: tuple[Traffic, ...]
    load: float = 1.2
    resume_probability: float = 0.7
    kv_capacity_tokens: int = constants.KV_CAPACITY_TOKENS
    requests: int = 150


@dataclass(frozen=True, slots=True)
class Drawn:
    """A workload drawn with one seed.

    Parameters
    ----------
    resumes
        Per request and interruption, whether it is resumed: the same for every policy.
    """

    name: str
    workload: Workload
    instance: Instance
    resumes: tuple[tuple[bool, ...], ...]


def load_workload(name: str) -> Workload:
    """A workload by its file name.

    Raises
    ------
    sim.errors.InputError
        If there is none of that name.
    """
    workload: Workload = load("sim.interrupts.workloads", name, what="workload").WORKLOAD
    return workload


def busy_ms(
    requests: Sequence[Request], kv_capacity_tokens: int, cost: CostModel, slots: int = constants.MAX_NUM_SEQS
) -> float:
    """Time a server that is always full needs for these requests, in ms.

    Each prompt's tokens at the slope of a full batch, and each output token at 1/n of a decode step of n requests, n
    being the slots or what fits in memory on average (peaks weighted by how long they are held, that is by output).
    """
    outputs = sum(r.output_tokens for r in requests)
    footprint = sum(r.peak_kv_tokens * r.output_tokens for r in requests) / outputs
    n = max(1, min(slots, int(kv_capacity_tokens / footprint)))
    step = cost.batch_ticks(Features(1, 0, 1, 0, n, n, 0, 0, int(n * footprint)))
    inputs = sum(r.input_tokens for r in requests)
    return constants.prefill_ms_per_token(cost) * inputs + step / TICKS_PER_MS * outputs / n


def draw(name: str, seed: int, *, requests: int | None = None, cost_model: str = constants.COST_MODEL) -> Drawn:
    """Draw a workload.

    Parameters
    ----------
    seed
        Everything random follows from it and the name.
    requests
        How many; the workload's own number by default.

    Examples
    --------
    >>> draw("high_resume_prob", 1).instance == draw("high_resume_prob", 1).instance
    True
    """
    workload = load_workload(name)
    count = requests or workload.requests
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    drawn = [_lengths(workload, rng) for _ in range(count)]
    span_ms = busy_ms(drawn, workload.kv_capacity_tokens, load_cost_model(cost_model)) / workload.load
    arriving = _arrivals(drawn, span_ms, rng)
    resumes = rng.random((count, FATES)) < workload.resume_probability
    instance = Instance(arriving, workload.kv_capacity_tokens, constants.TOKEN_BUDGET,
                        constants.MAX_NUM_SEQS, cost_model=cost_model, name=f"{name}-{seed}")  # fmt: skip
    return Drawn(name, workload, instance, tuple(tuple(map(bool, row)) for row in resumes))


def draw_short(name: str, seed: int, *, cost_model: str = constants.COST_MODEL) -> Drawn:
    """A shortened version of a workload, small enough to be solved exactly; interrupted requests always resume.

    `SHORT_REQUESTS` requests of the workload's classes, prompts and outputs divided (`SHORT_PROMPT`, `SHORT_OUTPUT`),
    two slots, the workload's load. Where the workload's memory is scarce it holds the largest request, no more.
    """
    workload = load_workload(name)
    long = draw(name, seed, requests=SHORT_REQUESTS, cost_model=cost_model).instance.requests
    scarce = workload.kv_capacity_tokens < constants.KV_CAPACITY_TOKENS
    by = 4 * SHORT_OUTPUT if scarce else SHORT_OUTPUT
    requests = [replace(r, input_tokens=max(SHORT_LEAST_PROMPT, -(-r.input_tokens // SHORT_PROMPT)),
                        output_tokens=-(-r.output_tokens // by)) for r in long]  # fmt: skip
    peaks = [r.peak_kv_tokens for r in requests]
    kv = max(peaks) if scarce else sum(peaks)
    span_ms = busy_ms(requests, kv, load_cost_model(cost_model), SHORT_SLOTS) / workload.load
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), 1])
    instance = Instance(_arrivals(requests, span_ms, rng), kv, constants.TOKEN_BUDGET, SHORT_SLOTS,
                        cost_model=cost_model, name=f"{name}-short-{seed}")  # fmt: skip
    return Drawn(name, replace(workload, resume_probability=1.0), instance, ((True,),) * len(requests))


def _arrivals(requests: Sequence[Request], span_ms: float, rng: Generator) -> tuple[Request, ...]:
    """The requests in the order given, with Poisson arrivals given how many there are in the span: uniform, sorted."""
    arrivals_ns = np.sort(rng.uniform(0, span_ms * 1e6, len(requests)))
    return tuple(replace(r, arrival_ns=int(t)) for r, t in zip(requests, arrivals_ns, strict=True))


def _lengths(workload: Workload, rng: Generator) -> Request:
    """A request of one of the classes; its input and output fit in the context together."""
    shares = [traffic.share for traffic in workload.traffic]
    traffic = workload.traffic[int(rng.choice(len(shares), p=shares))]
    inputs = traffic.inputs.draw(rng, constants.CONTEXT_TOKENS // 2)
    outputs = traffic.outputs.draw(rng, constants.CONTEXT_TOKENS - inputs)
    return Request(inputs, outputs, priority=traffic.priority)
