"""Interrupt the decode with the most tokens to come; save its KVs."""

from __future__ import annotations

from sim.interrupts.policy import CHECKPOINT, Choice, Policy, View


def choose(view: View) -> Choice | None:
    """Most remaining tokens; knows output lengths."""
    return (max(view.candidates, key=view.remaining_tokens), CHECKPOINT) if view.candidates else None


POLICY = Policy("heuristic", "most remaining tokens", "checkpoint", choose)
