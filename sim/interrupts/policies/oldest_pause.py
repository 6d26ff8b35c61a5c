"""Interrupt the oldest decode; leave its KVs in memory if only a slot is lacking, save them otherwise."""

from __future__ import annotations

from sim.interrupts.policy import CHECKPOINT, PAUSE, Choice, Policy, View


def choose(view: View) -> Choice | None:
    """The first candidate, paused where memory allows."""
    if not view.candidates:
        return None
    return view.candidates[0], CHECKPOINT if view.needs_memory else PAUSE


POLICY = Policy("heuristic", "oldest decode", "pause, or checkpoint where memory lacks", choose)
