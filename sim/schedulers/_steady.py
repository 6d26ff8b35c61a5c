"""How long a scheduler that decodes everybody it runs keeps doing so: for `unchanged_batches` of `sim.engine`."""

from __future__ import annotations

from sim.admission import Admission
from sim.admission.asis import AsIs
from sim.admission.hist import Histogram
from sim.admission.lookahead import LookAhead
from sim.admission.pf import PreemptionFree
from sim.admission.watermark import Watermark
from sim.instance import MAX_TOKENS, Instance
from sim.preemption import (
    VictimRule,
    fewest_lost_per_freed,
    least_computed,
    longest,
    lowest_priority,
    most_remaining,
    nrf,
    oldest,
    srf,
)
from sim.replay import State
from sim.schedulers._memory import Memory

_KEEPS = {m.order for m in (nrf, srf, longest, oldest, lowest_priority, most_remaining, least_computed)}


def keeps_order(order: VictimRule, instance: Instance) -> bool:
    """Whether a victim rule's order stays the same while everybody decodes."""
    return order in _KEEPS or (order is fewest_lost_per_freed.order and instance.block_size == 1)


def stays_blocked(admission: Admission, waiting: bool) -> bool:
    """Whether admission, refused once, is refused until somebody arrives or completes: memory only gets scarcer.

    The look-ahead's forecast moves with the running requests, so it must not have anybody to decide on; the
    reservation ratio changes with every batch.
    """
    rule = type(admission)
    return rule in (AsIs, PreemptionFree, Watermark, Histogram) or (rule is LookAhead and not waiting)


def decode_steps_in_memory(memory: Memory, running: int, *, spare_blocks: int = 0, reserved: bool = False) -> int:
    """Decode steps for which memory is certainly enough.

    Parameters
    ----------
    running
        How many requests decode.
    spare_blocks
        Blocks that must stay free.
    reserved
        Whether all blocks are allocated already.
    """
    if reserved:
        return MAX_TOKENS
    return max(0, memory.free_blocks - spare_blocks) // max(1, running) * memory.instance.block_size


def hold_decoded(memory: Memory, running: list[int], state: State) -> None:
    """Allocate what the repeated decode steps have filled."""
    for i in running:
        memory.hold(i, state.kv[i])
