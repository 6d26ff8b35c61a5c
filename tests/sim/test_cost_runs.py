"""Runs of batches are timed exactly: against adding up the batches one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.model import CostModel, Features, load_cost_model
from sim.cost.runs import RunTimer, least_batches, stretch_ticks
from tests.sim.cost_models import max_affine

MODELS = [load_cost_model("linear/llama2-7b-a100"), max_affine()]
small = st.integers(0, 60)


def features(n: int, reads: int, chunk: int, kv: int, k: int) -> Features:
    p = int(chunk > 0)
    return Features(1, p, int(n > 0), p, n, n + chunk, chunk * (chunk + 2 * (kv + k * chunk)), p * (kv + k * chunk),
                    reads + k * n)  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.kind)
@given(n=small, reads=small, chunk=small, kv=small, repeat=st.integers(1, 80), wait=st.floats(0, 1.5))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_run_equals_the_sum_of_its_batches(
    model: CostModel, n: int, reads: int, chunk: int, kv: int, repeat: int, wait: float
) -> None:
    timer = RunTimer(model)
    first = features(n, reads, chunk, kv, 0)
    step = Features(*(b - a for a, b in zip(first, features(n, reads, chunk, kv, 1), strict=True)))
    each = [model.batch_ticks(features(n, reads, chunk, kv, k)) for k in range(repeat)]
    told = [ticks + k * growth for length, ticks, growth in timer.stretches(first, step, repeat) for k in range(length)]
    assert told == each
    assert timer.total(first, step, repeat) == sum(each)
    wait_ticks = round(wait * sum(each))
    begun = next((k for k in range(1, repeat + 1) if sum(each[:k]) >= wait_ticks), repeat)
    assert timer.batches_until(first, step, repeat, wait_ticks) == begun


@given(st.integers(0, 10**12), st.integers(0, 10**9), st.integers(1, 10**15))
@settings(deadline=None, derandomize=True)
def test_least_batches_is_least(ticks: int, growth: int, wait: int) -> None:
    if ticks or growth:
        k = least_batches(ticks, growth, wait)
        assert stretch_ticks(k, ticks, growth) >= wait > stretch_ticks(k - 1, ticks, growth)
