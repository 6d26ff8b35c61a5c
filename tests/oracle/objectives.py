"""What is minimised. Each objective grows along a schedule, so that labels can be settled in order of value.

Times are ticks from zero; the value of a label after a batch is `Objective.grow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

Value = int | Fraction


class Step(NamedTuple):
    """One batch as objectives see it. Requests are given as (type, how many)."""

    before: int
    """End of the batch before."""
    end: int
    unfinished: tuple[tuple[int, int], ...]
    """Before this batch."""
    tokenless: tuple[tuple[int, int], ...]
    """Without a first token before this batch."""
    finishing: tuple[int, ...]
    """Types that complete in this batch."""
    starting: tuple[int, ...]
    """Types that get their first token in this batch."""


class Alike(Protocol):
    """Interchangeable requests: their arrival in ticks and what `Objective.weight` says of them."""

    @property
    def arrival(self) -> int: ...

    @property
    def weight(self) -> Any: ...


Rest = Iterable[tuple[int, int, int | None]]
"""(type, ticks to completion, ticks to the first token or None) of each unfinished request, all of them at least."""


class Objective:
    """Base of the objectives."""

    def keeps_time(self, online: bool) -> bool:
        """Whether two labels with the same state and value differ when their times do."""
        return True

    def weight(self, request: int) -> Any:
        """What tells otherwise identical requests apart."""
        return None

    def grow(self, value: Value, step: Step, types: Sequence[Alike]) -> Value:
        """The value after one more batch."""
        raise NotImplementedError

    def estimate(self, value: Value, now: int, rest: Rest, types: Sequence[Alike]) -> Value:
        """A lower bound of the final value; never falls along a schedule."""
        return value

    def finish(self, value: Value, n: int) -> Value:
        """From the accumulated value to the reported one."""
        return value


class Makespan(Objective):
    """End of the last batch."""

    def keeps_time(self, online: bool) -> bool:
        return False

    def grow(self, value: Value, step: Step, types: Sequence[Alike]) -> Value:
        return step.end


def _elapsed(step: Step, arrival: int) -> int:
    return max(0, step.end - max(step.before, arrival))


@dataclass(frozen=True)
class WeightedCompletion(Objective):
    """Sum (or mean) over requests of weight x (completion - arrival)."""

    weights: tuple[int | Fraction, ...] | None = None
    mean: bool = False

    def keeps_time(self, online: bool) -> bool:
        return online

    def weight(self, request: int) -> int | Fraction:
        return 1 if self.weights is None else self.weights[request]

    def grow(self, value: Value, step: Step, types: Sequence[Alike]) -> Value:
        for t, n in step.unfinished:
            value += n * types[t].weight * _elapsed(step, types[t].arrival)
        return value

    def estimate(self, value: Value, now: int, rest: Rest, types: Sequence[Alike]) -> Value:
        for t, own, _ in rest:
            value += types[t].weight * own
        return value

    def finish(self, value: Value, n: int) -> Value:
        return Fraction(value, n) if self.mean else value


class MeanTtft(Objective):
    """Mean over requests of the end of the batch with the first token, minus arrival."""

    def keeps_time(self, online: bool) -> bool:
        return online

    def grow(self, value: Value, step: Step, types: Sequence[Alike]) -> Value:
        return value + sum(n * _elapsed(step, types[t].arrival) for t, n in step.tokenless)

    def estimate(self, value: Value, now: int, rest: Rest, types: Sequence[Alike]) -> Value:
        return value + sum(first for _, _, first in rest if first is not None)

    def finish(self, value: Value, n: int) -> Value:
        return Fraction(value, n)


@dataclass(frozen=True)
class MaxTtft(Objective):
    """Largest TTFT among the requests of a class (all of them by default)."""

    members: frozenset[int] | None = None

    def weight(self, request: int) -> bool:
        return self.members is None or request in self.members

    def grow(self, value: Value, step: Step, types: Sequence[Alike]) -> Value:
        return max([value, *(step.end - types[t].arrival for t in step.starting if types[t].weight)])

    def estimate(self, value: Value, now: int, rest: Rest, types: Sequence[Alike]) -> Value:
        waits = (now + first - types[t].arrival for t, _, first in rest if first is not None and types[t].weight)
        return max([value, *waits])


@dataclass(frozen=True)
class MaxSlowdown(Objective):
    """Largest (completion - arrival) / alone, where ``alone_ticks`` is given per request."""

    alone_ticks: tuple[int, ...]

    def weight(self, request: int) -> int:
        return self.alone_ticks[request]

    def grow(self, value: Value, step: Step, types: Sequence[Alike]) -> Value:
        ends = (Fraction(step.end - types[t].arrival, types[t].weight) for t in step.finishing)
        return max([value, *ends])

    def estimate(self, value: Value, now: int, rest: Rest, types: Sequence[Alike]) -> Value:
        return max([value, *(Fraction(now + own - types[t].arrival, types[t].weight) for t, own, _ in rest)])
