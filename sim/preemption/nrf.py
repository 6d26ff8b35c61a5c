"""NRF, newest request first: the order is left as it is, so the last admitted is preempted first (vLLM's rule)."""

from __future__ import annotations

from sim.replay import State


def order(running: list[int], state: State) -> list[int]:
    """Keep the scheduler's order."""
    return running
