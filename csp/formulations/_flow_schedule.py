"""Between flows of types and schedules of single requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from csp.program import Program
from sim.cost.model import CostModel, Features
from sim.instance import Request
from sim.replay import DECODE, Replay
from sim.schedule import Batch, Schedule

Kinds = list[tuple[Request, tuple[int, ...]]]
Key = tuple[str, int, int, int]


def decode_flow(values: Sequence[int], arcs: Mapping[Key, int], kinds: Kinds, batches: int) -> Schedule:
    """Hand a type's flow to its copies; copies in the same state are interchangeable, first in first out."""
    where: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for t, (_, copies) in enumerate(kinds):
        where[t, 0, False] = list(copies)
    flow: list[list[tuple[str, int, int, int]]] = [[] for _ in range(batches)]
    for (arc, t, j, k), v in arcs.items():
        if values[v] and arc in ("fill", "decode", "preempt"):
            flow[j].append((arc, t, k, values[v]))
    made = []
    for moves in flow:
        process: list[tuple[int, int]] = []
        preempt: list[int] = []
        arrive: list[tuple[tuple[int, int, bool], list[int]]] = []
        for arc, t, k, n in sorted(moves):
            place = where[t, k, arc != "fill"]
            movers, where[t, k, arc != "fill"] = place[:n], place[n:]
            if arc == "preempt":
                preempt += movers
                arrive.append(((t, k, False), movers))
            else:
                process += [(i, kinds[t][0].input_tokens + k if arc == "fill" else 1) for i in movers]
                arrive.append(((t, k + 1, True), movers))
        for state, movers in arrive:
            where[state] += movers
        if process:
            made.append(Batch(tuple(process), tuple(preempt)))
    return Schedule(tuple(made))


def encode_flow(
    run: Replay, arcs: Mapping[Key, int], kinds: Kinds, program: Program, cost: CostModel
) -> list[int] | None:
    """Variable values of a replayed schedule; None if it has partial chunks or does not fit the horizon."""
    type_of = {i: t for t, (_, copies) in enumerate(kinds) for i in copies}
    k_of = dict.fromkeys(type_of, 0)
    resident = dict.fromkeys(type_of, False)
    names = {name: v for v, name in enumerate(program.names)}
    values = [0] * len(program.names)

    def add(name: str, amount: int = 1) -> bool:
        if name in names:
            values[names[name]] += amount
        return name in names

    for j, record in enumerate(run.records):
        entries = {entry.request: entry for entry in record.entries}
        dropped = {i for i, _ in record.preempted}
        for i, t in type_of.items():
            k = k_of[i]
            if k == kinds[t][0].output_tokens:
                continue
            if i in entries:
                entry = entries[i]
                if entry.kind != DECODE and (entry.kv_before or not entry.generates):
                    return None
                arc = "decode" if entry.kind == DECODE else "fill"
                k_of[i], resident[i] = k + 1, True
            elif i in dropped:
                arc, resident[i] = "preempt", False
            else:
                arc = "hold" if resident[i] else "wait"
            if not add(f"{arc}_{t}_{j}_{k}"):
                return None
        for name, n in zip(("used", "prefills", "decodes"), record.features, strict=False):
            if not add(f"{name}_{j}", n):
                return None
        for g, group in enumerate(cost.groups):
            if len(group.pieces) > 1:
                add(f"T_{j}_{g}", max(_dot(piece, record.features) for piece in group.pieces))
    return values


def _dot(piece: tuple[int, ...], features: Features) -> int:
    return sum(a * x for a, x in zip(piece, features, strict=True))
