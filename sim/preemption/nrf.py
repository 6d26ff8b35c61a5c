"""NRF, newest request first: keeps the order, so the last admitted is preempted first (as vLLM does)."""

from __future__ import annotations

from sim.replay import State


def order(running: list[int], state: State) -> list[int]:
    """Keep the scheduler's order."""
    return running
