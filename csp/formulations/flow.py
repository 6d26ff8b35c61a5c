"""Time-expanded network in which identical requests flow as one type; integer flow, no symmetry among them.

Nodes are a type's states between batches, arcs what its requests do in a batch (`_states`). Per batch: a memory row, a
token row and one binary for each fixed charge. Partial chunks are modelled where whole fills might lose something and
the network stays small enough; where it does not, the formulation says that it is not exact.
"""

from __future__ import annotations

from collections import defaultdict

from csp.formulations import TOO_FEW, Formulated
from csp.formulations._flow_schedule import decode_flow, encode_flow
from csp.formulations._states import DONE, POOL, START, Arc, Levels, State, distances, request_arcs, state_of
from csp.formulations._timeline import Kinds, Timeline, identical, timeline, used_batches
from csp.horizon import horizon
from csp.program import Program, Terms, plus
from csp.solvers import Control, Problem
from sim.cost.model import CostModel
from sim.instance import Request
from sim.replay import Replay

MAX_CHUNK_VARIABLES = 60_000
"""Partial chunks are left out of larger networks."""
_FEATURES = ("tokens", "n_prefill", "n_decode", "prefill_square", "prefill_reads", "decode_reads")


class Network:
    """The arcs of one problem.

    Attributes
    ----------
    placed
        Variable of each (type, batch, arc); arcs outside a request's time window do not exist.
    by_batch
        (type, arc, variable) per batch.
    """

    def __init__(self, problem: Problem, control: Control, batches: int) -> None:
        self.instance, self.rules, self.batches = problem.instance, problem.rules, batches
        self.kinds, self.ends, levels = _kinds(problem)
        self.whole = problem.boundary is None
        self.program = Program(f"flow-{problem.instance.name}", out_of_time=lambda: control.stopped)
        self.placed: dict[tuple[int, int, Arc], int] = {}
        self.by_batch: list[list[tuple[int, Arc, int]]] = [[] for _ in range(batches)]
        self.exact, self.exact_reason, chunks = exactness(problem, self.kinds, batches)
        for t, (request, copies) in enumerate(self.kinds):
            arcs = request_arcs(request, self.instance, self.rules, *self.ends[t], chunks=chunks or bool(levels[t]),
                                levels=levels[t])  # fmt: skip
            self._place(t, arcs, len(copies))

    def _place(self, t: int, arcs: list[Arc], most: int) -> None:
        """Instantiate arcs where the start can reach them and they can reach the end; conserve flow at every node."""
        start, end = self.ends[t]
        first, last = distances(arcs, start, end)
        if not arcs and start != end:
            self.program.equal({}, most, f"no_whole_fill_of_t{t}")
        balance: dict[tuple[int, State], Terms] = defaultdict(dict)
        for j in range(self.batches):
            for arc in arcs:
                pooled = arc.target[0] == POOL
                if (
                    j < first[arc.source] - (arc.source[0] == POOL)
                    or j + (not pooled) + last[arc.target] > self.batches
                ):
                    continue
                v = self.program.variable(0, most, f"{arc.name}_t{t}_b{j}")
                self.placed[t, j, arc] = v
                self.by_batch[j].append((t, arc, v))
                balance[j, arc.source][v] = -1
                if arc.target[0] != DONE:
                    into = balance[j if pooled else j + 1, arc.target]
                    into[v] = into.get(v, 0) + 1
        for (j, state), terms in balance.items():
            supply = most * (((j, state) == (0, start)) - ((j, state) == (self.batches, end)))
            self.program.equal(terms, -supply, f"balance_t{t}_b{j}_{'_'.join(map(str, state)).replace('-', '_')}")
        self._match_levels(t)

    def _match_levels(self, t: int) -> None:
        """Whoever leaves a level in a pool must rise: no more enter levels <= x than leave levels < x."""
        pools: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for (u, j, arc), v in self.placed.items():
            if u == t and arc.target[0] == POOL:
                pools[j, arc.source[1]].append((arc.source[2], 0, v))
            elif u == t and arc.source[0] == POOL:
                pools[j, arc.source[1]].append((arc.kv, 1, v))
        for (j, k), moves in pools.items():
            for x in sorted({level for level, enters, _ in moves if enters}):
                left = {v: -1 for level, enters, v in moves if not enters and level < x}
                entered = {v: 1 for level, enters, v in moves if enters and level <= x}
                self.program.at_most(plus(entered, left), 0, f"rise_t{t}_b{j}_{k}_{x}")

    @property
    def starts(self) -> list[State]:
        """Each type's first state."""
        return [start for start, _ in self.ends]

    def generated(self, t: int, k: int, j: int) -> Terms:
        """How many of a type have their k-th token by the end of batch j."""
        return {
            v: 1 for b in range(j + 1) for u, arc, v in self.by_batch[b]
            if u == t and arc.what in ("fill", "decode", "swap-in-decode") and arc.source[1] == k - 1
        }  # fmt: skip

    def starting(self, t: int, j: int) -> Terms:
        """How many of a type begin in batch j: they must have arrived."""
        return {v: 1 for u, arc, v in self.by_batch[j] if u == t and arc.source == START and arc.target != START}


def _kinds(problem: Problem) -> tuple[Kinds, list[tuple[State, State]], list[Levels | None]]:
    """Identical requests with the same ends and levels in one group, unless an objective must tell them apart."""
    kinds = identical(problem.instance)
    if any(goal.by_request for goal in problem.goals):
        kinds = [(r, (i,)) for i, r in enumerate(problem.instance.requests)]
    if problem.boundary is None:
        return kinds, [(START, (DONE, r.output_tokens, 0)) for r, _ in kinds], [None] * len(kinds)
    groups: dict[tuple[Request, State, State, Levels], list[int]] = defaultdict(list)
    for request, copies in kinds:
        for i in copies:
            ends = (problem.boundary.start[i], problem.boundary.end[i])
            start, end = (state_of(request, k, kv, ready=ready) for k, kv, ready in ends)
            groups[request, start, end, problem.boundary.levels[i]].append(i)
    return (
        [(request, tuple(copies)) for (request, *_), copies in groups.items()],
        [(start, end) for _, start, end, _ in groups], [levels for *_, levels in groups],
    )  # fmt: skip


def formulate(problem: Problem, control: Control) -> Formulated:
    """Build the flow program of a problem."""
    batches, enough = horizon(problem)
    network = Network(problem, control, batches)
    program = network.program
    used = used_batches(program, problem, batches)
    features = [_batch_rows(network, j, used[j]) for j in range(batches)]
    line = timeline(problem, program, features, [
        [(request, network.starting(t, j), len(copies)) for t, (request, copies) in enumerate(network.kinds)]
        for j in range(batches)
    ])  # fmt: skip
    variables = len(program.names)
    return Formulated(
        program=program, horizon=batches, used=used, duration=line.duration, end=line.end,
        back_to_back=not line.starts, constant_ticks=line.constant_ticks,
        longest_ticks=line.longest_ticks, latest_ticks=line.latest_ticks,
        kinds=network.kinds, generated=network.generated,
        decode=lambda values: decode_flow(values, network.placed, network.kinds, network.starts, batches),
        encode=lambda run: _encode(run, network, line, variables),
        exact=network.exact and enough, exact_reason=network.exact_reason if enough else TOO_FEW,
    )  # fmt: skip


def _encode(run: Replay, network: Network, line: Timeline, variables: int) -> list[int] | None:
    found = encode_flow(run, network.placed, network.kinds, network.starts, network.batches)
    if found is None or len(run.records) > network.batches or not all(record.entries for record in run.records):
        return None
    program = network.program
    values = [found.get(v, 0) for v in range(variables)]
    return line.encode(run, program, values)


def _batch_rows(network: Network, j: int, used: int) -> dict[str, Terms]:
    """Memory, tokens, sequences and flags of one batch; its features as linear expressions."""
    program, instance, arcs = network.program, network.instance, network.by_batch[j]
    blocks = {v: instance.blocks(arc.kv) for _, arc, v in arcs}
    if network.whole:
        program.at_most(plus(blocks, {used: -instance.kv_blocks}), 0, f"memory_{j}")
    else:
        program.at_most(blocks, instance.kv_blocks, f"memory_{j}")
        evictions = {v: 1 for _, arc, v in arcs if arc.what == "preempt"}
        program.at_most(plus(evictions, {used: -len(instance.requests)}), 0, f"evictions_{j}")
    features: dict[str, Terms] = {
        name: {v: value for _, arc, v in arcs if (value := getattr(arc, name))} for name in _FEATURES
    }
    program.at_most(plus(features["tokens"], {used: -instance.token_budget}), 0, f"tokens_{j}")
    n_prefill, n_decode = features["n_prefill"], features["n_decode"]
    if instance.max_num_seqs is not None:
        program.at_most(plus(n_prefill, n_decode, {used: -instance.max_num_seqs}), 0, f"sequences_{j}")
    flags = {"batch": {used: 1}}
    for name, entries in (("prefill", n_prefill), ("decode", n_decode)):
        flag = program.binary(f"{name}s_{j}")
        flags[f"{name}_batch"] = {flag: 1}
        program.at_most({flag: 1, used: -1}, 0, f"{name}s_used_{j}")
        program.at_least(plus(entries, {flag: -1}), 0, f"{name}s_some_{j}")
        for t, (_, copies) in enumerate(network.kinds):
            of_type = {v: 1 for u, _, v in arcs if u == t and v in entries}
            program.at_most(plus(of_type, {flag: -len(copies)}), 0, f"{name}s_of_{t}_{j}")
        program.at_most(plus({v: blocks[v] for v in entries}, {flag: -instance.kv_blocks}), 0, f"{name}s_room_{j}")
    program.at_least(plus(flags["prefill_batch"], flags["decode_batch"], {used: -1}), 0, f"some_{j}")
    if not network.rules.hybrid:
        program.at_most(plus(flags["prefill_batch"], flags["decode_batch"]), 1, f"no_hybrid_{j}")
    transfers = {v: arc.transfer_ticks for _, arc, v in arcs if arc.transfer_ticks}
    return features | flags | {"transfer": transfers}


def exactness(problem: Problem, kinds: Kinds, batches: int) -> tuple[bool, str, bool]:
    """Whether the network holds an optimal schedule, why, and whether it needs partial chunks for that."""
    if problem.boundary is not None:
        return False, "a part of a schedule between given states", False
    harmless, reason = whole_fills_suffice(problem)
    if harmless:
        return True, reason, False
    levels = sum(4 * (r.input_tokens + k) for r, _ in kinds for k in range(r.output_tokens)) * batches
    if levels <= MAX_CHUNK_VARIABLES:
        return True, "every partial chunk is allowed", True
    return False, f"partial chunks can help where {reason}, and are left out of a network of this size", False


def whole_fills_suffice(problem: Problem) -> tuple[bool, str]:
    """Whether whole fills lose nothing, and why; or where partial chunks can help.

    Offline, with M <= C, a chunk can move into the batch that completes its fill; under an additive cost no batch then
    ends later. A batch left with evictions only is dropped and whoever it evicted is kept, which costs nothing if a
    decode step is at most a refill. Objectives must not mind a token that comes earlier.
    """
    instance, cost, rules = problem.instance, problem.cost, problem.rules
    if not rules.chunking:
        return True, "chunking is forbidden, so every fill is whole"
    for hinders, reason in (
        (not cost.additive, f"the cost is {cost.kind}"),
        (instance.kv_blocks * instance.block_size > instance.token_budget, "M > C"),
        (not instance.offline, "requests arrive over time"),
        (not rules.hybrid, "hybrid batches are forbidden"),
        (not rules.holding, "holding is forbidden"),
        (rules.swap is not None, "swapping is allowed"),
        (not all(goal.regular for goal in problem.goals), "single batches or the time between tokens are limited"),
        (cost.additive and not _decode_at_most_refill(cost), "a decode step can cost more than a refill"),
    ):
        if hinders:
            return False, reason
    return True, "whole fills lose nothing: additive cost, M <= C, a decode step costs at most a refill"


def _decode_at_most_refill(cost: CostModel) -> bool:
    """Whether decoding a request of s >= 2 tokens never costs more than refilling it and what its own batch costs.

    The two differ by (s - 1) (decode_reads - tokens) + n_decode - n_prefill - s^2 prefill_square, so the reads must not
    outweigh the tokens and the first case, s = 2, must hold.
    """
    a = cost.coefficient
    flags = a("batch") + a("prefill_batch") + a("n_prefill")
    per_entry = a("n_decode") + a("decode_reads") <= a("n_prefill") + a("tokens")
    return a("decode_reads") <= a("tokens") and per_entry and a("decode_batch") <= flags
