"""Longest request first: whoever holds the most KVs is preempted first."""

from __future__ import annotations

from sim.replay import State


def order(running: list[int], state: State) -> list[int]:
    """Sort by processed tokens, ascending; ties keep their order."""
    return sorted(running, key=lambda i: state.kv[i] + state.ready[i])
