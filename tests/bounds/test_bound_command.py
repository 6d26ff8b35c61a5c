"""``servebound bound``: the interval, its JSON and its exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bounds.cli import main
from bounds.report import console
from sim.clock import ms_from_ticks
from sim.instance import load_instance
from tests.oracle.search import optimum


def test_json_has_the_interval_and_the_schedulers(tmp_path: Path) -> None:
    target = tmp_path / "b.json"
    assert main(["bound", "uniform-64x16-16-m512", "--json", str(target), "--quiet", "--time-limit", "5"]) == 0
    data = json.loads(target.read_text())
    assert data["status"] == "FEASIBLE"
    assert 284.377 < data["lower_bound_ms"] < data["objective_ms"] < 335
    assert data["gap"] == pytest.approx(1 - data["lower_bound_ms"] / data["objective_ms"])
    assert {b["name"] for b in data["bounds"]} >= {"critical_path", "tokens", "memory_area", "packing", "aggregate"}
    assert data["lower_bound_source"] in {*(b["name"] for b in data["bounds"]), "portfolio"}
    for row in data["schedulers"]:
        assert row["makespan_ms"] >= data["objective_ms"]
        assert row["gap"] == pytest.approx(1 - data["lower_bound_ms"] / row["makespan_ms"])


def test_a_few_requests_are_solved(tmp_path: Path) -> None:
    source, target = tmp_path / "a.yaml", tmp_path / "b.json"
    lengths = [(2, 5), (4, 3), (2, 4)]
    rows = "".join(f"- {{input_tokens: {i}, output_tokens: {o}}}\n" for i, o in lengths)
    source.write_text(f"kv_capacity_tokens: 8\ntoken_budget: 4096\nrequests:\n{rows}")
    assert main(["bound", str(source), "--json", str(target), "--quiet", "--time-limit", "300"]) == 0
    data = json.loads(target.read_text())
    best = optimum(load_instance(source))
    assert best is not None and data["status"] == "OPTIMAL" and data["lower_bound_source"] == "portfolio"
    assert data["objective_ms"] == data["lower_bound_ms"] == ms_from_ticks(best.value)
    assert main(["certify", str(target), str(source)]) == 0


def test_until_gap_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", "paper-7.2-i0064", "--until-gap", "20%", "--quiet"]) == 0
    assert main(["bound", "het8-00", "--until-gap", "0.001", "--quiet", "--time-limit", "1"]) == 1
    out = capsys.readouterr().out
    assert "<= optimum <=" in out
    assert "least_batches" in out


def test_unknown_scheduler_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", "het8-00", "--schedulers", "vlm"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("objective", ["mean_completion", "mean_ttft"])
def test_other_objectives(objective: str, tmp_path: Path) -> None:
    target = tmp_path / "b.json"
    words = ["bound", "het16-00", "--objective", objective, "--json", str(target), "--quiet", "--time-limit", "3"]
    assert main(words) == 0
    data = json.loads(target.read_text())
    assert data["objective"] == objective
    assert 0 < data["lower_bound_ms"] <= data["objective_ms"]
    assert all(row["gap"] >= data["gap"] - 1e-12 for row in data["schedulers"])


def test_online_interval_waits_for_arrivals(tmp_path: Path) -> None:
    """Two hundred requests over two minutes: the makespan cannot end before the last arrival's service."""
    target = tmp_path / "b.json"
    words = ["bound", "--trace", "azure-conv-200", "--kv-capacity", "30000", "--json", str(target), "--quiet",
             "--time-limit", "4", "--schedulers", "vllm-v1-0.33"]  # fmt: skip
    assert main(words) == 0
    data = json.loads(target.read_text())
    assert {b["name"] for b in data["bounds"]} >= {"release", "aggregate"}
    assert data["gap"] < 0.06


def test_one_scheduler_finishes_whatever_the_time(tmp_path: Path) -> None:
    """Prompts of more than 4,096 tokens stall the first."""
    source, target = tmp_path / "a.yaml", tmp_path / "b.json"
    source.write_text("kv_capacity_tokens: 9000\ntoken_budget: 4096\nrequests:\n"
                      "- {count: 70, input_tokens: 5000, output_tokens: 3}\n")  # fmt: skip
    assert main(["bound", str(source), "--time-limit", "0.001", "--json", str(target), "--quiet"]) == 0
    data = json.loads(target.read_text())
    assert data["status"] == "FEASIBLE" and "stalled" in data["schedulers"][0]


def test_closed_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output may be closed unless the answer is to go there."""
    words = ["bound", "paper-7.2-i0032", "--until-gap", "1", "--time-limit", "1", "--quiet", "--json"]
    for target, code in ((str(tmp_path / "b.json"), 0), ("-", 2)):
        with monkeypatch.context() as closed:
            closed.setattr(sys, "stdout", None)
            assert main([*words, target]) == code
            sys.stdout.close()
    assert json.loads((tmp_path / "b.json").read_text())["status"] == "FEASIBLE"
    assert "standard output is closed" in capsys.readouterr().err


def test_whoever_reads_no_further_is_no_error() -> None:
    with pytest.raises(BrokenPipeError):
        console().on_broken_pipe()


@pytest.mark.parametrize("apart_s", [0, 1_000_000])
def test_idle_hours_are_known_at_once(apart_s: int, tmp_path: Path) -> None:
    """Arrivals count before bounds that solve programs, and a program holds no billion batches."""
    source, target = tmp_path / "a.yaml", tmp_path / "b.json"
    rows = "".join(f"- {{input_tokens: 20, output_tokens: 9, arrival_s: {1_000 + apart_s * n}}}\n" for n in range(4))
    source.write_text(f"kv_capacity_tokens: 60\ntoken_budget: 4096\nrequests:\n{rows}")
    assert main(["bound", str(source), "--time-limit", "1", "--json", str(target), "--quiet"]) == 0
    data = json.loads(target.read_text())
    assert data["lower_bound_ms"] > 1_000_000 and data["gap"] < 1e-3 and data["runtime_s"] < 20
