"""The five-minute rule: intervals counted by hand, limits from batch times, the verdict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bounds.cli import main
from bounds.five_minute import Reuses, break_even_s, five_minute, reuses
from sim.cost.model import Features, load_cost_model
from sim.engine import simulate
from sim.instance import Instance, Request, load_instance
from sim.replay import replay
from sim.schedule import Batch, Schedule

COST = load_cost_model("linear/llama2-7b-a100")


def test_intervals_by_hand() -> None:
    # a: filled, held for one batch, decoded; b: filled, evicted, refilled, so its KVs are never reused
    instance = Instance((Request(4, 2), Request(5, 2)), 20)
    schedule = Schedule((
        Batch(process=((0, 4),)), Batch(process=((1, 5),)), Batch(process=((0, 1),), preempt=(1,)),
        Batch(process=((1, 6),)),
    ))  # fmt: skip
    found = reuses(replay(instance, schedule))
    fills = [COST.batch_ticks(Features(1, 1, 0, 1, 0, c, c * c, 0, 0)) for c in (4, 5)]
    assert found.kv_tokens.tolist() == [4]
    assert found.interval_s == pytest.approx([sum(fills) / 1e14])


@pytest.mark.parametrize("scheduler", ["vllm", "sarathi"])
def test_every_decode_is_a_reuse(scheduler: str) -> None:
    run = simulate(load_instance("uniform-16x16-8-m128"), scheduler)
    found = reuses(run.replay)
    decodes = sum(entry.kv_before > 0 for record in run.replay.records for entry in record.entries)
    assert len(found.kv_tokens) == decodes and found.interval_s.min() > 0
    assert found.interval_s.sum() <= 16 * run.replay.makespan_ticks / 1e14


def test_limits_scale_with_memory_and_bracket_the_papers_range() -> None:
    assert break_even_s(COST, 100, 2000) == pytest.approx(2 * break_even_s(COST, 100, 1000))
    # What follows from the published coefficients at M = 100,000 (the paper says 0.33 s to 130 s): 515 s for one KV,
    # 32 layers x (b_o + b_p + s_p + a_p + a_o) x M, and 7.2 s where t / m is least, near m = sqrt(0.159 / a_p) = 974
    one = 32 * (0.06486 + 0.0926 + 0.001534 + 1.6773e-7 + 0.00191) / 1e3 * 100_000
    assert break_even_s(COST, 1, 100_000) == pytest.approx(one)
    least = min(break_even_s(COST, m, 100_000) for m in range(100, 5000, 10))
    assert least == pytest.approx(7.157, abs=0.01)


def test_verdict_counts_what_came_late() -> None:
    seen = Reuses(np.array([100, 100, 100]), np.array([0.001, 0.01, 0.2]))
    limit = break_even_s(COST, 100, 1000)
    assert 0.01 < limit < 0.2
    found = five_minute("x", COST, 1000, seen)
    assert found.past == 1 and found.longest_share == pytest.approx(0.2 / limit) and "1 of 3" in found.verdict
    assert five_minute("x", COST, 100_000, seen).verdict.startswith("keep all")
    assert five_minute("x", COST, 10, Reuses(np.zeros(0, dtype=np.int64), np.zeros(0))).count == 0


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(["five-minute", "uniform-64x16-16-m512", "--schedulers", "vllm", "--json", str(tmp_path / "f.json"),
                 "--plots", str(tmp_path)])  # fmt: skip
    assert code == 0 and "keep all" in capsys.readouterr().out
    entry = json.loads((tmp_path / "f.json").read_text())["schedulers"][0]
    assert entry["keep_all"] is True and entry["reuses"] > 500
    assert entry["reuse_interval_s"]["max"] / entry["longest_interval_over_break_even"] <= entry["break_even_s"]["max"]
    assert (tmp_path / "five-minute-uniform-64x16-16-m512-vllm.png").stat().st_size > 10_000
    assert main(["five-minute", "uniform-64x16-16-m512", "--schedulers", "vlm"]) == 2
