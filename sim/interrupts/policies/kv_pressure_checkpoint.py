"""Interrupt the oldest decode only while more than 75 % of KV memory is allocated; save its KVs."""

from __future__ import annotations

from sim.interrupts.constants import KV_PRESSURE_THRESHOLD
from sim.interrupts.policy import CHECKPOINT, Choice, Policy, View


def choose(view: View) -> Choice | None:
    """The first candidate, under pressure."""
    if view.kv_used <= KV_PRESSURE_THRESHOLD or not view.candidates:
        return None
    return view.candidates[0], CHECKPOINT


POLICY = Policy("heuristic", "oldest decode, only above 75 % KV", "checkpoint", choose)
