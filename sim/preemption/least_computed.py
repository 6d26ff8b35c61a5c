"""Least computed first: whoever has generated the fewest tokens is preempted first."""

from __future__ import annotations

from sim.replay import State


def order(running: list[int], state: State) -> list[int]:
    """Sort by tokens generated, descending; ties keep their order."""
    return sorted(running, key=lambda i: -state.generated[i])
