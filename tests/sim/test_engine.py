"""The engine on corner cases: schedulers that run in circles, and budgets below the number of requests."""

from __future__ import annotations

from sim.engine import simulate
from sim.instance import Instance, Request


def test_a_scheduler_that_runs_in_circles_ends_as_stalled() -> None:
    """V0 wants a free block per decode step even if the last one has room: alone in two blocks it evicts itself."""
    instance = Instance((Request(4, 3),), 8, 5, block_size=4)
    run = simulate(instance, "vllm-v0-chunked")
    assert run.stalled == (0,)
    assert simulate(instance, "vllm-v1-0.33").stalled == ()


def test_slow_progress_is_no_livelock() -> None:
    """A prompt far longer than the budget takes thousands of batches without a token and is no circle."""
    run = simulate(Instance((Request(5000, 2),), 6000, 1), "sarathi", engine="step")
    assert run.stalled == () and len(run.replay.schedule) == 5001


def test_decodes_of_v0_keep_the_budget() -> None:
    """Three ready requests decode one at a time where C = 1; vLLM itself refuses C below its cap."""
    instance = Instance((Request(1, 3),) * 3, 6, 1)
    for name in ("vllm-v0", "vllm-v0-chunked"):
        run = simulate(instance, name)
        assert run.stalled == ()
        assert max(record.features.tokens for record in run.replay.records) == 1
