"""The compare command, end to end and in-process."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from bounds.cli import main
from bounds.lower import QUICK
from sim.engine import Simulation, simulate
from sim.instance import Instance

SCHEDULERS = "vllm,vllm_pf,sarathi"


def compare(tmp_path: Path, *words: str) -> dict[str, object]:
    target = tmp_path / "result.json"
    assert main(["compare", *words, "--quiet", "--json", str(target)]) == 0
    data: dict[str, object] = json.loads(target.read_text())
    return data


def test_json_follows_the_interface(tmp_path: Path) -> None:
    data = compare(tmp_path, "paper-7.2-i0032", "--schedulers", SCHEDULERS)
    assert {"schema_version", "status", "objective", "objective_ms", "lower_bound_ms", "lower_bound_source", "gap",
            "bounds", "solver", "solver_version", "formulation", "exact", "workers", "seed", "runtime_s", "batches",
            "schedule", "schedulers"} <= data.keys()  # fmt: skip
    assert data["status"] == "OPTIMAL" and data["gap"] == 0
    assert data["objective_ms"] == data["lower_bound_ms"] == pytest.approx(60.181, abs=5e-4)
    rows = {row["name"]: row for row in data["schedulers"]}  # type: ignore[attr-defined]
    assert list(rows) == SCHEDULERS.split(",")
    assert rows["vllm"]["ratio_to_best"] == 1 and rows["vllm_pf"]["gap"] == pytest.approx(1 - 60.181 / 61.605, abs=1e-4)


def test_its_schedule_passes_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare(tmp_path, "paper-7.2-i0004")
    assert main(["check", str(tmp_path / "result.json"), "paper-7.2-i0004"]) == 0
    assert "valid: 4 requests, 14 batches, makespan 49.803706 ms" in capsys.readouterr().out


def test_table_names_the_proof_the_bounds_and_breakeven(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "paper-7.2-i0002", "--schedulers", SCHEDULERS, "--quiet"]) == 0
    out = capsys.readouterr().out
    for words in (
        "optimum",
        "OPTIMAL: no schedule is faster than 46.52",
        "memory_area",
        "preempting pay here? yes",
    ):
        assert words in out


def test_plots_are_written(tmp_path: Path) -> None:
    compare(tmp_path, "paper-7.2-i0001", "--schedulers", "vllm", "--plots", str(tmp_path / "figures"))
    written = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert written == [f"paper-7.2-i0001-{what}.png" for what in ("best", "comparison", "vllm")]


def test_a_trace_offline(tmp_path: Path) -> None:
    words = ["--trace", "azure-conv-200", "--first", "2", "--kv-capacity", "600", "--offline", "--output-scale", "0.1"]
    data = compare(tmp_path, *words, "--schedulers", "vllm")
    assert data["status"] == "OPTIMAL"


def test_infeasible_requests_are_named_or_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trace", "azure-conv-200", "--first", "2", "--kv-capacity", "420", "--offline", "--output-scale", "0.1"]
    words += ["--schedulers", "vllm"]
    assert main(["compare", *words]) == 0
    text = tmp_path / "a.yaml"
    text.write_text("kv_capacity_tokens: 9\ntoken_budget: 9\ncost_model: linear/llama2-7b-a100\nrequests:\n"
                    "  - {input_tokens: 9, output_tokens: 2}\n  - {input_tokens: 3, output_tokens: 2}\n")  # fmt: skip
    capsys.readouterr()
    assert main(["compare", str(text)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "request 0" in error and "I + O - 1 = 10" in error
    data = compare(tmp_path, str(text), "--drop-infeasible", "--schedulers", "vllm")
    assert "left out 1 of 2 requests" in capsys.readouterr().err
    assert data["schedule"]["requests"] == ["1"]  # type: ignore[index]
    assert main(["compare", str(text), "--drop-infeasible", "--schedulers", "vllm", "--require-optimal"]) == 0


def test_lines_of_bounds_fit_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "paper-7.2-i0001", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "lower bounds, for every schedule:" in lines
    assert max(map(len, lines)) <= 120 and any("least_tokens = " in line for line in lines)


def test_list_names_the_shipped_traces(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "traces"]) == 0
    assert "azure-conv-200" in capsys.readouterr().out.splitlines()


def test_an_interrupt_while_simulating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known by then is written, and nothing long is begun."""

    def interrupted(instance: Instance, name: str, **options: Any) -> Simulation:
        if name == "vllm_pf":
            os.kill(os.getpid(), signal.SIGINT)
        return simulate(instance, name, **options)

    monkeypatch.setattr("sim.engine.simulate", interrupted)
    target = tmp_path / "result.json"
    assert main(["compare", "het8-00", "--quiet", "--json", str(target)]) == 130
    data = json.loads(target.read_text())
    assert data["status"] == "FEASIBLE" and [row["name"] for row in data["schedulers"]] == ["vllm", "vllm_pf"]
    assert {bound["name"] for bound in data["bounds"]} == {*QUICK} - {"sequences"} and data["runtime_s"] < 5
