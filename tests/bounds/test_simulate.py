"""`servebound simulate` from end to end."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bounds.cli import main
from sim.engine import Simulation, simulate
from sim.instance import Instance


def test_table_and_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "run.json"
    assert main(["simulate", "paper-7.2-i0032", "--schedulers", "vllm,vllm_pf", "--json", str(target)]) == 0
    assert "60.181" in capsys.readouterr().out
    result = json.loads(target.read_text())
    assert [s["name"] for s in result["schedulers"]] == ["vllm", "vllm_pf"]
    assert result["schedulers"][0]["makespan_ms"] == pytest.approx(60.181, abs=0.001)


def test_infeasible_requests_are_reported_and_the_rest_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "kv_capacity_tokens: 10\ntoken_budget: 8\nrequests:\n"
        "- {input_tokens: 20, output_tokens: 1, id: huge}\n"
        "- {input_tokens: 2, output_tokens: 3}\n"
    )
    assert main(["simulate", str(path), "--schedulers", "vllm"]) == 0
    assert "1 of 2 requests can never fit in memory: huge" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["simulate", "bound", "compare"])
def test_a_scheduler_that_stalls_has_no_time_and_a_reason(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "kv_capacity_tokens: 10\ntoken_budget: 4\nrequests:\n- {count: 2, input_tokens: 6, output_tokens: 1}\n"
    )
    assert main([command, str(path), "--schedulers", "vllm,sarathi"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("vllm "))
    assert row.split()[:4] == ["vllm", "(stalled:", "2)", "-"]
    assert any("the prompt of request 0, 6 tokens, is longer than C = 4" in line for line in lines)


def test_unknown_scheduler_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "paper-7.2-i0032", "--schedulers", "vlm"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "did you mean 'vllm'" in error


def test_generated_traces_and_instances_simulate_alike(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    draw = ["generate", "--requests", "20", "--input-tokens", "uniform:10:90", "--output-tokens", "30",
            "--arrivals", "poisson:50", "--seed", "5", "--kv-capacity", "500", "--out"]  # fmt: skip
    trace, instance = tmp_path / "w.csv", tmp_path / "w.yaml"
    assert main([*draw, str(trace)]) == main([*draw, str(instance)]) == 0
    assert main(["simulate", "--trace", str(trace), "--kv-capacity", "500"]) == 0
    from_trace = capsys.readouterr().out
    assert main(["simulate", str(instance)]) == 0
    assert capsys.readouterr().out == from_trace


def test_generate_says_what_it_needs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    draw = ["generate", "--requests", "2", "--input-tokens", "3", "--output-tokens", "30", "--out"]
    assert main([*draw, str(tmp_path / "w.txt")]) == 2
    assert main([*draw, str(tmp_path / "w.yaml")]) == 2
    assert main([*draw, str(tmp_path / "missing" / "w.csv")]) == 2
    assert capsys.readouterr().err.count("\n") == 3


def test_options_shape_instances_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "paper-7.2-i0032", "--schedulers", "vllm", "--kv-scale", "4"]) == 0
    assert " 0         0" in capsys.readouterr().out


def test_files_what_ifs_and_goodput(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("r.parquet", "b.csv", "t.json", "m.json")]
    command = ["simulate", "--trace", "azure-conv-200", "--kv-capacity", "8000", "--first", "60"]
    options = [
        "--schedulers",
        "vllm",
        "--what-if",
        "infinite-kv,compute=2",
        "--scale-bandwidth",
        "2",
        "--slo-ttft-ms",
        "100",
    ]
    outputs = ["--table", "--batch-table", "--timeline", "--json"]
    named = [word for pair in zip(outputs, map(str, files), strict=True) for word in pair]
    assert main([*command, *options, *named, "--plots", str(tmp_path / "plots")]) == 0
    out = capsys.readouterr().out
    assert "vllm [infinite-kv,compute=2]" in out and "vllm [bandwidth=2]" in out
    found = json.loads(files[3].read_text())["schedulers"]
    assert [s["what_if"] for s in found] == [None, "infinite-kv,compute=2", "bandwidth=2"]
    assert found[1]["preemptions"] == 0 and found[1]["makespan_ms"] < found[0]["makespan_ms"]
    assert 0 < found[0]["metrics"]["latencies"]["good_share"] < 1
    assert set(pd.read_parquet(files[0])["scheduler"]) == {"vllm", "vllm [infinite-kv,compute=2]", "vllm [bandwidth=2]"}
    assert len(pd.read_csv(files[1])) == sum(s["batches"] for s in found)
    assert json.loads(files[2].read_text())["traceEvents"]
    assert {p.name for p in (tmp_path / "plots").iterdir()} == {
        "azure-conv-200-kv-use.png",
        "azure-conv-200-latencies.png",
    }


def test_classes_are_shown_when_there_are_several(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,priority\n0,10,5,0\n0,10,5,1\n")
    assert main(["simulate", "--trace", str(path), "--kv-capacity", "100", "--schedulers", "vllm"]) == 0
    assert "priority" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [["--table", "x.xlsx"], ["--timeline", "missing/x.json"], ["--what-if", "faster"], ["--scale-compute", "0"],
     ["--slo-ttft-ms", "-1"], ["--engine", "magic"], ["--schedulers", "vllm_swap", "--engine", "event"]],
)  # fmt: skip
def test_bad_options_are_one_line(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "paper-7.2-i0032", *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_ctrl_c_keeps_the_runs_that_were_finished(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(instance: Instance, name: str, **options: Any) -> Simulation:
        if name == "sarathi":
            raise KeyboardInterrupt
        return simulate(instance, name, **options)

    monkeypatch.setattr("bounds.commands.simulate.simulate", interrupted)
    target = tmp_path / "run.json"
    words = ["simulate", "paper-7.2-i0032", "--json", str(target), "--schedulers"]
    assert main([*words, "vllm,sarathi,vllm_pf"]) == 130
    printed = capsys.readouterr()
    assert "60.181" in printed.out and "1 of 3 runs" in printed.err
    assert [s["name"] for s in json.loads(target.read_text())["schedulers"]] == ["vllm"]
    target.unlink()
    assert main([*words, "sarathi,vllm"]) == 130
    assert capsys.readouterr().out == "" and not target.exists()


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_a_figure_folder_that_cannot_be_made_is_refused_first(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main([command, "paper-7.2-i0001", "--plots", str(folder)]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1 and "cannot be written" in printed.err
