"""Orders of the waiting queue, one file each: who is admitted next.

A file defines ``rank(i, state)``: smaller ranks are admitted first, ties in order of arrival and preemption; or
``rank = None`` for a queue that is never reordered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from sim.registry import load
from sim.replay import State

Rank = Callable[[int, State], int]


def load_rank(name: str) -> Rank | None:
    """The rank of a queue order by its name; None keeps the order.

    Raises
    ------
    sim.errors.InputError
        If there is no such order.
    """
    return cast("Rank | None", load("sim.queues", name, what="queue order").rank)
