"""Recompute or swap: where refilling by recomputation becomes quicker (section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from bounds.claims import DIRECTION, NO_SCHEDULE, NOT_REPRODUCED, REPRODUCED, Cell, Effort, Row, Verdict, across
from bounds.swap import Swap, break_even_bandwidth, compare, setup_of
from sim.cost import load_cost_model
from sim.cost.hardware import LINKS

SECTION = "5.3"
PUBLISHED = "linear/llama2-7b-a100"
BLOCK_TOKENS = 16


def cells(effort: Effort) -> Sequence[Cell]:
    """Cost models of Llama-2-7B on an A100, links, one copy or one per block."""
    models = (PUBLISHED, "max-affine/llama2-7b-a100", "roofline/llama2-7b-a100")
    return [{"cost_model": c, "link": link, "block_tokens": b}
            for c in models for link in LINKS for b in (None, BLOCK_TOKENS)]  # fmt: skip


def measure(cost_model: str, link: str, block_tokens: int | None) -> list[Row]:
    """From which number of KVs on recomputing (a batch of its own) is quicker; None if it never is."""
    cost = load_cost_model(cost_model)
    setup = setup_of(cost)
    found = compare(cost, Swap(setup, LINKS[link], block_tokens=block_tokens))
    end = found.faster_alone[-1][1] if found.faster_alone else 1.0
    return [{"cost_model": cost_model, "link": link, "block_tokens": block_tokens, "crossover": end,
             "bandwidth_100": break_even_bandwidth(cost, setup, 100) / 1e9,
             "bandwidth_1000": break_even_bandwidth(cost, setup, 1000) / 1e9}]  # fmt: skip


def _copies(row: Row) -> str:
    tokens = row["block_tokens"]
    return "one copy" if tokens is None else f"a copy per block of {tokens} tokens"


def _says(row: Row) -> str:
    end = row["crossover"]
    return "swapping stays quicker" if end is None else f"recomputing is quicker from {end:.0f} KVs"


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """The A100's own link, PCIe 4.0, decides."""
    return across(rows, _judge_one)


def _judge_one(rows: list[Row]) -> list[Verdict]:
    own = [r for r in rows if r["link"] == "pcie4"]
    below = [r for r in own if r["crossover"] is not None and r["crossover"] < 100]
    turns = [r for r in own if r["crossover"] is not None]
    verdict = REPRODUCED if len(below) == len(own) else DIRECTION if turns else NOT_REPRODUCED
    said: dict[str, list[str]] = {}
    for r in rows:
        if r["link"] in ("pcie3", "pcie4"):
            said.setdefault(_says(r), []).append(f"{r['link']} in {_copies(r)}")
    words = "; ".join(f"{outcome} over {', '.join(links)}" for outcome, links in said.items())
    return [
        Verdict(
            "Recomputing beats swapping in from fewer than 100 KVs on", SECTION, "crossover below 100 KVs", words, verdict,
            f"By the published costs recomputing 100 KVs is as fast as a link of {own[0]['bandwidth_100']:.1f} GB/s and 1,000 KVs "
            f"as one of {own[0]['bandwidth_1000']:.1f} GB/s; PCIe 4.0 x16 moves 31.5 GB/s, PCIe 3.0 x16 15.75 GB/s. Recomputing "
            "wins only over slower links, so the claim does not follow from these costs.",
            "By these costs the host link brings KVs back faster than the GPU can compute them again. If recomputing wins in "
            "practice, it is for what this comparison leaves out: copying KVs out first, a link shared with others, and "
            "scattered memory.", NO_SCHEDULE,
        )
    ]  # fmt: skip
