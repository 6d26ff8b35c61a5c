"""Most remaining first: whoever has the most tokens left to generate is preempted first (knows output lengths)."""

from __future__ import annotations

from sim.replay import State


def order(running: list[int], state: State) -> list[int]:
    """Sort by tokens left, ascending; ties keep their order."""
    return sorted(running, key=lambda i: state.outputs[i] - state.generated[i])
