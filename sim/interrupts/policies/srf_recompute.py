"""Interrupt whoever holds the fewest KVs (SRF, Kim et al., section 7.4); drop them."""

from __future__ import annotations

from sim.interrupts.policy import RECOMPUTE, Choice, Policy, View


def choose(view: View) -> Choice | None:
    """Fewest KVs."""
    return (min(view.candidates, key=lambda i: view.state.kv[i]), RECOMPUTE) if view.candidates else None


POLICY = Policy("heuristic", "fewest KVs", "recompute", choose)
