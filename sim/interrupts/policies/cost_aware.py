"""Interrupt where it costs least, by the cheaper of checkpoint and recompute for each victim."""

from __future__ import annotations

from sim.interrupts.policy import CHECKPOINT, RECOMPUTE, Choice, Policy, View


def choose(view: View) -> Choice | None:
    """Victim and mechanism of least expected overhead, given how likely victims come back."""
    choices: list[Choice] = [(i, mechanism) for i in view.candidates for mechanism in (CHECKPOINT, RECOMPUTE)]
    return min(choices, key=lambda choice: view.expected_overhead_ticks(*choice), default=None)


POLICY = Policy("heuristic", "least expected overhead", "checkpoint or recompute, by cost", choose)
