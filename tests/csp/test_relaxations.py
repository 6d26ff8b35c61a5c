"""Combinatorial bounds: hand-computed values, and lower <= every schedule that a random scheduler makes."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from csp.relaxations import combinatorial_bounds, least_batches
from csp.relaxations.aggregate import Multipliers, Relaxation, _negative
from csp.relaxations.batches import item_counts, least_prefill_batches
from csp.relaxations.load import Load, load_of
from csp.relaxations.packing import least_bins
from sim.cost.model import CostModel, OperatorGroup, load_cost_model
from sim.engine import simulate
from sim.errors import InputError
from sim.instance import Instance, Request, load_instance

LINEAR = load_cost_model("linear/llama2-7b-a100")


def random_lengths(rng: np.random.Generator) -> tuple[tuple[int, int, int], ...]:
    return tuple(tuple(int(x) for x in rng.integers(1, [20, 20, 4])) for _ in range(3))


def max_affine() -> CostModel:
    """Two pieces a group, so that small batches are dear: the flags of the second are lower."""
    groups = []
    for group in LINEAR.groups:
        (piece,) = group.pieces
        flags, rest = piece[:3], piece[3:]
        groups.append(OperatorGroup(group.name, ((*(2 * f for f in flags), *(r // 3 for r in rest)), piece)))
    return CostModel("test", "max-affine", 32, tuple(groups))


def test_hand_computed_counts() -> None:
    """Four requests (32, 4), M = 64: area 536 / 64; of 16 items twelve exceed M / 2, four fit in two bins."""
    least = least_batches(load_instance("paper-7.2-i0032"))
    assert (least.critical_path, least.tokens, least.memory_area, least.packing) == (4, 1, 9, 14)
    assert least.best == 14


def test_time_by_hand() -> None:
    """One request (2, 2): a fill of two tokens and a decode step that reads two."""
    instance = Instance((Request(2, 2),), 3, 4)
    ms = combinatorial_bounds(instance, LINEAR)[-1].value_ms
    fill = 0.0926 + 0.001534 + 4 * 1.6773e-7 + 0.06486 + 2 * 0.00191
    decode = 0.01921 + 0.00074 + 2 * 8.513e-6 + 0.06486 + 0.00191
    assert ms == pytest.approx(32 * (fill + decode), rel=1e-12)


def test_cap_and_blocks_count() -> None:
    requests = (Request(10, 3),) * 4
    assert least_batches(Instance(requests, 48, 100)).memory_area == 3
    blocks = least_batches(Instance(requests, 48, 100, block_size=16))
    assert blocks.memory_area == 4
    assert least_batches(Instance(requests, 48, 100, max_num_seqs=1)).sequences == 12
    assert least_batches(Instance(requests, 48, 4)).critical_path == 5


def test_counts_of_items_against_enumeration() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        b = int(rng.integers(1, 6))
        load = Load(random_lengths(rng), 100, b, 1000, None)
        items = Counter(-(-(i + k - 1) // b) for i, o, n in load.lengths for k in range(1, o + 1) for _ in range(n))
        assert item_counts(load) == dict(items)
        assert load.area_blocks() == sum(s * n for s, n in items.items())


def test_bins_against_first_fit_and_hand_values() -> None:
    assert least_bins({6: 2, 5: 2, 4: 2}, 10)[0] == 3
    assert least_bins({34: 3}, 100)[0] == 2
    assert least_bins({26: 8, 49: 1}, 100)[0] == 3
    rng = np.random.default_rng(2)
    for _ in range(300):
        capacity = int(rng.integers(5, 40))
        sizes = [int(s) for s in rng.integers(1, capacity + 1, size=12)]
        bins: list[int] = []
        for s in sorted(sizes, reverse=True):
            room = next((j for j, used in enumerate(bins) if used + s <= capacity), None)
            if room is None:
                bins.append(s)
            else:
                bins[room] += s
        assert least_bins(Counter(sizes), capacity)[0] <= len(bins)


def test_negative_range_of_a_quadratic() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        a, b, c = (Fraction(int(rng.integers(low, high)), int(rng.integers(1, 4)))
                   for low, high in ((0, 6), (-60, 20), (-60, 60)))  # fmt: skip
        got = {s for low, high in _negative(a, b, c) for s in range(low, 300 if high is None else high + 1)}
        assert {s for s in got if s < 300} == {s for s in range(1, 300) if a * s * s + b * s + c < 0}


@pytest.mark.parametrize("cost", [LINEAR, max_affine()], ids=["linear", "max-affine"])
@pytest.mark.parametrize("scheduler", ["vllm", "sarathi", "sarathi_pf"])
def test_below_schedulers_on_random_instances(cost: CostModel, scheduler: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        requests = tuple(Request(int(i), int(o)) for i, o in rng.integers(1, [12, 8], size=(4, 2)))
        peak = max(r.peak_kv_tokens for r in requests)
        instance = Instance(requests, peak + int(rng.integers(0, 12)), 12 + int(rng.integers(0, 20)),
                            max_num_seqs=int(rng.integers(1, 5)) if rng.random() < 0.4 else None,
                            block_size=1)  # fmt: skip
        run = simulate(instance, scheduler, cost=cost)
        if run.stalled:
            continue
        bounds = combinatorial_bounds(instance, cost)
        assert bounds[-1].value_ticks <= run.replay.makespan_ticks
        assert bounds[-1].name == "aggregate"
        assert least_batches(instance).best <= sum(bool(r.entries) for r in run.replay.records)


def test_multipliers_are_checked() -> None:
    load = load_of(load_instance("paper-7.2-i0032"))
    relaxation = Relaxation(load, LINEAR, 14, least_prefill_batches(load))
    weights = relaxation.default_multipliers().weights
    with pytest.raises(ValueError, match="convex"):
        relaxation.value(Multipliers(((Fraction(2),), *weights[1:])))
    with pytest.raises(ValueError, match=">= 0"):
        relaxation.value(Multipliers(weights, {"tokens": Fraction(-1)}))
    with pytest.raises(ValueError, match="too high"):
        relaxation.value(Multipliers(weights, {"tokens": Fraction(10**12)}))
    repaired = relaxation.repaired(Multipliers(weights, {"tokens": Fraction(10**12)}))
    assert relaxation.value(repaired) > 0


def test_infeasible_request_is_named() -> None:
    with pytest.raises(InputError, match="kv_capacity"):
        combinatorial_bounds(Instance((Request(5, 5),), 8, 8), LINEAR)


def test_area_values_of_the_reference() -> None:
    """Independently computed area bounds (project's design notes): 17,515 ms and 9,423 ms."""
    for name, ms in (("uniform-1024x1-32-m100", 17515), ("uniform-1024x32-32-m1000", 9425.554)):
        instance = load_instance(name)
        area = next(b for b in combinatorial_bounds(instance, LINEAR) if b.name == "memory_area")
        assert area.value_ms == pytest.approx(ms, abs=0.5)
