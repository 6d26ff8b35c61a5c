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
        psi_W for every level W = 0..M (in blocks).
    apart
        Whether completed requests are taken out of the level at once.
    """

    resident: tuple[tuple[int, ...], ...]
    absent: tuple[tuple[int, ...], ...]
    level: tuple[int, ...]
    apart: bool

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"resident": [list(r) for r in self.resident], "absent": [list(a) for a in self.absent],
                "level": list(self.level), "apart": self.apart}  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Potentials:
        """From the JSON form."""
        return cls(tuple(tuple(map(int, r)) for r in data["resident"]),
                   tuple(tuple(map(int, a)) for a in data["absent"]), tuple(map(int, data["level"])),
                   bool(data["apart"]))  # fmt: skip


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
    level = np.array(given.level, np.int64)
    _check_sizes(load, given)
    resident = _lowered(load, given, level, _reachable(items, len(level)))
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
    if len(given.resident) != len(load.lengths) or len(given.level) != load.kv_blocks + 1:
        raise ValueError("needs a potential for each type and level")
    largest = max(map(abs, (*given.level, *(x for kind in (*given.resident, *given.absent) for x in kind))))
    if largest > _LARGEST or largest * (load.kv_blocks + 2) > 2**59:
        raise PotentialsTooLargeError("potentials are too large for exact 64-bit arithmetic")


def _reachable(items: Items, side: int) -> npt.NDArray[np.bool_]:
    """Levels that some set of residents has."""
    reached = np.zeros(side, bool)
    reached[0] = True
    for size in np.unique(items.before[items.before > 0]).tolist():
        for w in range(size, side):
            reached[w] |= reached[w - size]
    return reached


def _lowered(load: Load, given: Potentials, level: Ints, reachable: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Residents' potentials, lowered until evicting, or leaving when complete, takes nothing away."""
    lowered = []
    for kind, (i, _, _) in enumerate(load.lengths):
        values = []
        for k, potential in enumerate(given.resident[kind], start=1):
            size = -(-(i + k - 1) // load.block_size)
            rest = len(level) - size
            drop = int((level[:rest] - level[size:])[reachable[:rest]].min())
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
    """Any number of the chosen items added, row by row."""
    table = table.copy()
    side = len(table)
    for q in chosen:
        a, b, x = int(items.before[q]), int(items.after[q]), int(profit[q])
        if a:
            for w in range(a, side):
                np.maximum(table[w, b:], table[w - a, : side - b] + x, out=table[w, b:])
        else:
            for m in range(b, side):
                np.maximum(table[:, m], table[:, m - b] + x, out=table[:, m])
    return table


def _one_more(table: Ints, items: Items, profit: Ints, chosen: Ints) -> Ints:
    best = np.full_like(table, _NONE)
    side = len(table)
    for q in chosen:
        a, b, x = int(items.before[q]), int(items.after[q]), int(profit[q])
        np.maximum(best[a:, b:], table[: side - a, : side - b] + x, out=best[a:, b:])
    return best


def _largest_gain(load: Load, charge: Charges, items: Items, profit: Ints, level: Ints, apart: bool) -> int:
    """The most a pattern that processes takes away beyond its cost, over all patterns."""
    side = load.kv_blocks + 1
    normal = ~items.completes if apart else np.ones(len(items), bool)
    pick = {a: np.flatnonzero((items.action == a) & normal) for a in (DECODE, HOLD, EVICT, FILL, LEAVE)}
    start = np.full((side, side), _NONE, np.int64)
    start[0, 0] = 0
    idle = _close(start, items, profit, np.concatenate([pick[HOLD], pick[EVICT], pick[LEAVE]]))
    decode = _close(idle, items, profit, pick[DECODE])
    fill = _close(idle, items, profit, pick[FILL])
    both = _close(decode, items, profit, pick[FILL])
    one_decode, one_fill = _one_more(decode, items, profit, pick[DECODE]), _one_more(fill, items, profit, pick[FILL])
    mixed = _one_more(_close(one_decode, items, profit, pick[FILL]), items, profit, pick[FILL])
    fixed_d, fixed_f = charge.batch + charge.decode_batch, charge.batch + charge.prefill_batch
    fixed_b = fixed_d + charge.prefill_batch
    best = max(_with_levels(table, level, 0, 0) - fixed
               for table, fixed in ((one_decode, fixed_d), (one_fill, fixed_f), (mixed, fixed_b)))  # fmt: skip
    if not apart:
        return best
    ends = {a: np.flatnonzero((items.action == a) & items.completes) for a in (DECODE, FILL)}
    peak = int(items.after[ends[FILL][0]])
    for decoding in range(load.kv_blocks // peak + 1 if len(ends[DECODE]) else 1):
        for filling in range(load.kv_blocks // peak + 1 - decoding):
            if not decoding and not filling:
                continue
            more = filling * int(profit[ends[FILL][0]])
            shift = 0
            if decoding:
                more += decoding * int(profit[ends[DECODE][0]])
                shift = decoding * int(items.before[ends[DECODE][0]])
            options = [(both, fixed_b)]
            options += [(decode, fixed_d)] if not filling else []
            options += [(fill, fixed_f)] if not decoding else []
            for table, fixed in options:
                gained = _with_levels(table, level, shift, (decoding + filling) * peak)
                best = max(best, gained + more - fixed)
    return best


def _with_levels(table: Ints, level: Ints, shift: int, room: int) -> int:
    """Largest entry with the level potentials added, ``shift`` blocks more before and ``room`` less after."""
    side = len(table)
    if shift >= side or room >= side:
        return _NONE
    part = table[: side - shift, : side - room]
    return int((part + level[shift:, None] - level[None, : side - room]).max())


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
