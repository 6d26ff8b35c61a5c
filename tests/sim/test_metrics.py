"""Metrics against hand-checked runs."""

import dataclasses
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.model import Features, load_cost_model
from sim.cost.runs import RunTimer
from sim.engine import simulate
from sim.fairness import alone_ticks, count_inversions
from sim.instance import Instance, Request, load_instance
from sim.metrics import Slo, distribution, measure, summary
from tests.sim.strategies import instances


def test_summary_of_a_hand_checked_run() -> None:
    # Two requests (2,2), all at once: one prefill batch, one decode batch.
    run = simulate(Instance((Request(2, 2), Request(2, 2)), 10), "vllm")
    figures = summary(run)
    first, last = (record.end_ticks / 1e11 for record in run.replay.records)
    assert (figures.batches, figures.preemptions, figures.refilled_tokens) == (2, 0, 0)
    assert figures.makespan_ms == pytest.approx(last, rel=1e-12)
    assert figures.ttft_mean_ms == pytest.approx(first, rel=1e-12)
    assert figures.tpot_mean_ms == pytest.approx(last - first, rel=1e-12)


def test_single_token_requests_have_no_tpot() -> None:
    assert summary(simulate(Instance((Request(3, 1),), 10), "vllm")).tpot_mean_ms is None


def test_nothing_feasible_is_reported_without_figures() -> None:
    figures = summary(simulate(Instance((Request(30, 1),), 10), "vllm"))
    assert (figures.makespan_ms, figures.batches, figures.ttft_mean_ms) == (0.0, 0, None)


def test_refilled_tokens_of_the_paper_family() -> None:
    figures = summary(simulate(load_instance("paper-7.2-i0032"), "vllm"))
    assert (figures.preemptions, figures.refilled_tokens) == (2, 64)


def test_weighted_percentiles_equal_repeated_values() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), [1, 90, 9]
    assert distribution(values, weights) == distribution(np.repeat(values, weights))
    assert distribution(np.array([])) is None


@pytest.mark.parametrize("name", ["vllm", "vllm_srf", "sarathi", "sarathi_pf", "vllm_hy", "vllm-v1-0.33"])
@given(instances())
@settings(deadline=None, derandomize=True, max_examples=30)
def test_metrics_of_runs_equal_metrics_of_batches(name: str, instance: Instance) -> None:
    slo = Slo(30, 5)
    event, step = (measure(simulate(instance, name, engine=engine), slo=slo) for engine in ("event", "step"))
    assert flat(event) == pytest.approx(flat(step), rel=1e-9)


def flat(data: object, place: str = "") -> dict[str, float]:
    """All numbers of nested dataclasses by their path; None as -1."""
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        data = dataclasses.asdict(data)
    if isinstance(data, dict):
        return {p: x for key, value in data.items() for p, x in flat(value, f"{place}.{key}").items()}
    assert data is None or isinstance(data, int | float)
    return {place: -1.0 if data is None else float(data)}


@given(instances())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_metrics_against_their_definitions(instance: Instance) -> None:
    run = simulate(instance, "sarathi_srf", engine="step")
    replay, metrics = run.replay, measure(run)
    tokens: dict[int, list[int]] = {}
    for record in replay.records:
        for entry in record.entries:
            if entry.generates:
                tokens.setdefault(entry.request, []).append(record.end_ticks)
    gaps = [(b - a) / 1e11 for times in tokens.values() for a, b in pairwise(times)]
    assert (metrics.itl is None) == (not gaps)
    if metrics.itl is not None:
        assert metrics.itl.mean == pytest.approx(np.mean(gaps))
        assert metrics.itl.max == pytest.approx(max(gaps))
        assert metrics.itl.p95 == pytest.approx(sorted(gaps)[-(-len(gaps) * 95 // 100) - 1])
    times = zip(instance.requests, replay.first_token_ticks, strict=True)
    first = [(r.arrival_ns, i, t) for i, (r, t) in enumerate(times) if t is not None]
    overtaken = [b[2] < a[2] for a, b in combinations(sorted(first), 2)]
    assert metrics.order_inversions == (pytest.approx(np.mean(overtaken)) if overtaken else None)
    if replay.records:
        area = sum(r.kv_tokens * (r.end_ticks - r.start_ticks) for r in replay.records)
        assert metrics.kv_mean_share == pytest.approx(area / replay.makespan_ticks / instance.kv_capacity_tokens)
        assert metrics.batch_requests_mean == pytest.approx(np.mean([len(r.entries) for r in replay.records]))
    assert metrics.slowdown_max is None or metrics.slowdown_max >= 1 - 1e-9


def test_recompute_tax_by_hand() -> None:
    # One request is refilled once, alone in its batch: 35 tokens instead of a decode step that reads 34.
    run = simulate(load_instance("paper-7.2-i0032"), "vllm")
    cost = load_cost_model("linear/llama2-7b-a100")
    refills = [r for r in run.replay.records if any(e.kind == "refill" for e in r.entries)]
    tax = 0
    for record in refills:
        due = [e.kv_before + e.tokens - 1 for e in record.entries]
        tax += cost.batch_ticks(record.features)
        tax -= cost.batch_ticks(Features(1, 0, 1, 0, len(due), len(due), 0, 0, sum(due)))
    metrics = measure(run)
    assert len(refills) >= 1 and metrics.recompute_ms == pytest.approx(tax / 1e11)
    assert metrics.recompute_share == pytest.approx(tax / run.replay.makespan_ticks)


def test_goodput_counts_requests_within_both_limits() -> None:
    run = simulate(load_instance("paper-7.2-i0032"), "vllm")
    ttft = sorted(t for t in run.replay.ttft_ticks() if t is not None)
    limit = ttft[1] / 1e11
    metrics = measure(run, slo=Slo(ttft_ms=limit))
    assert metrics.latencies.good_share == 0.5
    assert metrics.good_requests_per_s == pytest.approx(2 / run.replay.makespan_ms * 1000)
    assert measure(run, slo=Slo(limit, 0)).latencies.good_share == 0
    assert measure(run).latencies.good_share is None


def test_alone_time_is_what_a_lone_request_takes() -> None:
    for i, o, c in ((10, 1, 64), (100, 7, 64), (128, 3, 64), (1, 5, 1)):
        instance = Instance((Request(i, o),), 1000, c)
        run = simulate(instance, "sarathi:token_budget=4096")
        timer = RunTimer(load_cost_model(instance.cost_model))
        assert run.replay.makespan_ticks == alone_ticks(i, o, c, timer)
        assert measure(run).slowdown_max == pytest.approx(1)


def test_priorities_are_told_apart() -> None:
    requests = tuple(Request(4, 3, priority=p) for p in (1, 0, 1))
    metrics = measure(simulate(Instance(requests, 100), "vllm"))
    assert {p: m.requests for p, m in metrics.by_priority.items()} == {0: 1, 1: 2}


@given(st.lists(st.integers(0, 5), max_size=80))
@settings(deadline=None, derandomize=True)
def test_inversions_are_counted(values: list[int]) -> None:
    assert count_inversions(np.array(values, np.int64)) == sum(a > b for a, b in combinations(values, 2))
