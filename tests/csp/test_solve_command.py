"""The solve command's questions, limits and objectives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bounds.cli import main

FAMILY = "paper-7.2-i0016"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["solve", *words, "--quiet", "--time-limit", "60"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert "YES" in run(capsys, FAMILY, "--at-most", "0.99*vllm_pf")[1]
    assert "NO: every schedule has makespan above" in run(capsys, FAMILY, "--at-most", "0.9*vllm_pf")[1]
    assert "YES" in run(capsys, FAMILY, "--at-most", "54.2451")[1]
    assert "NO" in run(capsys, FAMILY, "--at-most", "54.245")[1]


def test_objectives_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.json"
    code, out, _ = run(capsys, "paper-7.2-i0008", "--objective", "mean_ttft,makespan", "--json", str(file))
    assert code == 0 and out.count("OPTIMAL") == 2
    data = json.loads(file.read_text())
    assert [stage["objective"] for stage in data["stages"]] == ["mean_ttft", "makespan"]
    assert data["objective"] == "mean_ttft,makespan" and data["schedule"]["batches"]


def test_limit_and_slowdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.json"
    code, _, _ = run(capsys, "paper-7.2-i0016", "--no-chunking", "--max-batch-time", "6.2", "--json", str(file))
    batches = json.loads(file.read_text())["schedule"]["batches"]
    assert code == 0 and max(b["end_ns"] - b["start_ns"] for b in batches) <= 6_200_001
    code, _, _ = run(capsys, "paper-7.2-i0008", "--objective", "max_slowdown", "--json", str(file))
    data = json.loads(file.read_text())
    assert code == 0 and data["objective_ms"] is None and data["objective_value"] > 1 and data["unit"] == "x"


@pytest.mark.parametrize(
    "words",
    [("--at-most", "x"), ("--at-most", "0.9*nope"), ("--swap", "1"), ("--swap", "1:2:3"), ("--swap", "a:b"),
     ("--objective", "nope"), ("--objective", "max_ttft:9"), ("--max-tpot", "-1"), ("--at-most", "nan"),
     ("--objective", "makespan,mean_ttft", "--at-most", "3"), ("--formulation", "bigm", "--swap", "1:1")],
)  # fmt: skip
def test_bad_usage_is_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "paper-7.2-i0001", *words)
    assert code == 2 and out == "" and len(err.strip().splitlines()) == 1
