"""Run a solver's blocking call beside a watch on the deadline and on Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from csp.solvers import Control

Result = TypeVar("Result")
_POLL_S = 0.05


def run_watched(work: Callable[[], Result], halt: Callable[[], None], control: Control) -> Result:
    """Call ``work`` in a thread; call ``halt`` once when the control says stop (the deadline is the solver's own).

    Raises
    ------
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
    halted = False
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
            if control.stop.is_set() and not halted:
                halted = True
                halt()
    except BaseException:
        halt()
        thread.join(5)
        raise
    if errors:
        raise errors[0]
    return results[0]
