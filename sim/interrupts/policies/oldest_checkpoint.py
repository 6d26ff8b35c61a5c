"""Interrupt the decode that is longest in its slot; save its KVs."""

from __future__ import annotations

from sim.interrupts.policy import CHECKPOINT, Choice, Policy, View


def choose(view: View) -> Choice | None:
    """The first candidate."""
    return (view.candidates[0], CHECKPOINT) if view.candidates else None


POLICY = Policy("heuristic", "oldest decode", "checkpoint", choose)
