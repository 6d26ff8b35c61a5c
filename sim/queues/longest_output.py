"""Longest output first (knows output lengths)."""

from __future__ import annotations

from sim.replay import State


def rank(i: int, state: State) -> int:
    """Minus output tokens."""
    return -state.outputs[i]
