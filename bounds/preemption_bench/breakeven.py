"""When a checkpoint is cheaper than recomputing: by KVs held, by how likely the victim resumes, and by cost model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel, Features, load_cost_model
from sim.interrupts import constants

if TYPE_CHECKING:
    import pandas as pd

KV_TOKENS = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4095)
PROMPT_TOKENS = 161
"""Mean prompt of the standard class: what the prompt-only formula charges, however long the victim has decoded."""
NEIGHBOURS = constants.MAX_NUM_SEQS - 1
NEIGHBOUR_KV_TOKENS = 512


def refill_ms(cost: CostModel, tokens: int) -> float:
    """What refilling a sequence of this many tokens adds to a decode step of the other slots, in ms.

    The refill replaces the request's own decode step; sequences beyond the token budget are cut into several batches.
    """
    reads = NEIGHBOURS * NEIGHBOUR_KV_TOKENS
    n = NEIGHBOURS
    plain = cost.batch_ticks(Features(1, 0, 1, 0, n, n, 0, 0, reads))
    own = cost.batch_ticks(Features(1, 0, 1, 0, n + 1, n + 1, 0, 0, reads + tokens - 1))
    extra, done = plain - own, 0
    while done < tokens:
        c = min(constants.TOKEN_BUDGET - n, tokens - done)
        batch = cost.batch_ticks(Features(1, 1, 1, 1, n, n + c, c * c + 2 * c * done, done, reads))
        extra, done = extra + batch - plain, done + c
    return extra / TICKS_PER_MS


def breakeven_probability(out_ms: float, in_ms: float, refill: float) -> float | None:
    """Resume probability p above which a checkpoint is cheaper: out + p in = p refill; None if it never is (p > 1)."""
    if refill <= in_ms:
        return None
    p = out_ms / (refill - in_ms)
    return p if p <= 1 else None


def breakeven_table(cost_models: Sequence[str]) -> pd.DataFrame:
    """breakeven_analysis.csv: one row per cost model and number of KVs held by the victim.

    ``prompt_only_ms`` is the original benchmark's recompute cost (prompt tokens x prefill ms per token), and
    ``prompt_only_winner`` the mechanism it prefers for victims that always resume.
    """
    import pandas as pd

    link = constants.swap_link()
    table: list[dict[str, Any]] = []
    for name in cost_models:
        cost = load_cost_model(name)
        slope = constants.prefill_ms_per_token(cost)
        for kv in KV_TOKENS:
            one_way = link.transfer_ticks(kv) / TICKS_PER_MS
            refill = refill_ms(cost, kv + 1)
            prompt_only = slope * min(PROMPT_TOKENS, kv)
            table.append({
                "cost_model": name, "kv_tokens": kv, "kv_mb": kv * constants.KV_BYTES_PER_TOKEN / 1e6,
                "checkpoint_round_trip_ms": 2 * one_way, "refill_ms": refill,
                "winner": "checkpoint" if 2 * one_way < refill else "recompute",
                "breakeven_resume_probability": breakeven_probability(one_way, one_way, refill),
                "breakeven_link_gb_per_s": 2 * kv * constants.KV_BYTES_PER_TOKEN / refill / 1e6,
                "prompt_only_ms": prompt_only,
                "prompt_only_winner": "checkpoint" if 2 * one_way < prompt_only else "recompute",
            })  # fmt: skip
    return pd.DataFrame(table)
