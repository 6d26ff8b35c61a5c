"""Odd random instances through the command line: its claims are held against the independent search and `check`."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from bounds.cli import main
from sim.clock import ms_from_ticks
from sim.cost import load_cost_model
from sim.instance import Instance, Request
from tests.oracle import optimum

COSTS = ("linear/llama2-7b-a100", "linear/llama3-70b-4xa100", "max-affine/llama2-7b-a100", "roofline/llama2-7b-a100",
         "tick.json")  # fmt: skip
TICK = {"kind": "linear", "layers": 1, "groups": [{"name": "a batch is one tick", "pieces": [{"batch": "1e-11"}]}]}


def odd_instance(rng: random.Random) -> Instance:
    longest = rng.choice([1, 3, 6])
    requests = tuple(
        Request(rng.randint(1, longest), rng.randint(1, 3), priority=rng.choice([0, 0, 1, -3]))
        for _ in range(rng.randint(1, 3))
    )
    block = rng.choice([1, 1, 2, 3, 16])
    blocks = max(-(-r.peak_kv_tokens // block) for r in requests) + rng.randint(0, 3)
    return Instance(requests, blocks * block + rng.randint(0, block - 1), rng.choice([1, 2, 3, 8, 4096]),
                    rng.choice([None, None, 1, 2]), block)  # fmt: skip


def is_finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(is_finite(v) for v in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("seed", range(24))
def test_claims_hold(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(seed)
    monkeypatch.chdir(tmp_path)
    Path("tick.json").write_text(json.dumps(TICK))
    instance = odd_instance(rng).replace(cost_model=rng.choice(COSTS))
    Path("a.json").write_text(json.dumps(instance.to_dict()))
    command = ("solve", "solve", "compare", "bound")[seed % 4]
    words = [command, "a.json", "--json", "out.json", "--time-limit", "10", "--workers", "1", "--quiet"]
    if command != "bound":
        words += ["--solver", ("cpsat", "highs", "cbc")[seed % 3]]
    assert main(words) == 0
    assert "Traceback" not in capsys.readouterr().err
    data = json.loads(Path("out.json").read_text())
    assert is_finite(data)
    best = optimum(instance, cost=load_cost_model(instance.cost_model))
    assert best is not None
    exact_ms = ms_from_ticks(best.value)
    assert data["lower_bound_ms"] <= exact_ms * (1 + 1e-12)
    # Schedulers that `bound` runs may make batches that process nothing, and beat the optimum without such.
    assert command == "bound" or data["objective_ms"] >= exact_ms * (1 - 1e-12)
    if data["status"] == "OPTIMAL":
        assert data["gap"] == 0 and data["objective_ms"] == pytest.approx(exact_ms, rel=1e-12)
    allow = ["--allow-empty"] if command == "bound" else []
    assert main(["check", "out.json", "a.json", *allow]) == 0
    assert f"makespan {data['objective_ms']:.6f} ms" in capsys.readouterr().out


def test_a_false_schedule_in_a_result_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, instance = tmp_path / "out.json", "paper-7.2-i0002"
    assert main(["solve", instance, "--json", str(out), "--quiet"]) == 0
    data = json.loads(out.read_text())
    batch = data["schedule"]["batches"][3]
    for change, rule in (
        ({"end_ns": batch["end_ns"] - 1}, "times"), ({"process": []}, "non-empty"), ({"preempt": [0, 0]}, "one-action"),
    ):  # fmt: skip
        data["schedule"]["batches"][3] = batch | change
        out.write_text(json.dumps(data))
        assert main(["check", str(out), instance]) == 1
        error = capsys.readouterr().err
        assert "batch 3" in error and f"[rule: {rule}]" in error and error.count("\n") == 1
