"""One request on its own: the states it can be in and what it can do in one batch.

A request's state is (k tokens generated, m KVs resident, ready or not) and, where swapping is allowed, (m, ready) of
what lies in host memory. *Ready* means that it generated a token since it was last filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class Swap:
    """Transfer of one request's KVs takes ``latency_ticks + ticks_per_kv_token * KVs``, before or beside the batch."""

    latency_ticks: int
    ticks_per_kv_token: int
    overlap: bool = False


@dataclass(frozen=True)
class Limits:
    """Which variants of the rules are searched; the defaults are the paper's.

    ``chunking=False`` leaves out partial fills. Holding is ``free``; ``forced`` lets a ready request hold only where
    its decode step would not fit; ``never`` makes every resident request process or leave. ``allow_empty`` adds batches
    that only preempt or swap, as real engines make; they take no time of their own.
    """

    preemption: bool = True
    chunking: bool = True
    hybrid: bool = True
    holding: Literal["free", "forced", "never"] = "free"
    swap: Swap | None = None
    batch_limit_ticks: int | None = None
    allow_empty: bool = False


class Slot(NamedTuple):
    """Where one request stands between two batches."""

    generated: int
    kv: int
    ready: bool
    host_kv: int
    host_ready: bool


class Action(NamedTuple):
    """What one request does in one batch."""

    after: Slot | None
    """None once it is complete."""
    tokens: int
    kv_after: int
    """KVs at the end of the batch; a completed request's are still there."""
    prefill: int
    decode: int
    square: int
    prefill_reads: int
    decode_reads: int
    transfer: int
    what: str
    """A sequence of "hold", "process", "preempt", "swap-out", "swap-in", joined by +."""


FRESH = Slot(0, 0, False, 0, False)


@cache
def actions(inputs: int, outputs: int, slot: Slot, limits: Limits, most_tokens: int) -> tuple[Action, ...]:
    """Everything a request of I, O can do in one batch of at most ``most_tokens`` tokens."""
    k, m, ready, host, host_ready = slot
    found: list[Action] = []
    if limits.holding != "never" or m == 0:
        found.append(Action(slot, 0, m, 0, 0, 0, 0, 0, 0, "hold"))
    if limits.preemption and (m or host):
        found.append(Action(Slot(k, 0, False, 0, False), 0, 0, 0, 0, 0, 0, 0, 0, "preempt"))
    if host == 0:
        found += _process(inputs, outputs, k, m, ready, limits, most_tokens, 0, "")
    if limits.swap is not None:
        link = limits.swap
        if m:
            moved = link.latency_ticks + link.ticks_per_kv_token * m
            found.append(Action(Slot(k, 0, False, m, ready), 0, 0, 0, 0, 0, 0, 0, moved, "swap-out"))
        if host:
            moved = link.latency_ticks + link.ticks_per_kv_token * host
            back = Slot(k, host, host_ready, 0, False)
            found.append(Action(back, 0, host, 0, 0, 0, 0, 0, moved, "swap-in+hold"))
            found += _process(inputs, outputs, k, host, host_ready, limits, most_tokens, moved, "swap-in+")
    return tuple(found)


def _process(
    inputs: int, outputs: int, k: int, m: int, ready: bool, limits: Limits, most_tokens: int, moved: int, before: str
) -> list[Action]:
    rest = inputs + k - m
    found = []
    for c in range(1 if limits.chunking else rest, min(rest, most_tokens) + 1):
        after: Slot | None = Slot(k, m + c, False, 0, False)
        if c == rest:
            after = None if k + 1 == outputs else Slot(k + 1, m + c, True, 0, False)
        kinds = (0, 1, 0, 0, m) if ready else (1, 0, c * c + 2 * c * m, m, 0)
        found.append(Action(after, c, m + c, *kinds, moved, before + "process"))
    return found
