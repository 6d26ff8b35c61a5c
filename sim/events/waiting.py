"""The waiting queue of the event engine: requests leave it by rank or first come first served."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Waiting:
    """Arrivals in time, and victims in front of them.

    Parameters
    ----------
    arrival_ticks
        Per request.
    requests
        Those that will arrive.
    rank
        Smaller is first, ties as in a first come first served queue; None for that queue itself, in which an arrival
        costs nothing until it stands at the head.
    """

    def __init__(self, arrival_ticks: list[int], requests: list[int], rank: Callable[[int], int] | None = None) -> None:
        self.arrival_ticks, self.rank = arrival_ticks, rank
        self._coming = sorted(requests, key=arrival_ticks.__getitem__)
        self._next = 0
        self._victims: list[int] = []
        self._heap: list[tuple[int, int, int]] = []
        self._front = 0

    def head(self, now_ticks: int) -> int | None:
        """Who is first among those that have arrived; None if nobody waits."""
        if self.rank is not None:
            while self._next < len(self._coming) and self.arrival_ticks[self._coming[self._next]] <= now_ticks:
                i = self._coming[self._next]
                self._next += 1
                heappush(self._heap, (self.rank(i), self._next, i))
            return self._heap[0][2] if self._heap else None
        if self._victims:
            return self._victims[-1]
        if self._next < len(self._coming):
            i = self._coming[self._next]
            if self.arrival_ticks[i] <= now_ticks:
                return i
        return None

    def pop(self) -> None:
        """Take the head out; it must just have been asked for."""
        if self.rank is not None:
            heappop(self._heap)
        elif self._victims:
            self._victims.pop()
        else:
            self._next += 1

    def put_first(self, i: int) -> None:
        """A victim goes to the front (of those with its rank)."""
        if self.rank is None:
            self._victims.append(i)
        else:
            self._front -= 1
            heappush(self._heap, (self.rank(i), self._front, i))

    def next_arrival(self) -> int | None:
        """Who arrives next, after the last one that `head` has seen; None if all have."""
        return self._coming[self._next] if self._next < len(self._coming) else None

    def heeds_arrivals(self, now_ticks: int) -> bool:
        """Whether the next arrival can be first in the queue, ahead of who waits now."""
        return self._next < len(self._coming) and (self.rank is not None or self.head(now_ticks) is None)
