"""Fewest lost per freed: whoever loses the fewest computed tokens per KV slot it frees is preempted first.

With blocks of one token every decoding request loses one per slot; the rule then prefers fills under way, whose blocks
are allocated whole but not yet computed. With larger blocks it prefers half-empty last blocks.
"""

from __future__ import annotations

from fractions import Fraction

from sim.replay import State


def order(running: list[int], state: State) -> list[int]:
    """Sort by computed KVs per allocated slot, descending; ties keep their order."""
    instance = state.instance

    def lost_per_slot(i: int) -> Fraction:
        allocated = instance.blocks(state.kv[i] if state.ready[i] else state.sequence_tokens(i))
        return Fraction(state.kv[i], allocated * instance.block_size)

    return sorted(running, key=lambda i: -lost_per_slot(i))
