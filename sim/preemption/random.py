"""Random: every running request is equally likely to be preempted first (parameter ``seed``, default 0)."""

from __future__ import annotations

import numpy as np

from sim.preemption import VictimRule
from sim.replay import State


def make(seed: int) -> VictimRule:
    """The rule with a generator of its own."""
    generator = np.random.default_rng(seed)

    def order(running: list[int], state: State) -> list[int]:
        return [running[p] for p in generator.permutation(len(running))]

    return order
