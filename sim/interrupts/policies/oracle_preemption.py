"""Interrupt only if what the urgent request gains exceeds what everyone else loses; knows output lengths."""

from __future__ import annotations

from sim.interrupts.constants import CLASSES
from sim.interrupts.policy import CHECKPOINT, Choice, Policy, View


def choose(view: View) -> Choice | None:
    """The victim of largest net gain, if that is positive.

    In value-weighted time. Gain: the wait until the next request in a slot completes. Loss: the victim waits as long
    as the urgent request decodes, or until that completion if it is sooner, and everyone in a slot waits for the
    transfers.
    """
    if not view.candidates:
        return None
    step = view.decode_step_ticks()
    wait = step * min(view.remaining_tokens(i) for i in view.running)
    value = {i: CLASSES[view.priority(i)].value for i in (*view.running, view.urgent)}
    everyone = sum(value[i] for i in view.running)

    def net_gain(victim: int) -> float:
        others = [view.remaining_tokens(i) for i in view.running if i != victim]
        away = step * min([view.remaining_tokens(view.urgent), *others])
        transfers = view.expected_overhead_ticks(victim, CHECKPOINT)
        return value[view.urgent] * wait - value[victim] * away - everyone * transfers

    victim = max(view.candidates, key=net_gain)
    return (victim, CHECKPOINT) if net_gain(victim) > 0 else None


POLICY = Policy("oracle", "net gain > 0", "checkpoint", choose)
