"""Every lower bound against the optima of random small instances, found by the independent search.

tests/data/small_optima.jsonl.gz holds the instances (see tests/benchmarks/make_small_optima.py): all cost forms, three
objectives, with arrivals, blocks, few slots and small token budgets, with and without batches that process nothing.
Bounds with a wrong constant must be caught on the same instances, or the test would prove nothing.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from bounds.lower import QUICK, bound_names, iter_bounds
from csp.relaxations import crowding
from csp.relaxations.certificate import recheck
from csp.relaxations.combinatorial import count
from csp.relaxations.load import load_of
from csp.relaxations.machine import Floats
from csp.relaxations.volumes import _fractional, _whole, charges, volumes
from sim.cost.model import CostModel, Features
from sim.instance import Instance, instance_from_dict
from tests.benchmarks.make_small_optima import cost_of

DATA = Path(__file__).parents[1] / "data" / "small_optima.jsonl.gz"
SLOW = {"levels": 16, "circulation": 60, "histories": 12}
"""Checked on a sample: every so many cases."""
OBJECTIVES = ("makespan", "mean_completion", "mean_ttft")


@dataclass(frozen=True)
class Case:
    instance: Instance
    cost: CostModel
    optimum: dict[str, Fraction]


@cache
def cases() -> list[Case]:
    with gzip.open(DATA, "rt") as stream:
        records = [json.loads(line) for line in stream]
    return [
        Case(instance_from_dict(r["instance"]), cost_of(r["cost"]),
             {name: Fraction(value) for name, value in r["optimum_ticks"].items()})
        for r in records
    ]  # fmt: skip


def test_there_are_enough_cases_of_every_kind() -> None:
    assert len(cases()) >= 2000
    assert sum(not c.cost.additive for c in cases()) > 500
    assert sum(not c.instance.offline for c in cases()) > 200
    assert sum(c.instance.block_size > 1 for c in cases()) > 300
    assert sum(c.instance.token_budget < 4096 for c in cases()) > 300
    assert sum(c.instance.max_num_seqs is not None for c in cases()) > 200


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_bound_exceeds_an_optimum(objective: str) -> None:
    """Exact comparison; every name is checked on every case it applies to."""
    names = [name for name in bound_names(objective) if name not in SLOW]
    applied: dict[str, int] = {}
    closed = 0
    for case in cases():
        best = Fraction(0)
        for bound in iter_bounds(case.instance, case.cost, objective=objective, only=names):
            assert bound.value_ticks <= case.optimum[objective], (bound.name, case)
            applied[bound.name] = applied.get(bound.name, 0) + 1
            best = max(best, Fraction(bound.value_ticks))
        closed += best == case.optimum[objective]
    assert set(applied) == set(names)
    assert min(applied.values()) > 200
    assert objective != "makespan" or closed > 200


@pytest.mark.parametrize("name", SLOW)
def test_program_bounds_and_certificates(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample: below the optimum, equal to what the recheck proves, and often the optimum itself."""
    monkeypatch.setattr("bounds.lower.circulation.MOST_ARCS", 20_000)
    applied = closed = 0
    sample = cases()[:: SLOW[name]]
    for case in sample:
        for found in iter_bounds(case.instance, case.cost, only=[name], time_limit_s=5):
            assert found.value_ticks <= case.optimum["makespan"], case
            assert recheck(name, found.inputs, case.instance, case.cost) == found.value_ticks
            applied += 1
            closed += found.value_ticks == case.optimum["makespan"]
    assert applied > 2 / 3 * len(sample)
    assert closed > len(sample) / (60 if name == "histories" else 16)


def test_combinatorial_bounds_are_recomputed_from_their_inputs() -> None:
    for case in cases()[::20]:
        for bound in iter_bounds(case.instance, case.cost, only=[n for n in QUICK if n != "sequences"]):
            inputs = json.loads(json.dumps(bound.inputs))
            assert recheck(bound.name, inputs, case.instance, case.cost) == bound.value_ticks


# Wrong bounds. Each takes a case and returns ticks; all but the first and the last are for makespan.


def _entries(case: Case, *, refills: bool = True) -> Fraction:
    a = {f: case.cost.coefficient(f) for f in Features._fields}
    total = Fraction(0)
    for r in case.instance.requests:
        for k in range(r.output_tokens):
            s = r.input_tokens + k
            fill = a["prefill_square"] * s * s + a["n_prefill"] + a["tokens"] * s
            decode = a["decode_reads"] * (s - 1) + a["n_decode"] + a["tokens"]
            total += fill if k == 0 else min(fill, decode) if refills else decode
    return total


def _fixed(case: Case, batches: int, prefill_batches: int) -> int:
    a = {f: case.cost.coefficient(f) for f in ("batch", "prefill_batch", "decode_batch")}
    rest = min(a["prefill_batch"], a["decode_batch"]) * max(0, batches - prefill_batches)
    return a["batch"] * batches + a["prefill_batch"] * prefill_batches + rest


def all_three_charges(case: Case) -> Fraction:
    least = count(case.instance).least.best
    charges = sum(case.cost.coefficient(f) for f in ("batch", "prefill_batch", "decode_batch"))
    return charges * least + _entries(case)


def sizes_one_too_large(case: Case) -> Fraction:
    area = sum(r.input_tokens + k for r in case.instance.requests for k in range(1, r.output_tokens + 1))
    counted = count(case.instance)
    batches = -(-area // case.instance.kv_capacity_tokens)
    return _fixed(case, max(batches, counted.least.best), counted.least_prefill) + _entries(case)


def one_batch_too_many(case: Case) -> Fraction:
    counted = count(case.instance)
    batches = max(-(-r.input_tokens // case.instance.token_budget) + r.output_tokens for r in case.instance.requests)
    return _fixed(case, max(batches, counted.least.best), counted.least_prefill) + _entries(case)


def never_refills(case: Case) -> Fraction:
    counted = count(case.instance)
    return _fixed(case, counted.least.best, counted.least_prefill) + _entries(case, refills=False)


def a_prefill_batch_each(case: Case) -> Fraction:
    counted = count(case.instance)
    return _fixed(case, counted.least.best, len(case.instance.requests)) + _entries(case)


def last_token_processed_too(case: Case) -> Fraction:
    tokens = sum(r.input_tokens + r.output_tokens for r in case.instance.requests)
    counted = count(case.instance)
    batches = -(-tokens // case.instance.token_budget)
    extra = case.cost.coefficient("tokens") * len(case.instance.requests)
    return _fixed(case, max(batches, counted.least.best), counted.least_prefill) + _entries(case) + extra


def average_batch(case: Case) -> Fraction:
    """ "Jensen at the mean" with every batch prefilling and decoding."""
    load = load_of(case.instance)
    least = count(case.instance).least.best
    steps, sizes, _ = load.decode_sums()
    total = Features(least, least, least, load.requests, steps, load.least_tokens, load.input_square, 0, sizes - steps)
    return sum((max(sum((Fraction(x) * a for a, x in zip(p, total, strict=True)), Fraction(0)) for p in g.pieces)
                for g in case.cost.groups), Fraction(0))  # fmt: skip


WRONG: list[tuple[Callable[[Case], Fraction], bool]] = [
    (all_three_charges, True), (sizes_one_too_large, True), (one_batch_too_many, True), (never_refills, True),
    (a_prefill_batch_each, True), (last_token_processed_too, True), (average_batch, False),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "additive"), WRONG, ids=lambda x: getattr(x, "__name__", ""))
def test_wrong_makespan_bounds_are_caught(wrong: Callable[[Case], Fraction], additive: bool) -> None:
    fitting = [c for c in cases() if c.cost.additive or not additive]
    assert any(wrong(c) > c.optimum["makespan"] for c in fitting)


@pytest.mark.parametrize("wrong", ["rest counted twice", "volumes doubled", "arrivals forgotten"])
def test_wrong_mean_bounds_are_caught(wrong: str) -> None:
    import numpy as np

    caught = 0
    for case in cases():
        if not case.cost.additive:
            continue
        load = load_of(case.instance)
        weights = tuple((Fraction(1),) for _ in case.cost.groups)
        v = volumes(load, charges(load, case.cost, weights), "memory", first_token=False)
        kinds = {(i, o): kind for kind, (i, o, _) in enumerate(load.lengths)}
        kind = np.array([kinds[r.input_tokens, r.output_tokens] for r in case.instance.requests])
        arrival = np.array([r.arrival_ns * 1e5 for r in case.instance.requests])
        volume, rest, alone = v.volume[kind], v.rest[kind], v.alone[kind]
        if wrong == "rest counted twice":
            total = _whole(volume, alone, arrival) + rest.sum() - arrival.sum()
        elif wrong == "volumes doubled":
            total = _whole(2 * volume, alone, arrival) - arrival.sum()
        else:
            total = _fractional(volume, arrival) + rest.sum()
        caught += total / len(kind) > case.optimum["mean_completion"]
    assert caught > 0


@pytest.mark.parametrize("wrong", ["memory and company for one charge", "company twice"])
def test_wrong_crowding_is_caught(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    def with_company(pi: Floats, fixed: float, company: float) -> Floats:
        right = crowding.with_company(pi, fixed, company)
        if wrong == "company twice":
            right[:, 1] = 1
        else:
            right[:, 3] = fixed * pi
        return right

    monkeypatch.setattr(crowding.Crowd, "prices", lambda self, _: crowding.Prices(
        self.at, with_company(self.pi, self.fixed, np.inf)))  # fmt: skip
    assert any(bound.value_ticks > case.optimum["mean_completion"] for case in cases()[::3] for bound in
               iter_bounds(case.instance, case.cost, objective="mean_completion", only=["crowding"]))  # fmt: skip
