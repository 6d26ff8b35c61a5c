"""Run a solver's blocking call beside a watch on the deadline and on Ctrl-C."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from csp.program import OutOfTime
from csp.solvers import Control

Result = TypeVar("Result")
_POLL_S = 0.05
_GRACE_S = 5.0
"""How long after the deadline or a stop a solver may go on; HiGHS can spend minutes in its root node unasked."""


def run_watched(work: Callable[[], Result], halt: Callable[[], None], control: Control) -> Result:
    """Call ``work`` in a thread; call ``halt`` once when the control says stop (the deadline is the solver's own).

    A solver that does not end soon after is left to end by itself, unheard.

    Raises
    ------
    OutOfTime
        If the work is left behind.
    BaseException
        What the work raised, or a KeyboardInterrupt, after the work has been halted.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    latest = halted = None
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
            if control.stopped and latest is None:
                latest = time.monotonic() + _GRACE_S
            late = latest is not None and time.monotonic() > latest
            if (control.stop.is_set() or late) and not halted:
                halted = True
                halt()
            if late and thread.is_alive():
                raise OutOfTime("the solver did not end when its time was over")
    except OutOfTime:
        raise
    except BaseException:
        halt()
        thread.join(5)
        raise
    if errors:
        raise errors[0]
    return results[0]
