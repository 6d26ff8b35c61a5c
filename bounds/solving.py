"""What ``solve`` and ``compare`` share: solver options, progress, Ctrl-C, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

from bounds.cli import EXIT_DONE, EXIT_INTERRUPTED, EXIT_NOT_REACHED
from bounds.cli_options import number
from csp.result import Result
from sim.clock import ms_from_ticks
from sim.errors import InputError
from sim.instance import Instance
from sim.registry import names, unknown
from sim.replay import Replay

Ticks = int | Fraction
_PLAIN_LINE_EVERY_S = 5.0


def add_solver(parser: argparse.ArgumentParser) -> None:
    """--solver, --formulation, --require-optimal, --until-gap."""
    parser.add_argument("--solver", default="portfolio", metavar="NAME",
                        help="portfolio (default), cpsat, highs, cbc, search or rounds")  # fmt: skip
    parser.add_argument("--formulation", default="flow", metavar="NAME", help="flow (default), bigm or starts")
    parser.add_argument("--require-optimal", action="store_true", help="exit 1 unless the optimum is proven")
    parser.add_argument("--until-gap", type=gap, metavar="G", help='exit 1 unless the gap is at most G, "3%%" or 0.03')


def gap(text: str) -> float:
    """A fraction from "3%" or "0.03"."""
    value = number(0)(text.removesuffix("%"))
    return float(value / 100 if text.endswith("%") else value)


def check_names(args: argparse.Namespace) -> None:
    """Refuse unknown solvers and formulations before any work is done."""
    for package, name in (("csp.solvers", args.solver), ("csp.formulations", args.formulation)):
        if name.replace("-", "_") not in names(package):
            raise InputError(unknown(name, names(package)), field=f"--{package.split('.')[1].removesuffix('s')}")


def exit_code(result: Result, args: argparse.Namespace, *, interrupted: bool = False) -> int:
    """0 unless what was asked for was not reached (1) or the user interrupted (130)."""
    if interrupted:
        return EXIT_INTERRUPTED
    if args.require_optimal and result.status != "OPTIMAL":
        print(f"servebound: not proven optimal (status {result.status})", file=sys.stderr)
        return EXIT_NOT_REACHED
    if args.until_gap is not None and (result.gap is None or result.gap > args.until_gap):
        print(f"servebound: gap {result.gap} is above {args.until_gap}", file=sys.stderr)
        return EXIT_NOT_REACHED
    return EXIT_DONE


def solve_with_progress(
    instance: Instance, args: argparse.Namespace, *, warm_start: Replay | None = None,
    stop: threading.Event | None = None, **options: Any,
) -> tuple[Result, bool]:  # fmt: skip
    """Solve with a live line of incumbent, bound and gap; Ctrl-C ends early with the best so far.

    Parameters
    ----------
    stop
        Set by Ctrl-C already, where more than solving is to be ended by it.

    Returns
    -------
    The result and whether the user interrupted.
    """
    from csp.objectives import load_objective
    from csp.solve import solve

    check_names(args)
    unit = load_objective(options.get("objective", "makespan").split(",")[0]).unit
    interrupt = stop_on_interrupt() if stop is None else contextlib.nullcontext(stop)
    with progress_line(quiet=args.quiet, unit=unit) as report, interrupt as stop:
        result = solve(
            instance, formulation=args.formulation, solver=args.solver, time_limit_s=args.time_limit,
            workers=args.workers, seed=args.seed, warm_start=warm_start, progress=report, stop=stop, **options,
        )  # fmt: skip
    return result, stop.is_set()


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a set event; a second one interrupts as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print("\nservebound: stopping; the best answer so far follows", file=sys.stderr)

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def progress_line(*, quiet: bool, unit: str = "ms") -> Iterator[Callable[[Ticks | None, Ticks | None], None]]:
    """Show incumbent, lower bound, gap and time: a live line on a terminal, plain lines otherwise."""
    if not quiet and _first_use():
        print("servebound: first use here: parts are compiled when they are needed, which takes a minute or so in all "
              "and may exceed a time limit", file=sys.stderr, flush=True)  # fmt: skip
    if quiet:
        yield lambda incumbent, lower: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as live:
            task = live.add_task("solving")
            yield lambda incumbent, lower: live.update(task, description=progress_text(incumbent, lower, unit))
    else:
        lines = _PlainLines(unit)
        try:
            yield lines.note
        finally:
            lines.close()


def _first_use() -> bool:
    """Whether nothing has been compiled yet, where that can be seen: in the folder numba keeps by the sources."""
    import csp.search

    folder = Path(csp.search.__path__[0])
    seen = os.access(folder, os.W_OK) and "NUMBA_CACHE_DIR" not in os.environ
    return seen and not any((folder / "__pycache__").glob("*.nbi"))


class _PlainLines:
    """The first news at once, then a line every few seconds, for logs."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.began = time.monotonic()
        self.known: tuple[Ticks | None, Ticks | None] | None = None
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._tick, daemon=True)
        self.thread.start()

    def note(self, incumbent: Ticks | None, lower: Ticks | None) -> None:
        first = self.known is None
        self.known = incumbent, lower
        if first:
            self._print()

    def _tick(self) -> None:
        while not self.done.wait(_PLAIN_LINE_EVERY_S):
            self._print()

    def _print(self) -> None:
        if self.known is not None:
            elapsed = time.monotonic() - self.began
            print(f"{elapsed:6.1f} s  {progress_text(*self.known, self.unit)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self.done.set()
        self.thread.join()


def progress_text(incumbent: Ticks | None, lower: Ticks | None, unit: str = "ms") -> str:
    """One line of progress.

    >>> progress_text(6_018_119_614_656, 5_416_307_653_190)
    'incumbent 60.181 ms, bound 54.163 ms, gap 10.0%'
    """
    parts = [f"incumbent {_shown(incumbent, unit)}", f"bound {_shown(lower, unit)}"]
    if incumbent and lower is not None:
        parts.append(f"gap {float(Fraction(incumbent - lower) / incumbent):.1%}")
    return ", ".join(parts)


def _shown(value: Ticks | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{ms_from_ticks(value):,.3f} ms" if unit == "ms" else f"{float(value):,.4f} {unit}"
