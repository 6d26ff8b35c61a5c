"""Interrupt the least urgent class first, oldest decode within it; save its KVs."""

from __future__ import annotations

from sim.interrupts.policy import CHECKPOINT, Choice, Policy, View


def choose(view: View) -> Choice | None:
    """Least urgent, then oldest."""
    return (max(view.candidates, key=view.priority), CHECKPOINT) if view.candidates else None


POLICY = Policy("heuristic", "least urgent class, then oldest decode", "checkpoint", choose)
