"""Lowest priority first: whoever is least urgent is preempted first (larger numbers are less urgent)."""

from __future__ import annotations

from sim.replay import State


def order(running: list[int], state: State) -> list[int]:
    """Sort by priority, most urgent first; ties keep their order."""
    return sorted(running, key=lambda i: state.instance.requests[i].priority)
