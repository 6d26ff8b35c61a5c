"""What one request can do in one batch, as arcs between its states.

A state is (place, k, m): k tokens generated, m KVs. Places: absent, filling (0 < m < I + k, no token since the fill
began), ready (m = I + k - 1), host and host-filling (KVs swapped out), done. With partial chunks a fill of k goes
through a pool inside the batch: one arc leaves level m, another enters level m'. A chunk costs m'^2 - m^2 in squares
and m' - m in tokens, so the two arcs need not know each other; whoever left low enters low.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sim.instance import Instance, Request
from sim.replay import Rules

State = tuple[str, int, int]
ABSENT, FILLING, READY, HOST, HOST_FILLING, POOL, DONE = (
    "absent", "filling", "ready", "host", "host-filling", "pool", "done")  # fmt: skip
START: State = (ABSENT, 0, 0)


@dataclass(frozen=True, slots=True)
class Arc:
    """One way through a batch; the numbers are what it adds to the batch's features.

    Attributes
    ----------
    kv
        KVs resident after the batch.
    transfer_ticks
        Time on the swap link.
    """

    what: str
    source: State
    target: State
    kv: int = 0
    tokens: int = 0
    n_prefill: int = 0
    n_decode: int = 0
    prefill_square: int = 0
    prefill_reads: int = 0
    decode_reads: int = 0
    transfer_ticks: int = 0

    @property
    def name(self) -> str:
        """For variables: what, k and, where there are levels, m before and after."""
        (place, k, m), (_, _, after) = self.source, self.target
        levels = {FILLING, HOST_FILLING, POOL}
        tail = f"_{m}_{after}" if {place, self.target[0]} & levels else ""
        return f"{self.what.replace('-', '_')}_{k}{tail}"


Levels = frozenset[tuple[int, int]]
"""(tokens generated, KVs) at which a fill may be interrupted."""


def state_of(request: Request, generated: int, kv: int, *, ready: bool) -> State:
    """A request's state between two batches."""
    if generated == request.output_tokens:
        return DONE, generated, 0
    return READY if ready else FILLING if kv else ABSENT, generated, kv


def request_arcs(
    request: Request, instance: Instance, rules: Rules, start: State, end: State, *, chunks: bool, levels: Levels | None
) -> list[Arc]:
    """All arcs of a request that lead from its start to its end; none if it cannot get there.

    Parameters
    ----------
    chunks
        Whether fills may be split over batches.
    levels
        Where; None for anywhere.
    """
    arcs: list[Arc] = []
    for k in range(start[1], min(end[1] + 1, request.output_tokens)):
        arcs += _whole(request, k, instance, rules, chunks=chunks)
        if chunks:
            s = request.input_tokens + k
            between = range(1, s) if levels is None else [m for m in range(1, s) if (k, m) in levels]
            arcs += _chunked(request, k, between, rules)
        if rules.swap is not None:
            arcs += _swapped(request, k, rules, chunks=chunks)
    arcs = [arc for arc in arcs if instance.blocks(arc.kv) <= instance.kv_blocks]
    first, last = distances(arcs, start, end)
    return [arc for arc in arcs if arc.source in first and arc.target in last]


def _after(request: Request, k: int) -> State:
    """State of a request that has just generated its k-th token."""
    return state_of(request, k, request.input_tokens + k - 1, ready=True)


def _whole(request: Request, k: int, instance: Instance, rules: Rules, *, chunks: bool) -> Iterator[Arc]:
    s = request.input_tokens + k
    absent: State = (ABSENT, k, 0)
    yield Arc("wait", absent, absent)
    if not chunks and s <= instance.token_budget:
        yield Arc("fill", absent, _after(request, k + 1), s, s, n_prefill=1, prefill_square=s * s)
    if k:
        ready: State = (READY, k, s - 1)
        yield Arc("decode", ready, _after(request, k + 1), s, 1, n_decode=1, decode_reads=s - 1)
        if rules.holding:
            yield Arc("hold", ready, ready, s - 1)
        if rules.preemption:
            yield Arc("preempt", ready, absent)


def _chunked(request: Request, k: int, levels: Iterable[int], rules: Rules) -> Iterator[Arc]:
    s = request.input_tokens + k
    absent, pool = (ABSENT, k, 0), (POOL, k, 0)
    yield Arc("leave", absent, pool)
    yield Arc("fill", pool, _after(request, k + 1), s, s, n_prefill=1, prefill_square=s * s)
    for m in levels:
        level: State = (FILLING, k, m)
        yield Arc("leave", level, pool, tokens=-m, prefill_square=-m * m, prefill_reads=m)
        yield Arc("chunk", pool, level, m, m, n_prefill=1, prefill_square=m * m)
        if rules.holding:
            yield Arc("hold", level, level, m)
        if rules.preemption:
            yield Arc("preempt", level, absent)


def _swapped(request: Request, k: int, rules: Rules, *, chunks: bool) -> Iterator[Arc]:
    assert rules.swap is not None
    s = request.input_tokens + k
    resident: list[tuple[State, State]] = [((READY, k, s - 1), (HOST, k, s - 1))] if k else []
    if chunks:
        resident += [((FILLING, k, m), (HOST_FILLING, k, m)) for m in range(1, s)]
    for here, there in resident:
        m = here[2]
        moved = rules.swap.transfer_ticks(m)
        yield Arc("swap-out", here, there, transfer_ticks=moved)
        if rules.holding:
            yield Arc("swap-in", there, here, m, transfer_ticks=moved)
        yield Arc("stay", there, there)
        if rules.preemption:
            yield Arc("drop", there, (ABSENT, k, 0))
        if here[0] == READY:
            yield Arc("swap-in-decode", there, _after(request, k + 1), s, 1, n_decode=1, decode_reads=s - 1,
                      transfer_ticks=moved)  # fmt: skip
        else:
            yield Arc("swap-in-leave", there, (POOL, k, 0), tokens=-m, prefill_square=-m * m, prefill_reads=m,
                      transfer_ticks=moved)  # fmt: skip


def distances(arcs: list[Arc], start: State, end: State) -> tuple[dict[State, int], dict[State, int]]:
    """Fewest batches from the start to each state, and from each state to the end; unreachable states are left out.

    An arc out of a pool belongs to the batch of the arc into it.
    """
    out: dict[State, list[Arc]] = defaultdict(list)
    into: dict[State, list[Arc]] = defaultdict(list)
    for arc in arcs:
        out[arc.source].append(arc)
        into[arc.target].append(arc)
    return _walk({start: 0}, out, forward=True), _walk({end: 0}, into, forward=False)


def _walk(found: dict[State, int], arcs: dict[State, list[Arc]], *, forward: bool) -> dict[State, int]:
    layer = list(found)
    while layer:
        coming = []
        for state in layer:
            for arc in arcs[state]:
                other = arc.target if forward else arc.source
                steps = found[state] + (arc.source[0] != POOL)
                if steps < found.get(other, steps + 1):
                    found[other] = steps
                    coming.append(other)
        layer = coming
    return found
