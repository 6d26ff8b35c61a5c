"""By priority, smaller first."""

from __future__ import annotations

from sim.replay import State


def rank(i: int, state: State) -> int:
    """Priority."""
    return state.instance.requests[i].priority
