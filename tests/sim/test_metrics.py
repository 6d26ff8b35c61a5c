"""Metrics against hand-checked runs."""

import numpy as np
import pytest

from sim.engine import simulate
from sim.instance import Instance, Request, load_instance
from sim.metrics import distribution, summary


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
