"""Longest prompt first."""

from __future__ import annotations

from sim.replay import State


def rank(i: int, state: State) -> int:
    """Minus prompt tokens."""
    return -state.inputs[i]
