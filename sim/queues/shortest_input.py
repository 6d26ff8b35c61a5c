"""Shortest prompt first."""

from __future__ import annotations

from sim.replay import State


def rank(i: int, state: State) -> int:
    """Prompt tokens."""
    return state.inputs[i]
