"""Turn requests read from a trace into an instance: cut, scale and trim."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sim.errors import InputError
from sim.instance import DEFAULT_COST_MODEL, Instance, Request
from sim.traces import read_azure_2023, trace_path


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How to make an instance of a trace.

    Parameters
    ----------
    first
        Only the first N requests.
    window_s
        Only arrivals from A to B seconds (B excluded), then counted from A.
    rate_scale, output_scale
        Arrivals this many times as fast; outputs this many times as long (rounded, at least one token).
    max_tokens
        Trim prompts so that I + O <= T; requests whose output alone leaves no room are an error.
    kv_capacity_tokens
        M; required.
    offline
        All requests arrive at time zero.
    """

    kv_capacity_tokens: int
    token_budget: int = 4096
    cost_model: str = DEFAULT_COST_MODEL
    first: int | None = None
    window_s: tuple[float, float] | None = None
    rate_scale: float = 1.0
    output_scale: float = 1.0
    max_tokens: int | None = None
    offline: bool = False


def instance_from_trace(path: str | Path, options: TraceOptions) -> Instance:
    """Read a trace and make an instance of it.

    Raises
    ------
    InputError
        If the trace is broken or nothing is left of it.
    """
    limit = options.first if options.window_s is None else None
    requests = list(read_azure_2023(trace_path(path), limit))
    if options.window_s is not None:
        start, end = (round(t * 1e9) for t in options.window_s)
        requests = [replace(r, arrival_ns=r.arrival_ns - start) for r in requests if start <= r.arrival_ns < end]
        requests = requests[: options.first]
    if not requests:
        raise InputError("no requests in this window", source=str(path))
    shaped = tuple(_shape(r, options, str(path)) for r in requests)
    return Instance(shaped, options.kv_capacity_tokens, options.token_budget, cost_model=options.cost_model,
                    name=Path(path).stem)  # fmt: skip


def _shape(request: Request, options: TraceOptions, source: str) -> Request:
    outputs = max(1, round(request.output_tokens * options.output_scale))
    inputs = request.input_tokens
    if options.max_tokens is not None:
        if outputs >= options.max_tokens:
            raise InputError("an output alone is as long; no prompt token is left", source=source,
                             field="--max-tokens", value=options.max_tokens)  # fmt: skip
        inputs = min(inputs, options.max_tokens - outputs)
    arrival = 0 if options.offline else round(request.arrival_ns / options.rate_scale)
    return Request(inputs, outputs, arrival, request.priority, request.id)
