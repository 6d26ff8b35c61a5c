"""`servebound simulate` from end to end."""

import json
from pathlib import Path

import pytest

from bounds.cli import main


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


def test_unknown_scheduler_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "paper-7.2-i0032", "--schedulers", "vlm"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "did you mean 'vllm'" in error
