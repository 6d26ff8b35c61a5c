"""The five-minute rule for KVs: after how long unused it is cheaper to drop them (paper, section 6).

Keeping m KVs occupies m of the M that fit; for an interval T that is the share m / M of T GPU-seconds. Dropping them
costs t_recompute(m). They break even at

    T_break(m) = t_recompute(m) x M / m

Reuse intervals are measured in a simulated or given schedule: from the start of a batch that processes a request to the
start of the next one that does, while its KVs stay resident. Recomputing is counted as in `bounds.swap`: as a batch of
its own, and as what it adds to a batch that prefills anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bounds.swap import recompute_ms
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel
from sim.replay import Replay


@dataclass(frozen=True, slots=True)
class Reuses:
    """Every reuse of resident KVs in a schedule.

    Parameters
    ----------
    kv_tokens
        KVs reused, shape (n,).
    interval_s
        Since the batch that used them last started, shape (n,).
    """

    kv_tokens: NDArray[np.int64]
    interval_s: NDArray[np.float64]


def reuses(replay: Replay) -> Reuses:
    """Reuse intervals of a schedule; a request that was preempted in between does not count."""
    last: dict[int, int] = {}
    kv_tokens, ticks = [], []
    for record in replay.records:
        for request, _ in record.preempted:
            last.pop(request, None)
        for entry in record.entries:
            before = last.get(entry.request)
            if before is not None and entry.kv_before > 0:
                kv_tokens.append(entry.kv_before)
                ticks.append(record.start_ticks - before)
            last[entry.request] = record.start_ticks
    return Reuses(np.array(kv_tokens, dtype=np.int64), np.array(ticks, dtype=float) / (TICKS_PER_NS * 1e9))


def break_even_s(cost: CostModel, kv_tokens: int, kv_capacity_tokens: int, *, joined: bool = False) -> float:
    """T_break(m) in seconds.

    Examples
    --------
    >>> from sim.cost import load_cost_model
    >>> round(break_even_s(load_cost_model("linear/llama2-7b-a100"), 4096, 100_000), 2)
    8.43
    """
    return recompute_ms(cost, kv_tokens, joined=joined) / 1e3 * kv_capacity_tokens / kv_tokens


@dataclass(frozen=True, slots=True)
class FiveMinute:
    """The rule applied to one schedule.

    Parameters
    ----------
    count
        Reuses.
    interval_s
        Their smallest, median, 99th percentile and largest interval; None without any.
    break_even_s
        T_break of the same KVs, smallest and largest, with recomputing as a batch of its own.
    longest_share, longest_share_joined
        Largest interval / T_break over all reuses: below 1, keeping was right every time.
    past, past_joined
        Reuses that came later than T_break.
    """

    scheduler: str
    cost: CostModel
    kv_capacity_tokens: int
    count: int
    interval_s: tuple[float, float, float, float] | None
    break_even_s: tuple[float, float] | None
    longest_share: float | None
    longest_share_joined: float | None
    past: int
    past_joined: int

    @property
    def verdict(self) -> str:
        """Whether keeping all KVs is right, in one sentence."""
        if self.count == 0:
            return "no KVs were reused"
        if self.past == 0:
            rest = "" if self.past_joined == 0 else (
                f" (where recomputing joins a batch that runs anyway, {self.past_joined / self.count:.2%} came later)"
            )  # fmt: skip
            return f"keep all: every reuse came before its break-even{rest}"
        return f"{self.past:,} of {self.count:,} reuses ({self.past / self.count:.2%}) came after their break-even"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        quantiles = None if self.interval_s is None else dict(
            zip(("min", "median", "p99", "max"), self.interval_s, strict=True))  # fmt: skip
        edges = None if self.break_even_s is None else dict(zip(("min", "max"), self.break_even_s, strict=True))
        return {
            "scheduler": self.scheduler, "cost_model": self.cost.name, "kv_capacity_tokens": self.kv_capacity_tokens,
            "reuses": self.count, "reuse_interval_s": quantiles, "break_even_s": edges,
            "longest_interval_over_break_even": self.longest_share,
            "longest_interval_over_break_even_joined": self.longest_share_joined,
            "reuses_past_break_even": self.past, "reuses_past_break_even_joined": self.past_joined,
            "keep_all": self.past == 0, "verdict": self.verdict,
        }  # fmt: skip


def five_minute(scheduler: str, cost: CostModel, kv_capacity_tokens: int, found: Reuses) -> FiveMinute:
    """Apply the rule to the reuses of a schedule."""
    if len(found.kv_tokens) == 0:
        return FiveMinute(scheduler, cost, kv_capacity_tokens, 0, None, None, None, None, 0, 0)
    sizes, owner = np.unique(found.kv_tokens, return_inverse=True)
    shares = []
    alone = np.zeros(0)
    for joined in (False, True):
        limits = np.array([break_even_s(cost, int(m), kv_capacity_tokens, joined=joined) for m in sizes])
        shares.append(found.interval_s / np.maximum(limits[owner], 1e-300))
        alone = limits if not joined else alone
    quantiles = tuple(float(x) for x in np.quantile(found.interval_s, (0, 0.5, 0.99, 1)))
    return FiveMinute(
        scheduler, cost, kv_capacity_tokens, len(found.kv_tokens), (quantiles[0], quantiles[1], quantiles[2],
        quantiles[3]), (float(alone.min()), float(alone.max())), float(shares[0].max()), float(shares[1].max()),
        int((shares[0] > 1).sum()), int((shares[1] > 1).sum()),
    )  # fmt: skip
