"""Beam search: good schedules fast, from the same states and batches as the best-first search; no proofs.

States after the same number of batches compete. What remains is priced per block of memory that the remaining tokens
take (`prices`): one decoding batch per M blocks of decode steps, one prefilling batch per M blocks of fills, each times
a factor for the share of memory that good schedules leave unused. Different factors find different schedules.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csp.search.best_first import schedule_from_steps
from csp.search.space import (
    BLOCKS,
    CAPACITY,
    DECODE_FLAG,
    FLAG,
    PREFILL_FLAG,
    ROWS,
    Ints,
    Space,
)
from sim.schedule import Schedule

_BATCH_FACTORS = (1.0, 1.15, 1.3)
_FILL_FACTORS = (1.0, 1.3, 1.7)
_NOISE = 0.01
_NEVER = 2**62


def prices(space: Space, batch_factor: float, fill_factor: float) -> npt.NDArray[np.float64]:
    """Price in ticks of what remains of each request beyond its least work; ``[i, code]``.

    Parameters
    ----------
    batch_factor, fill_factor
        How many times the fixed charges of perfectly packed batches to expect.
    """
    tables = space.tables
    limits = tables.limits
    per_block = batch_factor * float(limits[FLAG] + limits[DECODE_FLAG]) / float(limits[CAPACITY])
    per_filled = fill_factor * float(limits[PREFILL_FLAG]) / float(limits[CAPACITY])
    price = per_block * tables.state[:, :, ROWS].astype(np.float64)
    # The next fill of an absent request; its blocks are also part of the area.
    price[:, 0::2] += per_filled * tables.step[:, 0::2, BLOCKS]
    return price


@dataclass(frozen=True, slots=True)
class Level:
    """States after some number of batches: how each was reached."""

    codes: npt.NDArray[Any]
    origin: Ints
    action: npt.NDArray[np.int8]


def beam_search(
    space: Space,
    price: npt.NDArray[np.float64],
    width: int,
    *,
    upper_ticks: int = _NEVER,
    noise: float = 0.0,
    rng: np.random.Generator | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[Schedule, int] | None:
    """Best schedule found below an upper bound, with its cost in ticks; None if there is none.

    Parameters
    ----------
    width
        States kept after each batch; four times as many nodes within one.
    noise
        Relative random disturbance of estimates, for another try.
    """
    from csp.search import _beam as kernel

    n, rng = len(space.order), rng or np.random.default_rng(0)
    kept, wide = (_nodes(kernel, size, n) for size in (5 * width, 15 * width))
    child = np.zeros((5 * width, n), np.uint16)
    reached, worth = np.zeros(5 * width, np.int64), np.zeros(5 * width)
    codes, cost = np.zeros((1, n), np.uint16), np.zeros(1, np.int64)
    levels: list[Level] = []
    best: tuple[int, int, int] | None = None
    while True:
        nodes = kernel.branch(space.tables, codes, cost, price, 4 * width, noise, rng, kept, wide)
        found = kernel.close_batches(space.tables, codes, cost, price, kept, nodes, upper_ticks, child, reached, worth)
        chosen = _select(child[:found], reached[:found], worth[:found], width)
        if not len(chosen) or stopped():
            break
        levels.append(Level(codes, kept.origin[chosen].copy(), kept.action[chosen].copy()))
        codes, cost = child[chosen].copy(), reached[chosen].copy()
        complete = np.flatnonzero((codes >> 1 == space.tables.outputs).all(1))
        if len(complete):
            winner = int(complete[cost[complete].argmin()])
            if cost[winner] < upper_ticks:
                upper_ticks = int(cost[winner])
                best = len(levels) - 1, winner, upper_ticks
    return None if best is None else (_schedule(space, levels, best[0], best[1]), best[2])


def _nodes(kernel: Any, size: int, n: int) -> Any:
    return kernel.Nodes(
        np.zeros(size, np.int64), np.zeros((size, n), np.int8), np.zeros((size, 8), np.int64), np.zeros(size),
        np.zeros(size),
    )  # fmt: skip


def _select(codes: npt.NDArray[Any], reached: Ints, worth: npt.NDArray[np.float64], width: int) -> Ints:
    """Indices of the ``width`` states of least worth, each state once, at its least cost."""
    order = np.lexsort((reached, worth))
    rows = np.ascontiguousarray(codes[order]).view(np.dtype((np.void, codes.dtype.itemsize * codes.shape[1])))
    _, first = np.unique(rows.ravel(), return_index=True)
    return order[np.sort(first)][:width]


def _schedule(space: Space, levels: list[Level], last: int, state: int) -> Schedule:
    steps = []
    for level in reversed(levels[: last + 1]):
        origin = int(level.origin[state])
        steps.append((level.codes[origin].tolist(), level.action[state].tolist()))
        state = origin
    return schedule_from_steps(space, list(reversed(steps)))


def schedules(
    space: Space, upper: Callable[[], int | None], *, seed: int = 0, stopped: Callable[[], bool] = lambda: False,
    narrowest: int = 16, widest: int = 2**12,
) -> Iterator[tuple[Schedule, int]]:  # fmt: skip
    """Ever better schedules: narrow beams under all prices, then ones twice as wide, and so on.

    Parameters
    ----------
    upper
        Cost of the best schedule known; only better ones are looked for.
    narrowest, widest
        Widths. The widest is repeated with noise for as long as that improves something.
    """
    rng = np.random.default_rng(seed)
    width, noise, improved = narrowest, 0.0, True
    while width < widest or improved:
        improved = False
        for batch_factor, fill_factor in itertools.product(_BATCH_FACTORS, _FILL_FACTORS):
            if stopped():
                return
            best = upper()
            found = beam_search(
                space, prices(space, batch_factor, fill_factor), width, noise=noise, rng=rng, stopped=stopped,
                upper_ticks=_NEVER if best is None else best,
            )  # fmt: skip
            if found is not None:
                improved = True
                yield found
        noise = _NOISE if width >= widest else 0.0
        width = min(2 * width, widest)
