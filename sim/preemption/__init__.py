"""Victim rules, one file each: whom to preempt when KV memory runs out.

A file defines ``order(running, state) -> list``: the running requests, reordered stably so that the last one is
preempted first; or ``make(seed)``, which returns such a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from sim.registry import load
from sim.replay import State

VictimRule = Callable[[list[int], State], list[int]]


def load_victim_rule(name: str, seed: int = 0) -> VictimRule:
    """The order of a victim rule by its name.

    Raises
    ------
    sim.errors.InputError
        If there is no such rule.
    """
    module = load("sim.preemption", name, what="victim rule")
    return cast(VictimRule, module.make(seed) if hasattr(module, "make") else module.order)
