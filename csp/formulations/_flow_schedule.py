"""Between flows of types and schedules of single requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from csp.formulations._states import ABSENT, DONE, FILLING, HOST, HOST_FILLING, POOL, READY, Arc, State
from sim.instance import Request
from sim.replay import DECODE, BatchRecord, Entry, Replay
from sim.schedule import Batch, Schedule

Kinds = list[tuple[Request, tuple[int, ...]]]
Placed = Mapping[tuple[int, int, Arc], int]
"""Variable of each (type, batch, arc)."""
_MOVES = {"preempt": "preempt", "drop": "preempt", "swap-out": "swap_out", "swap-in": "swap_in",
          "swap-in-decode": "swap_in", "swap-in-leave": "swap_in"}  # fmt: skip


def decode_flow(values: Sequence[int], placed: Placed, kinds: Kinds, starts: Sequence[State], batches: int) -> Schedule:
    """Hand a type's flow to its copies; copies in the same state are interchangeable, first in first out."""
    where: dict[tuple[int, State], list[int]] = defaultdict(list)
    for t, (_, copies) in enumerate(kinds):
        where[t, starts[t]] = list(copies)
    flow: list[dict[int, list[tuple[Arc, int]]]] = [defaultdict(list) for _ in range(batches)]
    for (t, j, arc), v in placed.items():
        if values[v] and arc.what not in ("wait", "hold", "stay"):
            flow[j][t].append((arc, values[v]))
    made = []
    for by_type in flow:
        lists: dict[str, list[int]] = {"preempt": [], "swap_out": [], "swap_in": []}
        process: list[tuple[int, int]] = []
        for t, moves in sorted(by_type.items()):
            _move_copies(where, t, moves, process, lists)
        if process:
            decodes_first = sorted(process, key=lambda pair: pair[1] > 1)
            made.append(Batch(tuple(decodes_first), tuple(lists["preempt"]), swap_out=tuple(lists["swap_out"]),
                              swap_in=tuple(lists["swap_in"])))  # fmt: skip
    return Schedule(tuple(made))


def _move_copies(
    where: dict[tuple[int, State], list[int]], t: int, moves: list[tuple[Arc, int]], process: list[tuple[int, int]],
    lists: dict[str, list[int]],
) -> None:  # fmt: skip
    """Carry out one type's arcs of one batch; a pool's lowest leavers get its lowest new levels."""
    arrive: list[tuple[State, list[int]]] = []
    pools: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for arc, n in sorted(moves, key=lambda move: (move[0].source[0] == POOL, move[0].kv, move[0].name)):
        if arc.source[0] == POOL:
            pool = pools[arc.source[1]]
            movers, pools[arc.source[1]] = pool[:n], pool[n:]
            process += [(i, arc.kv - m) for m, i in movers]
            arrive.append((arc.target, [i for _, i in movers]))
            continue
        place = where[t, arc.source]
        here, where[t, arc.source] = place[:n], place[n:]
        if arc.what in _MOVES:
            lists[_MOVES[arc.what]] += here
        if arc.target[0] == POOL:
            pools[arc.target[1]] = sorted([*pools[arc.target[1]], *((arc.source[2], i) for i in here)])
            continue
        if arc.tokens:
            process += [(i, arc.tokens) for i in here]
        arrive.append((arc.target, here))
    for state, who in arrive:
        where[t, state] += who


def encode_flow(
    run: Replay, placed: Placed, kinds: Kinds, starts: Sequence[State], batches: int
) -> dict[int, int] | None:
    """Arc variables' values of a replayed schedule; None if an arc it takes does not exist."""
    by_name = {(t, j, arc.what, arc.source, arc.target): v for (t, j, arc), v in placed.items()}
    values: dict[int, int] = defaultdict(int)
    records: list[BatchRecord | None] = [*run.records, *[None] * (batches - len(run.records))]
    for t, (request, copies) in enumerate(kinds):
        pooled = any(arc.source[0] == POOL for (u, _, arc) in placed if u == t)
        for i in copies:
            state = starts[t]
            for j, record in enumerate(records):
                if state[0] == DONE:
                    break
                batch = run.schedule.batches[j] if record else Batch(())
                entry = next((e for e in record.entries if e.request == i), None) if record else None
                steps = _steps(state, request, batch, entry, i, pooled=pooled)
                for what, source, target in steps:
                    if (t, j, what, source, target) not in by_name:
                        return None
                    values[by_name[t, j, what, source, target]] += 1
                state = steps[-1][2]
    return values


def _steps(
    state: State, request: Request, batch: Batch, entry: Entry | None, i: int, *, pooled: bool
) -> list[tuple[str, State, State]]:
    """The arcs one request takes in one batch, as (what, source, target)."""
    place, k, m = state
    hosted = place in (HOST, HOST_FILLING)
    if i in batch.preempt:
        return [("drop" if hosted else "preempt", state, (ABSENT, k, 0))]
    if i in batch.swap_out:
        return [("swap-out", state, (HOST if place == READY else HOST_FILLING, k, m))]
    comes = "swap-in-" if i in batch.swap_in else ""
    if entry is None:
        if comes:
            return [("swap-in", state, (READY if place == HOST else FILLING, k, m))]
        return [("wait" if place == ABSENT else "stay" if hosted else "hold", state, state)]
    if entry.generates:
        done = k + 1 == request.output_tokens
        target: State = (DONE, k + 1, 0) if done else (READY, k + 1, request.input_tokens + k)
    else:
        target = (FILLING, k, m + entry.tokens)
    if entry.kind == DECODE:
        return [(comes + "decode", state, target)]
    what = "fill" if entry.generates else "chunk"
    if not pooled:
        return [(what, state, target)]
    return [(comes + "leave", state, (POOL, k, 0)), (what, (POOL, k, 0), target)]
