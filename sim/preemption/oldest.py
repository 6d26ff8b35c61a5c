"""Oldest request first: whoever arrived first is preempted first."""

from __future__ import annotations

from sim.replay import State


def order(running: list[int], state: State) -> list[int]:
    """Sort by arrival, latest first; of equal arrivals the one listed later in the instance first."""
    return sorted(running, key=lambda i: (-state.arrival_ticks[i], -i))
