"""Shortest remaining first: fewest output tokens left first, preempting for it (knows output lengths); C = 4096."""

from __future__ import annotations

from sim.schedulers._ranked import RankedScheduler


class ShortestRemaining(RankedScheduler):
    """Shortest remaining output first."""

    RANKED_BY = "shortest_remaining"
    TAKES_MEMORY = True


SCHEDULER = ShortestRemaining
