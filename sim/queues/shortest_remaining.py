"""Fewest tokens left to generate first (knows output lengths)."""

from __future__ import annotations

from sim.replay import State


def rank(i: int, state: State) -> int:
    """Output tokens left."""
    return state.outputs[i] - state.generated[i]
