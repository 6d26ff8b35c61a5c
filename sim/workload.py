"""Shape a workload: cut, scale and trim the requests of an instance or a trace, or give them other arrivals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from sim.clock import NS_PER_S
from sim.errors import InputError
from sim.generate import Arrivals
from sim.instance import DEFAULT_COST_MODEL, MAX_REQUESTS, MAX_TOKENS, Instance, Request
from sim.traces import read_trace


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How to make an instance of a trace, or a new one of an instance.

    Parameters
    ----------
    kv_capacity_tokens
        M; a trace needs it, an instance keeps its own by default.
    token_budget, cost_model
        C and the cost model; by default the instance's, or 4096 and the 7B set for a trace.
    first
        Only the first N requests (of the window).
    window_s
        Only arrivals from A to B seconds (B excluded), then counted from A.
    rate_scale, output_scale
        Arrivals this many times as fast; outputs this many times as long (rounded, at least one token).
    max_tokens
        Trim prompts so that I + O <= T; requests whose output alone leaves no room are an error.
    offline
        All requests arrive at time zero.
    kv_scale
        M times this (rounded down).
    arrivals
        Replace the arrivals by drawn ones, in order.
    seed
        For drawn arrivals.
    drop_empty
        Leave out a trace's rows without tokens.
    """

    kv_capacity_tokens: int | None = None
    token_budget: int | None = None
    cost_model: str | None = None
    first: int | None = None
    window_s: tuple[float, float] | None = None
    rate_scale: float = 1.0
    output_scale: float = 1.0
    max_tokens: int | None = None
    offline: bool = False
    kv_scale: float = 1.0
    arrivals: Arrivals | None = None
    seed: int = 0
    drop_empty: bool = False


def instance_from_trace(path: str | Path, options: TraceOptions) -> Instance:
    """Read a trace and make an instance of it.

    Raises
    ------
    InputError
        If the trace is broken or nothing is left of it.
    """
    if options.kv_capacity_tokens is None:
        raise InputError("a trace needs --kv-capacity M, the KV tokens that fit in memory", source=str(path))
    requests = _cut(read_trace(path, drop_empty=options.drop_empty), options, str(path))
    plain = Instance((Request(1, 1),), options.kv_capacity_tokens, name=Path(path).name.split(".")[0])
    return _shape(plain, requests, options, str(path))


def shape_instance(instance: Instance, options: TraceOptions, source: str | None = None) -> Instance:
    """Apply the options to an instance.

    Raises
    ------
    InputError
        If nothing is left of it.
    """
    return _shape(instance, _cut(instance.requests, options, source), options, source)


def _cut(requests: Iterable[Request], options: TraceOptions, source: str | None) -> list[Request]:
    """The requests of the window, at most the first N; stops reading there."""
    if options.window_s is not None:
        start, end = (round(t * NS_PER_S) for t in options.window_s)
        requests = (replace(r, arrival_ns=r.arrival_ns - start) for r in requests if start <= r.arrival_ns < end)
    kept = list(islice(requests, min(options.first or MAX_REQUESTS + 1, MAX_REQUESTS + 1)))
    if not kept:
        raise InputError("no requests in this window", source=source)
    if len(kept) > MAX_REQUESTS:
        raise InputError(f"more than {MAX_REQUESTS:,} requests; use --first N or --window A:B", source=source)
    return kept


def _shape(instance: Instance, requests: list[Request], options: TraceOptions, source: str | None) -> Instance:
    if options.max_tokens is not None or options.output_scale != 1:
        requests = [_lengths(r, i, options, source) for i, r in enumerate(requests)]
    if options.offline:
        requests = [r if r.arrival_ns == 0 else replace(r, arrival_ns=0) for r in requests]
    elif options.arrivals is not None:
        times_ns = options.arrivals.draw_ns(len(requests), np.random.default_rng(options.seed))
        requests = [replace(r, arrival_ns=t) for r, t in zip(requests, times_ns, strict=True)]
    if options.rate_scale != 1 and not options.offline:
        requests = [replace(r, arrival_ns=round(r.arrival_ns / options.rate_scale)) for r in requests]
    capacity = options.kv_capacity_tokens or instance.kv_capacity_tokens
    if options.kv_scale != 1:
        capacity = int(capacity * options.kv_scale)
    return instance.replace(
        requests=tuple(requests), kv_capacity_tokens=capacity,
        token_budget=options.token_budget or instance.token_budget,
        cost_model=options.cost_model or instance.cost_model or DEFAULT_COST_MODEL,
    )  # fmt: skip


def _lengths(request: Request, position: int, options: TraceOptions, source: str | None) -> Request:
    outputs = max(1, min(MAX_TOKENS, round(request.output_tokens * options.output_scale)))
    inputs = request.input_tokens
    if options.max_tokens is not None:
        if outputs >= options.max_tokens:
            raise InputError(f"request {position} generates {outputs} tokens; no prompt token is left", source=source,
                             field="--max-tokens", value=options.max_tokens)  # fmt: skip
        inputs = min(inputs, options.max_tokens - outputs)
    return replace(request, input_tokens=inputs, output_tokens=outputs)
