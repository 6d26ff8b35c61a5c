"""Interrupt the decode that is longest in its slot; drop its KVs."""

from __future__ import annotations

from sim.interrupts.policy import RECOMPUTE, Choice, Policy, View


def choose(view: View) -> Choice | None:
    """The first candidate."""
    return (view.candidates[0], RECOMPUTE) if view.candidates else None


POLICY = Policy("heuristic", "oldest decode", "recompute", choose)
