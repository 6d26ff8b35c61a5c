"""Sums and maxima over requests inside an integer program, and what a request needs at least."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from csp.horizon import additive_floors, entry_ticks
from csp.program import Terms, ones, plus, times
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel
from sim.instance import Instance, Request

if TYPE_CHECKING:
    from csp.formulations import Formulated


def sum_of_times(formulated: Formulated, milestone: str, weight_of: dict[int, int]) -> Terms:
    """Weighted sum over requests of the time they reach a milestone ("first" or "last" token), from time zero.

    With W requests (times weight) waiting before a batch, the batch adds W times its length; per weight and r, the
    length counts if fewer than r have got there. A length counts through ``wait >= length - longest * (r got there)``.

    Parameters
    ----------
    weight_of
        Weight >= 0 per kind.
    """
    program = formulated.program
    if formulated.constant_ticks is not None:
        return _constant(formulated, milestone, weight_of, formulated.constant_ticks)
    kinds_of: dict[int, list[int]] = defaultdict(list)
    for t, weight in weight_of.items():
        kinds_of[weight].append(t)
    total: Terms = {}
    for weight, kinds in sorted(kinds_of.items()):
        if not weight:
            continue
        members = sum(len(formulated.kinds[t][1]) for t in kinds)
        before: list[int] = []
        for j, length in enumerate(formulated.lengths()):
            longest = sum(a * program.upper[v] for v, a in length.items() if a > 0)
            longest = min(longest, formulated.longest_ticks)
            for r in range(members):
                wait = program.variable(0, longest, f"wait_{milestone}_{weight}_{j}_{r}", ticks=True)
                reached = {before[r]: longest} if j else {}
                program.at_least(plus({wait: 1}, times(-1, length), reached), 0, f"waits_{milestone}_{weight}_{j}_{r}")
                total[wait] = weight
            before = _counted(formulated, milestone, kinds, j, members, weight)
    return total


def _constant(formulated: Formulated, milestone: str, weight_of: dict[int, int], length: int) -> Terms:
    """The same where every batch takes the same time: whoever has not got there before a batch waits for it."""
    total: Terms = {}
    for t, weight in weight_of.items():
        k = _k(formulated, t, milestone)
        for j in range(formulated.horizon):
            there = formulated.generated(t, k, j - 1) if j else {}
            total = plus(total, times(-weight * length, there))
        everybody = weight * length * formulated.horizon * len(formulated.kinds[t][1])
        total = plus(total, {formulated.one(): everybody} if everybody else {})
    return total


def _counted(formulated: Formulated, milestone: str, kinds: list[int], j: int, members: int, weight: int) -> list[int]:
    """Binaries: at least r + 1 requests of these kinds have reached the milestone by the end of batch j."""
    program = formulated.program
    levels = [program.binary(f"reached_{milestone}_{weight}_{j}_{r}") for r in range(members)]
    for higher, lower in zip(levels[1:], levels, strict=False):
        program.at_most({higher: 1, lower: -1}, 0, f"in_order_{milestone}_{j}")
    count = plus(*(formulated.generated(t, _k(formulated, t, milestone), j) for t in kinds))
    program.equal(plus(count, times(-1, ones(levels))), 0, f"count_{milestone}_{weight}_{j}")
    return levels


def _k(formulated: Formulated, t: int, milestone: str) -> int:
    return 1 if milestone == "first" else formulated.kinds[t][0].output_tokens


def all_reached(formulated: Formulated, t: int, milestone: str, j: int) -> int:
    """Binary: every request of a kind has reached the milestone by the end of batch j."""
    key = (t, milestone, j)
    if key not in formulated.reached:
        program = formulated.program
        done = formulated.reached[key] = program.binary(f"all_{milestone}_{t}_{j}")
        count = formulated.generated(t, _k(formulated, t, milestone), j)
        program.at_least(plus(count, {done: -len(formulated.kinds[t][1])}), 0, f"all_{milestone}_row_{t}_{j}")
    return formulated.reached[key]


def within(formulated: Formulated, t: int, milestone: str, allowed: Terms, constant: int, *, scale: int = 1) -> None:
    """Every request of a kind reaches the milestone by ``(allowed + constant) / scale`` ticks after its arrival."""
    program, latest = formulated.program, formulated.latest_ticks
    arrival = formulated.kinds[t][0].arrival_ns * TICKS_PER_NS
    for j, end in enumerate(formulated.end):
        waived = {all_reached(formulated, t, milestone, j - 1): scale * latest} if j else {}
        least = -scale * arrival - constant
        program.at_least(plus(allowed, times(-scale, end), waived), least, f"within_{milestone}_{t}_{j}")


def alone_floor_ticks(request: Request, instance: Instance, cost: CostModel, outputs: int | None = None) -> int:
    """Least time of any schedule from a request's arrival to its k-th token (all of them by default)."""
    best = 0
    o = request.output_tokens if outputs is None else outputs
    batches = -(-request.input_tokens // instance.token_budget) + o - 1
    for a in additive_floors(cost):
        work = sum(entry_ticks(a, request.input_tokens, k) for k in range(o))
        flags = batches * (a.batch + min(a.prefill_batch, a.decode_batch)) + max(0, a.prefill_batch - a.decode_batch)
        best = max(best, work + flags)
    return best
