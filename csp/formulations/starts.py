"""Start times: who starts runs in every batch until done, so when each type starts says everything (Jaillet et al.).

The hindsight-optimal integer program of arXiv:2502.07115, for any cost model: x = how many of a type start in batch j.
Fills are whole and nobody holds or is preempted. Exact where the rules forbid all three, else a source of schedules.
With a cost that is the same for every batch it is the paper's program, and completion times are linear in x.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from csp.formulations import TOO_FEW, Formulated
from csp.formulations._timeline import Kinds, identical, timeline, used_batches
from csp.horizon import horizon
from csp.program import Program, Terms, ones, plus
from csp.solvers import Control, Problem
from sim.replay import Replay, Rules
from sim.schedule import Batch, Schedule


def formulate(problem: Problem, control: Control) -> Formulated:
    """Build the program of start times."""
    instance = problem.instance
    batches, enough = horizon(problem)
    batches = max(batches, max(r.output_tokens for r in instance.requests))
    kinds = identical(instance)
    program = Program(f"starts-{instance.name}", out_of_time=lambda: control.stopped)
    start = [
        [program.variable(0, len(copies), f"start_t{t}_b{j}") for j in range(batches - request.output_tokens + 1)]
        for t, (request, copies) in enumerate(kinds)
    ]
    for t, (_, copies) in enumerate(kinds):
        program.equal(ones(start[t]), len(copies), f"each_{t}")
    used = used_batches(program, problem, batches)
    features = [_batch_rows(problem, program, kinds, start, j, used[j]) for j in range(batches)]
    line = timeline(problem, program, features, [
        [(request, {start[t][j]: 1} if j < len(start[t]) else {}, len(copies))
         for t, (request, copies) in enumerate(kinds)]
        for j in range(batches)
    ])  # fmt: skip
    variables = len(program.names)

    def generated(t: int, k: int, j: int) -> Terms:
        return ones(start[t][: max(0, j - k + 2)])

    def encode(run: Replay) -> list[int] | None:
        values = _encode(run, kinds, start, variables)
        return None if values is None or len(run.records) > batches else line.encode(run, program, values)

    exact, reason = exactness(problem.rules)
    return Formulated(
        program=program, horizon=batches, kinds=kinds, used=used, duration=line.duration, end=line.end,
        generated=generated, decode=lambda values: _decode(values, kinds, start, batches), encode=encode,
        back_to_back=not line.starts, constant_ticks=line.constant_ticks,
        longest_ticks=line.longest_ticks, latest_ticks=line.latest_ticks,
        exact=exact and enough, exact_reason=reason if enough else TOO_FEW,
    )  # fmt: skip


def exactness(rules: Rules) -> tuple[bool, str]:
    """Whether the rules leave nothing but start times to choose."""
    if rules.preemption or rules.holding or rules.chunking or rules.swap is not None:
        return False, "preempting, holding, chunks and swapping are left out"
    return True, "preempting, holding and chunking are forbidden, so only start times are free"


def _batch_rows(
    problem: Problem, program: Program, kinds: Kinds, start: Sequence[Sequence[int]], j: int, used: int
) -> dict[str, Terms]:
    """Memory, tokens, sequences and flags of one batch; its features as linear expressions."""
    instance = problem.instance
    fills: dict[int, int] = {}
    decodes: dict[int, int] = {}
    for t, (request, _) in enumerate(kinds):
        for age in range(request.output_tokens):
            if 0 <= j - age < len(start[t]):
                (decodes if age else fills)[start[t][j - age]] = request.input_tokens + age
    sizes = fills | decodes
    room = {v: instance.blocks(kv) for v, kv in sizes.items()}
    program.at_most(plus(room, {used: -instance.kv_blocks}), 0, f"memory_{j}")
    tokens = fills | dict.fromkeys(decodes, 1)
    program.at_most(tokens, instance.token_budget, f"tokens_{j}")
    n_prefill, n_decode = dict.fromkeys(fills, 1), dict.fromkeys(decodes, 1)
    if instance.max_num_seqs is not None:
        program.at_most(plus(n_prefill, n_decode), instance.max_num_seqs, f"sequences_{j}")
    program.at_least(plus(n_prefill, n_decode, {used: -1}), 0, f"some_{j}")
    flags = {"batch": {used: 1}}
    for name, entries in (("prefill", n_prefill), ("decode", n_decode)):
        flag = program.binary(f"{name}s_{j}")
        flags[f"{name}_batch"] = {flag: 1}
        program.at_most(plus({v: room[v] for v in entries}, {flag: -instance.kv_blocks}), 0, f"{name}s_room_{j}")
        program.at_least(plus(entries, {flag: -1}), 0, f"{name}s_some_{j}")
        for v in entries:
            program.at_most({v: 1, flag: -program.upper[v]}, 0, f"{name}s_of_{v}_{j}")
    if not problem.rules.hybrid:
        program.at_most(plus(flags["prefill_batch"], flags["decode_batch"]), 1, f"no_hybrid_{j}")
    return flags | {
        "n_prefill": n_prefill, "n_decode": n_decode, "tokens": tokens,
        "prefill_square": {v: s * s for v, s in fills.items()}, "decode_reads": {v: s - 1 for v, s in decodes.items()},
    }  # fmt: skip


def _decode(values: Sequence[int], kinds: Kinds, start: Sequence[Sequence[int]], batches: int) -> Schedule:
    process: list[list[tuple[int, int]]] = [[] for _ in range(batches)]
    for t, (request, copies) in enumerate(kinds):
        begins = [j for j, v in enumerate(start[t]) for _ in range(values[v])]
        for i, begin in zip(copies, begins, strict=True):
            for age in range(request.output_tokens):
                process[begin + age].append((i, 1 if age else request.input_tokens))
    return Schedule(tuple(Batch(tuple(sorted(p, key=lambda pair: pair[1] > 1))) for p in process if p))


def _encode(run: Replay, kinds: Kinds, start: Sequence[Sequence[int]], variables: int) -> list[int] | None:
    """Variable values of a replayed schedule; None if somebody pauses."""
    seen: dict[int, list[int]] = defaultdict(list)
    for j, record in enumerate(run.records):
        for entry in record.entries:
            seen[entry.request].append(j)
    values = [0] * variables
    for t, (request, copies) in enumerate(kinds):
        for i in copies:
            first = seen[i][0]
            if seen[i] != list(range(first, first + request.output_tokens)) or first >= len(start[t]):
                return None
            values[start[t][first]] += 1
    return values
