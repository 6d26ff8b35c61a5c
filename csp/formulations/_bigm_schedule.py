"""Between the Big-M program's variables and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from csp.formulations._timeline import Timeline
from csp.program import Program
from sim.replay import DECODE, Replay
from sim.schedule import Batch, Schedule


@dataclass(frozen=True, slots=True)
class Cell:
    """Variables of one request in one batch."""

    m: int
    c: int
    g: int
    e: int
    a: int
    r: int
    d: int
    z: int
    q: int
    """At least c^2 + 2 c m of a prefill."""
    reads_p: int
    reads_d: int
    """At least the KVs m that a prefill, or a decode step, reads."""
    one_hot: tuple[int, ...]
    """One per value of m."""


def decode_bigm(values: Sequence[int], cells: list[list[Cell]]) -> Schedule:
    """Read c and e; releasing a complete request, or preempting one without KVs, is no action."""
    made = []
    for j in range(len(cells[0])):
        process, preempt = [], []
        for i, row in enumerate(cells):
            if values[row[j].c]:
                process.append((i, values[row[j].c]))
            elif j and values[row[j].e] and values[row[j - 1].m] and not values[row[j - 1].z]:
                preempt.append(i)
        if process:
            made.append(Batch(tuple(process), tuple(preempt)))
    return Schedule(tuple(made))


def encode_bigm(
    run: Replay, cells: list[list[Cell]], program: Program, line: Timeline, variables: int
) -> list[int] | None:
    """Variable values of a replayed schedule; None if it does not fit the horizon."""
    batches = len(cells[0])
    if len(run.records) > batches or any(not record.entries for record in run.records):
        return None
    values = [0] * variables
    for i, row in enumerate(cells):
        m = k = ready = 0
        done = run.instance.requests[i].output_tokens
        for j, x in enumerate(row):
            record = run.records[j] if j < len(run.records) else None
            entry = next((e for e in record.entries if e.request == i), None) if record else None
            if k == done or (record and any(i == dropped for dropped, _ in record.preempted)):
                m, ready, values[x.e] = 0, 0, 1
            if entry is not None:
                decode = entry.kind == DECODE
                values[x.c], values[x.a], values[x.g], values[x.d] = entry.tokens, 1, entry.generates, decode
                values[x.reads_d if decode else x.reads_p] = m
                values[x.q] = 0 if decode else entry.tokens * (entry.tokens + 2 * m)
                m, k, ready = m + entry.tokens, k + entry.generates, ready or entry.generates
            values[x.m], values[x.r], values[x.z] = m, ready, k == done
            values[x.one_hot[m]] = 1
    return line.encode(run, program, [int(value) for value in values])
