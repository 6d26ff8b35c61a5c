"""Longest remaining first: most output tokens left first, victims the shortest (knows output lengths); C = 4096."""

from __future__ import annotations

from sim.schedulers._ranked import RankedScheduler


class LongestRemaining(RankedScheduler):
    """Longest remaining output first.

    Every step lowers the rank of whoever is served, so that waiting requests must not preempt: they would take turns.
    """

    RANKED_BY = "longest_remaining"
    TAKES_MEMORY = False


SCHEDULER = LongestRemaining
