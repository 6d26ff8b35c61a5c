"""Workloads of section 8: real traces, and drawn ones with their lengths stated ('-like')."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from sim.generate import generate, parse_arrivals, parse_lengths
from sim.instance import Instance, Request
from sim.traces import read_trace, trace_path

TRACES = {"AzureConv": "azure-conv-2000", "Reason2": "servegen-reason-2rps", "Chat15": "servegen-chat-15rps"}
DRAWN = {
    # LongForm (Koeksal et al., arXiv:2304.08460) pairs short instructions with long texts; lengths are ours.
    "LongForm-like": ("lognormal:250:200", "lognormal:650:400", "poisson:8"),
    "identical": ("const:256", "const:1024", "poisson:8"),
}
SEED = 7


@lru_cache(maxsize=16)
def workload(name: str, first: int, output_scale: float) -> tuple[Request, ...]:
    """Requests of a workload in order of arrival.

    Parameters
    ----------
    name
        One of `TRACES` or `DRAWN`.
    first
        Only this many requests.
    output_scale
        Outputs this many times as long.
    """
    if name in TRACES:
        requests = [r for _, r in zip(range(first), read_trace(trace_path(TRACES[name])), strict=False)]
    else:
        inputs, outputs, arrivals = DRAWN[name]
        drawn = generate(first, parse_lengths(inputs, "inputs"), parse_lengths(outputs, "outputs"),
                         parse_arrivals(arrivals, "arrivals"), np.random.default_rng(SEED), kv_capacity_tokens=1)  # fmt: skip
        requests = list(drawn.requests)
    return tuple(Request(r.input_tokens, max(1, round(r.output_tokens * output_scale)), r.arrival_ns) for r in requests)


def online_instance(name: str, first: int, output_scale: float, kv_capacity: int, cost_model: str) -> Instance:
    """The workload as an instance; requests that can never fit are left out."""
    requests = tuple(r for r in workload(name, first, output_scale) if r.peak_kv_tokens <= kv_capacity)
    return Instance(requests, kv_capacity, cost_model=cost_model, name=name)
