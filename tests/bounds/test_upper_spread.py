"""Fills spread over batches: the cheapest way among all is found, and whole schedules gain what their windows do."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from bounds.upper._spread import Spread
from csp.search._spread import respread
from sim.cost.model import CostModel, Features, load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request
from sim.replay import Replay, replay

AFFINE = load_cost_model("max-affine/llama2-7b-a100")
ROOFLINE = load_cost_model("roofline/llama2-7b-a100")
COSTS = pytest.mark.parametrize("cost", [AFFINE, ROOFLINE], ids=lambda cost: cost.kind)


def start_of(seed: int, cost: CostModel, *, block: int = 1, seqs: int | None = None) -> Replay:
    lengths = np.random.default_rng(seed).integers([20, 3], [300, 40], size=(20, 2))
    requests = tuple(Request(int(i), int(o)) for i, o in lengths)
    scheduler = "vllm_pf" if seed % 2 else "sarathi_pf:token_budget=128"
    return simulate(Instance(requests, 900, 400, seqs, block), scheduler, cost=cost).replay


@COSTS
@pytest.mark.parametrize(("block", "seqs"), [(1, None), (16, 5)])
def test_better_and_accepted(cost: CostModel, block: int, seqs: int | None) -> None:
    for seed in range(2):
        start = start_of(seed, cost, block=block, seqs=seqs)
        best = start.makespan_ticks
        for number in range(3):
            windows = Spread(start, cost)
            windows.round(number, np.random.default_rng(number), lambda: False)
            start = replay(start.instance, windows.schedule(), cost=cost)
            assert start.makespan_ticks <= best
            best = start.makespan_ticks
        assert best < start_of(seed, cost, block=block, seqs=seqs).makespan_ticks


@COSTS
def test_the_cheapest_way_of_all(cost: CostModel) -> None:
    """Every request's whole fill is tried at every number of KVs; the gain is that of the replayed schedule."""
    start = start_of(3, cost)
    gains = 0
    for i in range(0, 20, 6):
        windows = Spread(start, cost)
        assert i in windows.free
        events = windows.events[i]
        stop, prompt = events.decodes[0][0], start.instance.requests[i].input_tokens
        low = max(0, min(events.fills[0][0], stop - 4))
        levels = sorted({0, prompt, *(prompt * n // 4 for n in range(1, 4))})
        way = np.zeros(stop - low, np.int64)
        for t, c in events.fills:
            way[t - low :] += c
        options = [ticks for w in combinations_with_replacement(levels, stop - low) if w[-1] == prompt
                   if (ticks := makespan(start, cost, i, low, w)) is not None] if stop - low <= 6 else []  # fmt: skip
        gain = respread(windows.batches, windows.rates, low, way, np.unique([*levels, *way.tolist()]))
        made = makespan(start, cost, i, low, tuple(way.tolist()))
        assert made is not None and start.makespan_ticks - made == pytest.approx(gain, abs=100)
        assert not options or made <= min(options) + 100
        gains += gain > 1 and len(options) > 0
    assert gains >= 1


def makespan(start: Replay, cost: CostModel, i: int, low: int, way: tuple[int, ...]) -> int | None:
    """Of the schedule in which a request is filled so; None if it breaks a rule."""
    windows = Spread(start, cost)
    chunks = np.diff(way, prepend=0).tolist()
    windows.events[i].fills = [(low + x, c) for x, c in enumerate(chunks) if c]
    try:
        return replay(start.instance, windows.schedule(), cost=cost).makespan_ticks
    except ValueError:
        return None


def test_pieces_are_those_of_the_cost() -> None:
    start = start_of(0, AFFINE)
    pieces = Spread(start, AFFINE).batches.pieces
    assert pieces.shape == (len(start.schedule), sum(len(group.pieces) for group in AFFINE.groups))
    assert AFFINE.batch_ticks(Features(*start.records[3].features)) == pytest.approx(
        sum(part.max() for part in np.split(pieces[3], np.cumsum([len(g.pieces) for g in AFFINE.groups])[:-1]))
    )
