"""The best schedule known, shared by threads that look for better ones and threads that prove."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sim.schedule import Schedule


class Incumbent:
    """Schedule and value; only improvements are taken.

    Parameters
    ----------
    value_ticks
        Cost of a schedule known before; None without one.
    report
        Called with each better value.
    """

    def __init__(self, value_ticks: int | None, report: Callable[[int], None] = lambda value: None) -> None:
        self.value_ticks = value_ticks
        self.schedule: Schedule | None = None
        """The best one found since; None if none was better."""
        self._report, self._lock = report, threading.Lock()

    def offer(self, schedule: Schedule, value_ticks: int) -> bool:
        """Take a schedule if it is better; whether it was."""
        with self._lock:
            if self.value_ticks is not None and value_ticks >= self.value_ticks:
                return False
            self.schedule, self.value_ticks = schedule, value_ticks
        self._report(value_ticks)
        return True
