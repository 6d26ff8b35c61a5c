"""SRF, shortest request first: whoever holds the fewest KVs is preempted first (Kim et al., section 7.4)."""

from __future__ import annotations

from sim.replay import State


def order(running: list[int], state: State) -> list[int]:
    """Sort by processed tokens, descending; ties keep their order.

    As in the authors' simulator a token counts as processed from when it is generated, one before its KV is stored.
    """
    return sorted(running, key=lambda i: -state.kv[i] - state.ready[i])
