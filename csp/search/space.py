"""An instance as integer tables for a search over states.

A *state* is one code per request, 2 k + r: k tokens generated, r = 1 if its KVs are resident (a complete request is
2 O). Requests are sorted by (I, O), and identical ones are kept sorted by code, so states that differ only in who is
who are one. A *batch* gives each unfinished request one of `WAIT` (hold, if resident), `PROCESS` and `EVICT`; fills are
whole. With offline arrivals a state says all about the past that the future depends on.

Where a batch's cost has several pieces per operator group, bounds use one piece of each (the choice that bounds the
first state best), which never overestimates; batches themselves are always timed by all pieces.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from csp.formulations.flow import whole_fills_suffice
from csp.horizon import additive_floors
from csp.search.dual_feasible import best_functions
from csp.solvers import Problem
from sim.cost.model import CostModel, Features
from sim.errors import InputError
from sim.instance import Instance
from sim.replay import Rules

WAIT, PROCESS, EVICT = 0, 1, 2

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MOST_CODES = 4_000_000
"""Table entries (requests x codes) up to which a search is tried."""
_FUNCTIONS = 6
_ROOM = 2**57
"""Ticks of the dearest schedule: sixteen of them fit in 64 bits."""


LEFT, DECODES, WORK, ROWS = range(4)
"""Fields of `Tables.state`; the area rows and then the absent rows follow from ROWS on."""
BLOCKS, TOKENS, FILLS, DECODED, SQUARES, READS, EXCESS, HELD = range(8)
"""Fields of `Tables.step`: what processing adds to a batch; HELD is what holding occupies."""
OPEN, KEEP, FINISH, TO_EVICT = range(4)
"""Fields of `Tables.mark`."""
CAPACITY, BUDGET, SEQUENCES, PREEMPTION, HYBRID, FLAG, PREFILL_FLAG, DECODE_FLAG, AREA_ROWS = range(9)
"""Fields of `Tables.limits`."""


class Tables(NamedTuple):
    """Everything the compiled search reads, per sorted request i and code.

    Attributes
    ----------
    outputs, kind
        O, and a number that identical requests share; ``[i]``.
    state
        ``[i, code, field]``: tokens left; how many of them need a decode step; least ticks of all remaining entries;
        then per row what the remaining tokens take of batches (memory by several dual feasible functions, tokens,
        slots), and what the next fill of an absent request takes of batches that prefill.
    step
        ``[i, code, field]``: blocks after processing, tokens, 1 if it is a fill, 1 if a decode step, square of a fill's
        tokens, KVs a decode step reads, ticks beyond the least of this token under the additive floor; and the blocks
        held when not processed.
    mark
        ``[i, code, field]``: 1 if tokens are left; 1 where keeping a resident request loses nothing while memory
        allows; 1 where the last token may as well come early (both `csp.search.dominance`); ticks beyond the least
        that evicting adds to the next token.
    capacities
        Per row of ``state``: what a batch has.
    pieces, group_start
        Cost pieces (`sim.cost.model.Features` order), and where each operator group's begin.
    limits
        KV blocks, token budget, most sequences, 1 if preemption is allowed, 1 if hybrid batches are; ticks of [batch],
        [prefill batch], [decode batch] under the additive floor; number of area rows.
    """

    outputs: Ints
    kind: Ints
    state: Ints
    step: Ints
    mark: Ints
    capacities: Ints
    pieces: Ints
    group_start: Ints
    limits: Ints


class Space(NamedTuple):
    """Tables with what leads back to the instance.

    Attributes
    ----------
    order
        Request index of each sorted position.
    exact, exact_reason
        Whether an optimal schedule is among those with whole fills, and why.
    floor
        The additive cost of the tables; it never overestimates.
    """

    instance: Instance
    order: tuple[int, ...]
    tables: Tables
    exact: bool
    exact_reason: str
    floor: Features


def build_space(instance: Instance, cost: CostModel, rules: Rules) -> Space:
    """Count an instance.

    Raises
    ------
    InputError
        If the search does not apply: arrivals over time, swapping, or numbers too large for 64 bits.
    """
    _require_searchable(instance, rules)
    requests = instance.requests
    order = tuple(sorted(range(len(requests)), key=lambda i: (requests[i].input_tokens, requests[i].output_tokens)))
    inputs = np.array([requests[i].input_tokens for i in order], np.int64)
    outputs = np.array([requests[i].output_tokens for i in order], np.int64)
    floors = [(_with_floor(instance, cost, rules, inputs, outputs, a), a) for a in additive_floors(cost)]
    tables, floor = max(floors, key=lambda pair: first_bound(pair[0]))
    exact, reason = whole_fills_suffice(Problem(instance, cost, rules))
    if not exact:
        reason = f"partial chunks can help where {reason}, and are left out"
    return Space(instance, order, tables, exact, reason, floor)


def _require_searchable(instance: Instance, rules: Rules) -> None:
    if not instance.offline:
        raise InputError("the search over states needs all arrivals at 0; use the flow formulation", field="solver")
    if rules.swap is not None or rules.abandon or rules.prefix_sharing or not rules.holding:
        raise InputError("the search over states knows neither swapping nor abandoning nor shared prefixes, and holds",
                         field="solver")  # fmt: skip
    codes = 2 * (max(r.output_tokens for r in instance.requests) + 1)
    if codes >= 2**16 or codes * len(instance.requests) > MOST_CODES:
        raise InputError("too many requests or output tokens for a search over states", field="solver")


def _with_floor(
    instance: Instance, cost: CostModel, rules: Rules, inputs: Ints, outputs: Ints, a: Features
) -> Tables:  # fmt: skip
    """Tables under one additive cost that never overestimates."""
    k = np.arange(int(outputs.max()) + 1)
    s = inputs[:, None] + k[None, :]
    open_ = k[None, :] < outputs[:, None]
    if int(open_.sum()) * _dearest_ticks(cost, int(s.max())) > _ROOM:
        raise InputError("times too large for a search in 64-bit integers", field="cost_model", value=cost.name)
    fill = np.where(open_, a.prefill_square * s * s + a.tokens * s + a.n_prefill, 0)
    decode = np.where(open_, a.decode_reads * (s - 1) + a.tokens + a.n_decode, 0)
    blocks = -(-s // instance.block_size)
    areas, area_capacities = _area_rows(instance, blocks, s, open_)
    absents, absent_capacities = _absent_rows(instance, blocks, s, open_)
    needs_decode = (open_ & (fill >= decode + a.decode_batch)).astype(np.int64)
    ones = open_.astype(np.int64)
    state = [_by_code(ones, ones), _by_code(needs_decode, 0 * ones), _by_code(np.minimum(fill, decode), fill)]
    pieces = [piece for group in cost.groups for piece in group.pieces]
    starts = np.cumsum([0, *(len(group.pieces) for group in cost.groups)])
    limits = (instance.kv_blocks, instance.token_budget, instance.max_num_seqs or len(inputs), rules.preemption,
              rules.hybrid, a.batch, a.prefill_batch, a.decode_batch, len(areas))  # fmt: skip
    return Tables(
        outputs, _kinds(inputs, outputs), np.stack([*state, *areas, *absents], 2),
        _steps(instance, s, blocks, fill, decode, open_), _marks(cost, rules, a, fill, decode, outputs),
        np.array([*area_capacities, *absent_capacities], np.int64), np.array(pieces, np.int64),
        starts.astype(np.int64), np.array(limits, np.int64),
    )  # fmt: skip


def _dearest_ticks(cost: CostModel, tokens: int) -> int:
    """At least what a batch with one entry of so many tokens takes, so at most one per token generated is spent."""
    most = Features(1, 1, 1, 1, 1, tokens, tokens * tokens, tokens, tokens)
    return sum(max(sum(x * y for x, y in zip(piece, most, strict=True)) for piece in group.pieces)
               for group in cost.groups)  # fmt: skip


def _steps(instance: Instance, s: Ints, blocks: Ints, fill: Ints, decode: Ints, open_: Flags) -> Ints:
    """`Tables.step`."""
    ones, none = open_.astype(np.int64), 0 * s
    held = -(-(s - 1) // instance.block_size)
    least = np.minimum(fill, decode)
    absent = [blocks, s, ones, none, s * s, none, none, none]
    resident = [blocks, ones, none, ones, none, s - 1, decode - least, held]
    return np.stack([_interleave(x * ones, y * ones) for x, y in zip(absent, resident, strict=True)], 2)


def _marks(cost: CostModel, rules: Rules, a: Features, fill: Ints, decode: Ints, outputs: Ints) -> Ints:
    """`Tables.mark`; the conditions of `csp.search.dominance`."""
    k = np.arange(fill.shape[1])[None, :]
    open_, later = k < outputs[:, None], k > 0
    plain = cost.additive and rules.preemption and rules.hybrid
    keep = open_ & later & (fill >= decode + a.decode_batch) & plain
    cheaper = bool(np.all((fill >= decode) | ~open_ | ~later)) and a.decode_batch <= a.batch + a.prefill_batch
    finish = (k == outputs[:, None] - 1) & plain & cheaper
    to_evict = np.where(open_ & later, fill - np.minimum(fill, decode), 0)
    both = [open_, keep, finish]
    return np.stack([*(_interleave(x, x) for x in both), _interleave(0 * to_evict, to_evict)], 2).astype(np.int64)


def _kinds(inputs: Ints, outputs: Ints) -> Ints:
    changes = (np.diff(inputs) != 0) | (np.diff(outputs) != 0)
    return np.concatenate([[0], np.cumsum(changes)]).astype(np.int64)


def _interleave(absent: npt.ArrayLike, resident: npt.ArrayLike) -> Ints:
    """[i, k] twice to [i, code]."""
    absent = np.asarray(absent, np.int64)
    return np.stack([absent, np.asarray(resident, np.int64)], 2).reshape(absent.shape[0], -1)


def _by_code(value: Ints, if_absent: Ints) -> Ints:
    """Sum over the remaining tokens of ``value``, the next one counted as ``if_absent`` for whoever is absent."""
    after = np.flip(np.cumsum(np.flip(value, 1), 1), 1)
    return _interleave(after - value + if_absent, after)


def _area_rows(instance: Instance, blocks: Ints, s: Ints, open_: Flags) -> tuple[list[Ints], list[int]]:
    """What remaining tokens take of a batch: memory, tokens, slots. The first row is the memory area itself."""
    ones = open_.astype(np.int64)
    rows, capacities = [], []
    for values, capacity in _packing_rows(blocks[open_], blocks, instance.kv_blocks):
        rows.append(_by_code(values * ones, values * ones))
        capacities.append(capacity)
    if instance.token_budget < int(s[:, -1].sum()):
        rows.append(_by_code(ones, s * ones))
        capacities.append(instance.token_budget)
    if instance.max_num_seqs is not None:
        rows.append(_by_code(ones, ones))
        capacities.append(instance.max_num_seqs)
    return rows, capacities


def _absent_rows(instance: Instance, blocks: Ints, s: Ints, open_: Flags) -> tuple[list[Ints], list[int]]:
    """What the next fills take of the batches that prefill: memory, tokens, slots."""
    ones = open_.astype(np.int64)
    rows, capacities = [], []
    for values, capacity in _packing_rows(blocks[:, 0], blocks, instance.kv_blocks):
        rows.append(_interleave(values * ones, 0 * ones))
        capacities.append(capacity)
    rows.append(_interleave(s * ones, 0 * ones))
    capacities.append(instance.token_budget)
    if instance.max_num_seqs is not None:
        rows.append(_interleave(ones, 0 * ones))
        capacities.append(instance.max_num_seqs)
    return rows, capacities


def _packing_rows(counted: Ints, blocks: Ints, capacity: int) -> list[tuple[Ints, int]]:
    """Values of the dual feasible functions that bound the counted sizes best, at all sizes; their capacities."""
    sizes, where = np.unique(blocks, return_inverse=True)
    rows = []
    for function in best_functions(Counter(counted.ravel().tolist()), capacity, _FUNCTIONS):
        values = np.array([function.value(x) if x <= capacity else 0 for x in sizes.tolist()], np.int64)
        rows.append((values[where].reshape(blocks.shape), function.capacity))
    return rows


def first_bound(tables: Tables) -> int:
    """Lower bound of the state in which nothing has been generated."""
    from csp.search._bounds import state_bound

    return int(state_bound(np.zeros(len(tables.outputs), np.uint16), tables.state, tables.capacities, tables.limits))
