"""Certificates of lower bounds, checked in exact integer arithmetic without a solver.

`recheck` takes a bound's ``inputs`` as they stand in a result file and returns what they prove. It shares the
definition of the patterns with the code that found the potentials, but none of its search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from csp.relaxations.aggregate import Multipliers
from csp.relaxations.circulation import prove_circulation
from csp.relaxations.histories import History, history, prove_histories
from csp.relaxations.load import Load, load_of
from csp.relaxations.patterns import (
    DECODE,
    EVICT,
    FILL,
    HOLD,
    LEAVE,
    Charges,
    Items,
    Weights,
    charges,
    items_of,
)
from sim.cost.model import CostModel
from sim.instance import Instance

Ints = npt.NDArray[np.int64]
_NONE = -(2**61)
_LARGEST = 2**52
_MOST_CELLS = 10_000_000


@dataclass(frozen=True, slots=True)
class Potentials:
    """Potentials in ticks; see `csp.relaxations.levels`.

    Parameters
    ----------
    resident
        Per type R_1, R_2, ... up to R_{O-1}, or up to R_O where completed requests leave a batch later.
    absent
        Per type A_0 to A_{O-1}.
    level
        psi(n, W) per number of residents n = 0, 1, ..., the last for that many or more, and blocks W = 0..M.
    apart
        Whether completed requests are taken out of the level at once.
    """

    resident: tuple[tuple[int, ...], ...]
    absent: tuple[tuple[int, ...], ...]
    level: tuple[tuple[int, ...], ...]
    apart: bool

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"resident": [list(r) for r in self.resident], "absent": [list(a) for a in self.absent],
                "level": [list(n) for n in self.level], "apart": self.apart}  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Potentials:
        """From the JSON form."""
        return cls(tuple(tuple(map(int, r)) for r in data["resident"]),
                   tuple(tuple(map(int, a)) for a in data["absent"]),
                   tuple(tuple(map(int, n)) for n in data["level"]), bool(data["apart"]))  # fmt: skip


class PotentialsTooLargeError(ValueError):
    """The sums of a proof would leave 64 bits."""


def prove(load: Load, charge: Charges, given: Potentials) -> Fraction:
    """The makespan bound, in ticks, that potentials prove for every schedule.

    Potentials that do not quite fit are made to: residents' are lowered until patterns that process nothing, which
    cost 0, take nothing away; and if a pattern that processes takes away up to g more than it costs, then by at most
    (cost / least cost of a batch) batches, cost (1 + g / least) >= sum of A_0.

    Raises
    ------
    ValueError
        If there are too few or too many potentials, or they are too large for exact 64-bit arithmetic.
    """
    if given.apart and len(load.lengths) != 1:
        raise ValueError("completed requests can be set apart for one type only")
    items = items_of(load, charge, leave=not given.apart)
    _check_sizes(load, given)
    level = np.array(given.level, np.int64)
    resident = _lowered(load, given, level, _reachable(items, level.shape))
    profit = _profits(items, resident, given.absent)
    if int(np.abs(profit).max()) * (load.kv_blocks + 2) > 2**59:
        raise PotentialsTooLargeError("potentials are too large for exact 64-bit arithmetic")
    gain = max(0, _largest_gain(load, charge, items, profit, level, given.apart))
    total = sum(n * given.absent[kind][0] for kind, (_, _, n) in enumerate(load.lengths))
    return Fraction(max(0, total)) / (1 + Fraction(gain, charge.least)) if total > 0 else Fraction(0)


def _check_sizes(load: Load, given: Potentials) -> None:
    for kind, (_, o, _) in enumerate(load.lengths):
        if len(given.absent[kind]) != o or len(given.resident[kind]) != (o - 1 if given.apart else o):
            raise ValueError(f"type {kind} needs a potential for each number of tokens generated")
    if len(given.resident) != len(load.lengths) or {len(n) for n in given.level} != {load.kv_blocks + 1}:
        raise ValueError("needs a potential for each type and level")
    if len(given.level) > 1 and (len(given.level) * (load.kv_blocks + 1)) ** 2 > _MOST_CELLS:
        raise ValueError("tells too many numbers of residents apart")
    largest = max(abs(x) for part in (*given.level, *given.resident, *given.absent) for x in part)
    if largest > _LARGEST or largest * (load.kv_blocks + 2) > 2**59:
        raise PotentialsTooLargeError("potentials are too large for exact 64-bit arithmetic")


def _reachable(items: Items, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Levels that some set of residents has."""
    reached = np.zeros(shape, np.int64)
    reached[0, 0] = 1
    for size in np.unique(items.before[items.before > 0]).tolist():
        for w in range(size, shape[1]):
            reached[:, w] |= _one_resident_more(reached[:, w - size], 0, 0)
    return reached > 0


def _one_resident_more(table: Ints, axis: int, nothing: int) -> Ints:
    """The table moved on along an axis of numbers of residents, the last of which stands for that many or more."""
    table = np.moveaxis(table, axis, 0)
    moved = np.full_like(table, nothing)
    moved[1:] = table[:-1]
    moved[-1] = np.maximum(moved[-1], table[-1])
    return np.moveaxis(moved, 0, axis)


def _lowered(load: Load, given: Potentials, level: Ints, reachable: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Residents' potentials, lowered until evicting, or leaving when complete, takes nothing away."""
    lowered = []
    with_one_more = level[np.minimum(np.arange(len(level)) + 1, len(level) - 1)]
    for kind, (i, _, _) in enumerate(load.lengths):
        values = []
        for k, potential in enumerate(given.resident[kind], start=1):
            size = -(-(i + k - 1) // load.block_size)
            rest = level.shape[1] - size
            drop = int((level[:, :rest] - with_one_more[:, size:])[reachable[:, :rest]].min())
            stay = given.absent[kind][k] if k < len(given.absent[kind]) else 0
            values.append(min(potential, stay + drop))
        lowered.append(values)
    return lowered


def _profits(items: Items, resident: list[list[int]], absent: tuple[tuple[int, ...], ...]) -> Ints:
    """Potentials each item takes away, minus its cost."""
    profits = []
    for q in range(len(items)):
        action, kind, k = items.action[q], int(items.kind[q]), int(items.progress[q])
        here = resident[kind]
        taken = 0
        if action in (DECODE, EVICT, LEAVE):
            taken += here[k - 1]
        if action == EVICT:
            taken -= absent[kind][k]
        if action == FILL:
            taken += absent[kind][k]
        if action in (DECODE, FILL) and k < len(here):
            taken -= here[k]
        profits.append(taken - int(items.cost[q]))
    return np.array(profits, np.int64)


def _close(table: Ints, items: Items, profit: Ints, chosen: Ints) -> Ints:
    """Any number of the chosen items added, row by row; axes (residents, blocks) before, (residents, blocks) after."""
    table = table.copy()
    side = table.shape[1]
    for q in chosen:
        a, b, x = int(items.before[q]), int(items.after[q]), int(profit[q])
        if a:
            for w in range(a, side):
                more = _one_resident_more(table[:, w - a, :, : side - b] + x, 0, _NONE)
                more = _one_resident_more(more, 1, _NONE) if b else more
                np.maximum(table[:, w, :, b:], more, out=table[:, w, :, b:])
        else:
            for u in range(b, side):
                more = _one_resident_more(table[:, :, :, u - b] + x, 2, _NONE)
                np.maximum(table[:, :, :, u], more, out=table[:, :, :, u])
    return table


def _largest_gain(load: Load, charge: Charges, items: Items, profit: Ints, level: Ints, apart: bool) -> int:
    """The most a pattern that processes takes away beyond its cost, over all patterns.

    A table whose patterns are charged for decode steps or fills also holds some without: they gain more where they
    belong, or process nothing and gain nothing.
    """
    normal = ~items.completes if apart else np.ones(len(items), bool)
    pick = {a: np.flatnonzero((items.action == a) & normal) for a in (DECODE, HOLD, EVICT, FILL, LEAVE)}
    start = np.full((*level.shape, *level.shape), _NONE, np.int64)
    start[0, 0, 0, 0] = 0
    idle_items = np.concatenate([pick[HOLD], pick[EVICT], pick[LEAVE]])
    idle = _close(start, items, profit, idle_items)
    decode = _close(start, items, profit, np.concatenate([idle_items, pick[DECODE]]))
    tables = {(True, False): decode, (False, True): _close(idle, items, profit, pick[FILL]),
              (True, True): _close(decode, items, profit, pick[FILL])}  # fmt: skip
    ends = {a: np.flatnonzero((items.action == a) & items.completes) for a in (DECODE, FILL)}
    peak = int(items.after[ends[FILL][0]])
    most = load.kv_blocks // peak if apart else 0
    best = _NONE
    for decoding in range(most + 1 if len(ends[DECODE]) else 1):
        for filling in range(most + 1 - decoding):
            more = filling * int(profit[ends[FILL][0]])
            shift = 0
            if decoding:
                more += decoding * int(profit[ends[DECODE][0]])
                shift = decoding * int(items.before[ends[DECODE][0]])
            for (decodes, fills), table in tables.items():
                if decodes >= bool(decoding) and fills >= bool(filling):
                    fixed = charge.batch + decodes * charge.decode_batch + fills * charge.prefill_batch
                    gained = _with_levels(table, level, decoding, shift, (decoding + filling) * peak)
                    best = max(best, gained + more - fixed)
    return best


def _with_levels(table: Ints, level: Ints, residents: int, shift: int, room: int) -> int:
    """Largest entry with the level potentials added: so many residents and blocks more before, ``room`` less after."""
    side = table.shape[1]
    if shift >= side or room >= side:
        return _NONE
    before = level[np.minimum(np.arange(len(level)) + residents, len(level) - 1), shift:]
    after = level[:, : side - room]
    return int((table[:, : side - shift, :, : side - room] + before[:, :, None, None] - after).max())


def levels_certificate(load: Load, weights: Weights, potentials: Potentials) -> dict[str, Any]:
    """What `recheck` needs to prove a level bound: lengths it was computed for, weights of pieces, potentials."""
    return {"kind": "levels", "lengths": [list(length) for length in load.lengths],
            "piece_weights": [[str(w) for w in group] for group in weights],
            "potentials": potentials.to_dict()}  # fmt: skip


def circulation_certificate(load: Load, weights: Weights, potential: list[int], outside: list[int]) -> dict[str, Any]:
    """What `recheck` needs to prove a circulation bound."""
    return {"kind": "circulation", "lengths": [list(length) for length in load.lengths],
            "piece_weights": [[str(w) for w in group] for group in weights], "sets": potential,
            "absent": outside}  # fmt: skip


def histories_certificate(
    load: Load, weights: Weights, seen: History, prices: Ints, potential: Ints
) -> dict[str, Any]:  # fmt: skip
    """What `recheck` needs to prove a history bound."""
    return {"kind": "histories", "lengths": [list(length) for length in load.lengths],
            "piece_weights": [[str(w) for w in group] for group in weights],
            "history": [seen.longest, seen.horizon, seen.grid], "prices": prices.tolist(),
            "potential": potential.tolist()}  # fmt: skip


def recheck(name: str, inputs: Mapping[str, Any], instance: Instance, cost: CostModel) -> int | None:
    """What a reported bound proves, recomputed exactly from its inputs; None if they carry no certificate.

    Parameters
    ----------
    name, inputs
        Of the bound, as in a result file.

    Raises
    ------
    ValueError
        If the certificate is malformed or does not fit the instance.
    """
    from csp.relaxations.combinatorial import AGGREGATE, COUNTS, makespan_from_prices

    try:
        if name in (*COUNTS, AGGREGATE, "configuration"):
            return makespan_from_prices(name, inputs, instance, cost)
        certificate = inputs.get("certificate")
        if certificate is None:
            return None
        if certificate["kind"] in ("levels", "circulation", "histories"):
            return _recheck_potentials(certificate, instance, cost)
    except (KeyError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"malformed certificate: {error!r}") from None
    raise ValueError(f"unknown kind of certificate {certificate['kind']!r}")


def _recheck_potentials(certificate: Mapping[str, Any], instance: Instance, cost: CostModel) -> int:
    load = load_of(instance)
    lengths = tuple((int(i), int(o), int(n)) for i, o, n in certificate["lengths"])
    if not dominated(lengths, load.lengths):
        raise ValueError("the lengths are not the instance's, nor rounded down from them")
    weights = tuple(tuple(map(Fraction, group)) for group in certificate["piece_weights"])
    Multipliers(weights).check()
    coarse = replace(load, lengths=lengths)
    if certificate["kind"] == "circulation":
        sets, absent = ([int(x) for x in certificate[key]] for key in ("sets", "absent"))
        return math.ceil(prove_circulation(coarse, charges(coarse, cost, weights), sets, absent))
    if certificate["kind"] == "histories":
        seen = history(*_history_sizes(certificate["history"]))
        prices, potential = (np.array(certificate[key], np.int64) for key in ("prices", "potential"))
        return math.ceil(prove_histories(coarse, charges(coarse, cost, weights), seen, prices, potential))
    potentials = Potentials.from_dict(certificate["potentials"])
    return math.ceil(prove(coarse, charges(coarse, cost, weights), potentials))


def _history_sizes(given: Sequence[Any]) -> tuple[int, int, int]:
    longest, horizon, grid = map(int, given)
    if min(longest, horizon, grid) < 1 or longest * horizon**2 > 10**7 * grid**2:
        raise ValueError("the history has no sizes, or too large ones")
    return longest, horizon, grid


def dominated(lengths: Sequence[tuple[int, int, int]], given: Sequence[tuple[int, int, int]]) -> bool:
    """Whether the requests of ``lengths`` can be matched one to one with given ones that are at least as long.

    A greedy matching suffices where it succeeds; when it fails the answer is no, which is on the safe side.
    """
    if any(min(length) < 1 for length in lengths) or sum(n for _, _, n in lengths) != sum(n for _, _, n in given):
        return False
    rest = sorted(given, key=lambda length: (length[0], length[1]))
    left = [n for _, _, n in rest]
    for i, o, n in sorted(lengths, key=lambda length: (-length[0], -length[1])):
        # The longest inputs first; of the requests that cover it, those with the shortest outputs.
        candidates = sorted((r for r in range(len(rest)) if left[r] and rest[r][0] >= i and rest[r][1] >= o),
                            key=lambda r: (rest[r][1], rest[r][0]))  # fmt: skip
        for r in candidates:
            used = min(n, left[r])
            left[r] -= used
            n -= used
            if not n:
                break
        if n:
            return False
    return True
