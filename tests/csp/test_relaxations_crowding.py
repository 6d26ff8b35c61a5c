"""Crowding, piece by piece: the least worth of entries, what groups of tokens and halves of fills stand for."""

from __future__ import annotations

import numpy as np
import pytest

from csp.relaxations import crowding
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.load import load_of
from csp.relaxations.machine import least_worth
from csp.relaxations.patterns import charges
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request

LINEAR = load_cost_model("linear/llama2-7b-a100")


def test_the_least_worth_is_at_a_knot_or_at_the_arrival() -> None:
    """Every time from the arrival on, prices in between and after the last knot included."""
    random = np.random.default_rng(0)
    for _ in range(40):
        at = np.sort(random.choice(1_000, int(random.integers(2, 60)), replace=False)).astype(float)
        values = random.random((len(at), 4)) * 10
        rows = random.random((2, 3, 5)) * 10
        kind, arrival, count = (
            random.integers(0, 2, 5),
            random.random(5) * 1_100,
            random.integers(1, 4, 5).astype(float),
        )
        total = 0.0
        for k, when, n in zip(kind, arrival, count, strict=True):
            times = np.union1d(at[at > when], when)
            prices = np.stack([np.interp(times, at, values[:, c]) for c in range(4)], axis=1)
            if not at[0] <= when <= at[-1]:
                prices[times == when] = 0.0, 1.0, 0.0, 0.0
            total += n * sum(share * (times + prices @ terms).min() for share, *terms in rows[k])
        assert least_worth()(at, values, kind, arrival, count, rows) == pytest.approx(total, rel=1e-12)


def test_groups_and_halves_count_no_more_than_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Instance((Request(100, 90), Request(3, 40), Request(700, 1)), 2_000, 512)
    load = load_of(instance)
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    monkeypatch.setattr(crowding, "GROUPS", 1_000)
    single = crowding.entries(load, charge, "memory")
    monkeypatch.setattr(crowding, "GROUPS", 3)
    grouped = crowding.entries(load, charge, "memory")
    for kind, (_, o, _) in enumerate(load.lengths):
        tokens, groups = (rows[kind][rows[kind, :, 0] > 0] for rows in (single.rows, grouped.rows))
        assert len(tokens) == o + 1 and len(groups) <= 5
        assert groups[:, 0].sum() == pytest.approx(1) == tokens[:, 0].sum()
        assert np.all(groups[:, 0] @ groups[:, 1:] <= tokens[:, 0] @ tokens[:, 1:] * (1 + 1e-12))
        work, own = tokens[0, 1] * 2 * tokens[0, 0], tokens[:2, 2] @ tokens[:2, 0]
        assert own == pytest.approx(work * tokens[0, 0])  # A w of a fill at its middle, half its share
