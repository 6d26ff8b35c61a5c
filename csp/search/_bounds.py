"""What every way on from a state still costs, compiled. The proof is in `remaining_ticks`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from csp.search._jit import compiled
from csp.search.space import (
    AREA_ROWS,
    DECODE_FLAG,
    DECODES,
    FLAG,
    LEFT,
    PREFILL_FLAG,
    ROWS,
    WORK,
    Ints,
)

Codes = npt.NDArray[np.uint16]


@compiled
def charges(batches: int, prefills: int, decodes: int, limits: Ints) -> int:
    """Least fixed charges of at least so many batches, at least so many of which prefill and so many decode.

    A batch prefills, decodes or both: F_p >= prefills, F_d >= decodes and F_p + F_d >= batches. Both charges are
    >= 0, so the least sum takes both at their bounds and fills up with the smaller one.
    """
    rest = max(0, batches - prefills - decodes) * min(limits[PREFILL_FLAG], limits[DECODE_FLAG])
    fixed = limits[FLAG] * max(batches, prefills, decodes)
    return int(fixed + limits[PREFILL_FLAG] * prefills + limits[DECODE_FLAG] * decodes + rest)


@compiled
def add_request(totals: Ints, i: int, state: Ints, request: int, code: int) -> None:
    """Carry totals of the requests before row ``i`` over one more request: sums, and the largest LEFT and DECODES."""
    totals[i + 1, LEFT] = max(totals[i, LEFT], state[request, code, LEFT])
    totals[i + 1, DECODES] = max(totals[i, DECODES], state[request, code, DECODES])
    for x in range(WORK, state.shape[2]):
        totals[i + 1, x] = totals[i, x] + state[request, code, x]


@compiled
def remaining_ticks(totals: Ints, i: int, capacities: Ints, limits: Ints) -> int:
    """Lower bound on the cost of all batches from a state on, from its totals (the search's heuristic).

    Entries: the next token of an absent request comes from a fill, every other one from a decode step or a fill,
    whichever is cheaper (WORK). Batches: at least as many as the longest request has tokens left, and no resource is
    asked for beyond what batches have (area rows; `csp.search.dual_feasible`). Prefills: every absent request is
    filled whole in a batch that prefills (absent rows). Decodes: a request with d tokens whose refill costs at least a
    decode step and its flag either decodes in d batches, or refills x of them and pays x flags more in entries than
    was counted: either way d flags, so the largest d may be charged as batches that decode. Entries and fixed charges
    are separate parts of every batch's cost under the additive floor, so their least sums add up to a bound.
    """
    batches, prefills = totals[i, LEFT], 0
    areas = limits[AREA_ROWS]
    for row in range(areas):
        batches = max(batches, -(-totals[i, ROWS + row] // capacities[row]))
    for row in range(areas, len(capacities)):
        prefills = max(prefills, -(-totals[i, ROWS + row] // capacities[row]))
    return int(totals[i, WORK] + charges(batches, prefills, totals[i, DECODES], limits))


@compiled
def state_bound(codes: Codes, state: Ints, capacities: Ints, limits: Ints) -> int:
    """`remaining_ticks` of a state given by its codes."""
    totals = np.zeros((len(codes) + 1, state.shape[2]), np.int64)
    for i in range(len(codes)):
        add_request(totals, i, state, i, codes[i])
    return remaining_ticks(totals, len(codes), capacities, limits)
