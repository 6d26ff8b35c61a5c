"""Preemption-free: reserves the peak I + O - 1 at admission (Kim et al., section 4.1; knows output lengths)."""

from __future__ import annotations

from sim.admission.asis import AsIs
from sim.replay import State


class PreemptionFree(AsIs):
    """Nothing is ever preempted, because everybody's peak is reserved."""

    def hold_tokens(self, i: int, state: State) -> int:
        """The peak."""
        return state.instance.requests[i].peak_kv_tokens


RULE = PreemptionFree
