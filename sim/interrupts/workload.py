"""Seeded traffic: classes with their lengths, Poisson arrivals at a load relative to what the server can do."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel, Features, load_cost_model
from sim.instance import Instance, Request
from sim.interrupts import constants
from sim.registry import load

FATES = 32
"""Interruptions of one request whose outcome is drawn; later ones start over."""


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
        Arrival rate over the rate at which the server is just busy all the time (`saturation_per_s`). 1.2 keeps it full
        for most of a run, the situation the benchmark is about.
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


def saturation_per_s(workload: Workload, cost: CostModel, draws: int = 2000) -> float:
    """Requests per second at which the server is just busy all the time.

    Time a request costs: its prompt's share of a full batch, and its decode steps at 1/n of a step with n requests,
    n being the slots or what fits in memory on average. Means over the workload's own lengths (fixed draws).
    """
    rng = np.random.default_rng(0)
    requests = [_lengths(workload, rng) for _ in range(draws)]
    inputs = sum(i for _, i, _ in requests) / draws
    outputs = sum(o for _, _, o in requests) / draws
    footprint = sum((i + o - 1) * o for _, i, o in requests) / sum(o for *_, o in requests)
    n = max(1, min(constants.MAX_NUM_SEQS, int(workload.kv_capacity_tokens / footprint)))
    step = cost.batch_ticks(Features(1, 0, 1, 0, n, n, 0, 0, int(n * footprint)))
    prefill = constants.prefill_ms_per_token(cost) * inputs
    return 1000.0 / (prefill + step / TICKS_PER_MS * outputs / n)


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
    rate_per_ns = workload.load * saturation_per_s(workload, load_cost_model(cost_model)) / 1e9
    arrivals_ns = np.cumsum(rng.exponential(1 / rate_per_ns, count))
    drawn = []
    for arrival_ns in arrivals_ns:
        priority, inputs, outputs = _lengths(workload, rng)
        drawn.append(Request(inputs, outputs, int(arrival_ns), priority))
    resumes = rng.random((count, FATES)) < workload.resume_probability
    instance = Instance(tuple(drawn), workload.kv_capacity_tokens, constants.TOKEN_BUDGET,
                        constants.MAX_NUM_SEQS, cost_model=cost_model, name=f"{name}-{seed}")  # fmt: skip
    return Drawn(name, workload, instance, tuple(tuple(map(bool, row)) for row in resumes))


def _lengths(workload: Workload, rng: Generator) -> tuple[int, int, int]:
    """(priority, input tokens, output tokens) of one request; input and output fit in the context together."""
    shares = [traffic.share for traffic in workload.traffic]
    traffic = workload.traffic[int(rng.choice(len(shares), p=shares))]
    inputs = traffic.inputs.draw(rng, constants.CONTEXT_TOKENS // 2)
    return traffic.priority, inputs, traffic.outputs.draw(rng, constants.CONTEXT_TOKENS - inputs)
