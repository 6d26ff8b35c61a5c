"""Where the exact optimum of the paper's section 7.2 family stops preempting, to check the break-even against.

The family: 4 requests of I input and 4 output tokens, M = max(2 I, I + 3), C = 4096. For each I two optima are proven,
with preemption and without, among schedules whose fills are whole (under a published linear set chunks cannot help, see
`csp.formulations.flow`); preempting pays where the first is strictly smaller. The gain falls as I grows, so the I at
which it ends is found by bisection, which starts around the marginal break-even; the gain is then looked at once more
at half and at twice that I.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from bounds.breakeven import breakeven
from csp.result import Result
from csp.solve import solve
from sim.cost.model import CostModel
from sim.instance import Instance, Request
from sim.replay import Rules

LARGEST_INPUT_TOKENS = 1024
_REQUESTS, _OUTPUT_TOKENS = 4, 4


@dataclass(frozen=True, slots=True)
class OptimumStop:
    """The I from which on the optimum of the family no longer preempts.

    Parameters
    ----------
    input_tokens
        The smallest I at which preempting gains nothing, all smaller ones that were looked at gaining; None where it
        still gains at the largest I of the family, or an optimum was not proven in time.
    gains
        (I, gain) of every I that was looked at, gain = 1 - optimum / best preemption-free, by I.
    reason
        Why there is no value; empty otherwise.
    """

    input_tokens: int | None
    gains: tuple[tuple[int, float], ...]
    reason: str = ""


def paper_family(input_tokens: int, cost_model: str) -> Instance:
    """One instance of section 7.2."""
    capacity = max(2 * input_tokens, input_tokens + _OUTPUT_TOKENS - 1)
    requests = tuple(Request(input_tokens, _OUTPUT_TOKENS) for _ in range(_REQUESTS))
    return Instance(requests, capacity, cost_model=cost_model, name=f"paper-7.2-i{input_tokens:04d}")


def optimum_stops_at(
    cost: CostModel, *, time_limit_s: float = 60.0, workers: int = 1, seed: int = 0,
    largest: int = LARGEST_INPUT_TOKENS, progress: Callable[[int, float], None] | None = None,
) -> OptimumStop:  # fmt: skip
    """Find where the optimum of the family stops preempting.

    Parameters
    ----------
    cost
        Any cost model.
    time_limit_s
        For each of the two solves per I.
    workers, seed
        For the solver.
    largest
        Largest I looked at.
    progress
        Called with (I, gain) after each I.
    """
    gains: dict[int, Fraction] = {}

    def gains_at(input_tokens: int) -> bool:
        if input_tokens not in gains:
            gains[input_tokens] = preemption_gain(cost, input_tokens, time_limit_s=time_limit_s, workers=workers,
                                                  seed=seed)  # fmt: skip
            if progress is not None:
                progress(input_tokens, float(gains[input_tokens]))
        return gains[input_tokens] > 0

    def stop(value: int | None, reason: str = "") -> OptimumStop:
        return OptimumStop(value, tuple((i, float(gain)) for i, gain in sorted(gains.items())), reason)

    try:
        if not gains_at(1):
            return stop(1)
        low, high = 1, 2
        guess = math.ceil(breakeven(cost).marginal_entry.crossover or 0)
        if 2 < guess <= largest:
            low, high = (guess - 1, guess) if gains_at(guess - 1) else (1, guess - 1)
        while gains_at(high):
            if high >= largest:
                return stop(None, f"preempting still gains at I = {high}")
            low, high = high, min(2 * high, largest)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if gains_at(middle) else (low, middle)
        if gains_at(min(2 * high, largest)) or not gains_at(max(1, high // 2)):
            return stop(None, f"the gain does not end at one I (looked at {sorted(gains)})")
    except NotProven as error:
        return stop(None, str(error))
    return stop(high)


class NotProven(Exception):
    """An optimum was not proven in time."""


def preemption_gain(
    cost: CostModel, input_tokens: int, *, time_limit_s: float = 60.0, workers: int = 1, seed: int = 0
) -> Fraction:  # fmt: skip
    """1 - optimum / best preemption-free schedule of one instance of the family, both proven, fills whole.

    Raises
    ------
    NotProven
        If one of them is not proven in time.
    """

    def best(preemption: bool) -> Result:
        rules = Rules(chunking=False, preemption=preemption)
        instance = paper_family(input_tokens, cost.name)
        found = solve(instance, cost=cost, rules=rules, time_limit_s=time_limit_s, workers=workers, seed=seed)
        if found.status != "OPTIMAL" or found.objective_ticks is None or found.replay is None:
            raise NotProven(f"the optimum at I = {input_tokens} was not proven in {time_limit_s:g} s")
        return found

    optimum = best(preemption=True)
    assert optimum.replay is not None and optimum.objective_ticks is not None
    if not any(optimum.replay.preemptions):
        return Fraction(0)
    without = best(preemption=False)
    assert without.objective_ticks is not None
    return 1 - Fraction(optimum.objective_ticks) / Fraction(without.objective_ticks)
