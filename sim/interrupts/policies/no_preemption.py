"""Never interrupt: the urgent request waits for a slot."""

from __future__ import annotations

from sim.interrupts.policy import Choice, Policy, View


def choose(view: View) -> Choice | None:
    """Nobody."""
    return None


POLICY = Policy("baseline", "none", "none", choose)
