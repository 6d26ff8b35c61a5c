"""Time-expanded network in which identical requests flow as one type; integer flow, no symmetry among them.

Nodes are (type, tokens generated k, absent or resident) between batches; arcs of a batch are fill (absent at k ->
resident at k + 1, processing I + k tokens), decode, hold, preempt and wait. Per batch: a memory row, a token row and
one binary for each fixed charge. Fills are whole; where that loses something the formulation says it is not exact.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from csp.formulations import Formulated
from csp.formulations._cost import duration
from csp.formulations._flow_schedule import decode_flow, encode_flow
from csp.horizon import horizon
from csp.program import Program, Terms, plus, times
from csp.relaxations import least_batches
from csp.solvers import Control, Problem
from sim.cost.model import CostModel
from sim.instance import Instance, Request
from sim.replay import Rules

Key = tuple[str, int, int, int]
"""(arc, type, batch, tokens generated before)."""


class Network:
    """The arcs of one problem.

    Attributes
    ----------
    arcs
        Variable of each arc; arcs outside a request's time window do not exist.
    """

    def __init__(
        self, problem: Problem, control: Control, kinds: list[tuple[Request, tuple[int, ...]]], batches: int
    ) -> None:
        self.instance, self.rules, self.kinds, self.batches = problem.instance, problem.rules, kinds, batches
        self.program = Program(f"flow-{problem.instance.name}", out_of_time=lambda: control.stopped)
        self.arcs: dict[Key, int] = {}
        for t in range(len(kinds)):
            self._arcs_of(t)
            self._conserve(t)

    def _arcs_of(self, t: int) -> None:
        """Token k + 1 comes out in batch k at the earliest, and early enough for the rest to follow."""
        request, copies = self.kinds[t]
        instance, last = self.instance, self.batches - 1
        for k in range(request.output_tokens):
            s = request.input_tokens + k
            for j in range(self.batches):
                latest = last - (request.output_tokens - 1 - k)
                if k <= j <= latest and s <= instance.token_budget and (k == 0 or self.rules.preemption):
                    self._arc("fill", t, j, k, len(copies))
                if j < latest and (k == 0 or (j > k and self.rules.preemption)):
                    self._arc("wait", t, j, k, len(copies))
                if k == 0:
                    continue
                if k <= j <= latest:
                    self._arc("decode", t, j, k, len(copies))
                if k <= j < latest:
                    self._arc("hold", t, j, k, len(copies))
                    if self.rules.preemption:
                        self._arc("preempt", t, j, k, len(copies))

    def _arc(self, arc: str, t: int, j: int, k: int, most: int) -> None:
        self.arcs[arc, t, j, k] = self.program.variable(0, most, f"{arc}_{t}_{j}_{k}")

    def terms(self, t: int, j: int, **ks: int) -> Terms:
        """Sum of arcs of a type in a batch, each at its k; arcs that do not exist count nothing."""
        return {self.arcs[arc, t, j, k]: 1 for arc, k in ks.items() if (arc, t, j, k) in self.arcs}

    def _conserve(self, t: int) -> None:
        request, copies = self.kinds[t]
        self.program.equal(self.terms(t, 0, wait=0, fill=0), len(copies), f"start_{t}")
        for j in range(self.batches - 1):
            for k in range(request.output_tokens):
                before, after = self.terms(t, j, wait=k, preempt=k), self.terms(t, j + 1, wait=k, fill=k)
                self.program.equal(plus(before, times(-1, after)), 0, f"absent_{t}_{j}_{k}")
                if k:
                    before = self.terms(t, j, hold=k, fill=k - 1, decode=k - 1)
                    after = self.terms(t, j + 1, hold=k, decode=k, preempt=k)
                    self.program.equal(plus(before, times(-1, after)), 0, f"resident_{t}_{j}_{k}")

    def generated(self, t: int, k: int, j: int) -> Terms:
        """How many of a type have their k-th token by the end of batch j: net flow over the step k - 1 -> k."""
        arcs = [(arc, b) for arc in ("fill", "decode") for b in range(j + 1)]
        return {self.arcs[arc, t, b, k - 1]: 1 for arc, b in arcs if (arc, t, b, k - 1) in self.arcs}


def formulate(problem: Problem, control: Control) -> Formulated:
    """Build the flow program of a problem."""
    instance, cost, rules = problem.instance, problem.cost, problem.rules
    groups: dict[Request, list[int]] = defaultdict(list)
    for i, r in enumerate(instance.requests):
        groups[Request(r.input_tokens, r.output_tokens, r.arrival_ns, r.priority)].append(i)
    kinds = [(request, tuple(copies)) for request, copies in groups.items()]
    batches = horizon(problem)
    network = Network(problem, control, kinds, batches)
    program = network.program
    by_batch: list[dict[str, list[tuple[int, int, int]]]] = [defaultdict(list) for _ in range(batches)]
    for (arc, t, j, k), v in network.arcs.items():
        by_batch[j][arc].append((t, k, v))
    used = [program.binary(f"used_{j}") for j in range(batches)]
    least = least_batches(instance).best
    for j, x in enumerate(used):
        if j < least:
            program.lower[x] = 1
        if j:
            program.at_least({used[j - 1]: 1, x: -1}, 0, f"first_come_{j}")
    rows = [_batch_rows(network, by_batch[j], j, used[j]) for j in range(batches)]
    most_ticks = int(problem.incumbent_value) if problem.incumbent_value is not None else 2**53
    durations = [duration(program, cost, rows[j], j, most_ticks) for j in range(batches)]
    exact, reason = exactness(instance, cost, rules)
    handles: dict[str, Any] = {"program": program, "kinds": kinds, "horizon": batches, "used": used}
    return Formulated(
        **handles, duration=durations, generated=network.generated,
        decode=lambda values: decode_flow(values, network.arcs, kinds, batches),
        encode=lambda run: encode_flow(run, network.arcs, kinds, program, cost), exact=exact, exact_reason=reason,
    )  # fmt: skip


def _batch_rows(network: Network, arcs: dict[str, list[tuple[int, int, int]]], j: int, used: int) -> dict[str, Terms]:
    """Memory, tokens, sequences and flags of one batch; its features as linear expressions."""
    program, instance, kinds = network.program, network.instance, network.kinds
    inputs = [request.input_tokens for request, _ in kinds]
    fills, decodes, holds = arcs["fill"], arcs["decode"], arcs["hold"]
    after = {v: inputs[t] + k for t, k, v in (*fills, *decodes)} | {v: inputs[t] + k - 1 for t, k, v in holds}
    blocks = {v: instance.blocks(kv) for v, kv in after.items()}
    program.at_most(plus(blocks, {used: -instance.kv_blocks}), 0, f"memory_{j}")
    tokens = {v: inputs[t] + k for t, k, v in fills} | {v: 1 for _, _, v in decodes}
    program.at_most(plus(tokens, {used: -instance.token_budget}), 0, f"tokens_{j}")
    n_fill, n_decode = {v: 1 for _, _, v in fills}, {v: 1 for _, _, v in decodes}
    if instance.max_num_seqs is not None:
        program.at_most(plus(n_fill, n_decode, {used: -instance.max_num_seqs}), 0, f"sequences_{j}")
    flags = {}
    for name, entries, n in (("prefills", fills, n_fill), ("decodes", decodes, n_decode)):
        flag = flags[name] = program.binary(f"{name}_{j}")
        program.at_most({flag: 1, used: -1}, 0, f"{name}_used_{j}")
        program.at_least(plus(n, {flag: -1}), 0, f"{name}_some_{j}")
        for t, (_, copies) in enumerate(kinds):
            of_type = {v: 1 for u, _, v in entries if u == t}
            program.at_most(plus(of_type, {flag: -len(copies)}), 0, f"{name}_of_{t}_{j}")
        room = {v: blocks[v] for _, _, v in entries}
        program.at_most(plus(room, {flag: -instance.kv_blocks}), 0, f"{name}_room_{j}")
    program.at_least({flags["prefills"]: 1, flags["decodes"]: 1, used: -1}, 0, f"some_{j}")
    if not network.rules.hybrid:
        program.at_most({flags["prefills"]: 1, flags["decodes"]: 1}, 1, f"no_hybrid_{j}")
    return {
        "batch": {used: 1}, "prefill_batch": {flags["prefills"]: 1}, "decode_batch": {flags["decodes"]: 1},
        "n_prefill": n_fill, "n_decode": n_decode, "tokens": tokens,
        "prefill_square": {v: (inputs[t] + k) ** 2 for t, k, v in fills},
        "decode_reads": {v: inputs[t] + k - 1 for t, k, v in decodes},
    }  # fmt: skip


def exactness(instance: Instance, cost: CostModel, rules: Rules) -> tuple[bool, str]:
    """Whether whole fills lose nothing, for objectives that never fall when a token comes later.

    With M <= C a chunk can move into the batch that completes its fill; under an additive cost no batch then ends
    later. A batch left with evictions only is dropped and whoever it evicted is kept, which costs nothing if a decode
    step is at most a refill.
    """
    if not rules.chunking:
        return True, "chunking is forbidden, so every fill is whole"
    if not cost.additive:
        return False, f"partial chunks can help under {cost.kind} cost and are left out"
    if instance.kv_blocks * instance.block_size > instance.token_budget:
        return False, "partial chunks can help where M > C and are left out"
    if not instance.offline:
        return False, "partial chunks can help where requests arrive over time and are left out"
    if not rules.hybrid:
        return False, "partial chunks can help where hybrid batches are forbidden and are left out"
    a = {f: cost.coefficient(f) for f in ("decode_reads", "tokens", "n_decode", "n_prefill", "decode_batch", "batch",
                                          "prefill_batch")}  # fmt: skip
    if not (
        a["decode_reads"] <= a["tokens"]
        and a["n_decode"] <= a["n_prefill"]
        and a["decode_batch"] <= a["batch"] + a["prefill_batch"] + a["n_prefill"]
    ):
        return False, "partial chunks can help where a decode step costs more than a refill and are left out"
    return True, "whole fills lose nothing: additive cost, M <= C, a decode step costs at most a refill"
