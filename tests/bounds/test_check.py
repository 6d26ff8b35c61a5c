"""``check`` reads what the other commands write, under the rules it was made with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bounds.cli import main

SWAPPING = """
kv_capacity_tokens: 200
token_budget: 4096
requests:
  - {count: 2, input_tokens: 99, output_tokens: 3}
"""
TOO_LONG = """
kv_capacity_tokens: 11
token_budget: 64
requests:
  - {count: 2, input_tokens: 6, output_tokens: 4}
  - {input_tokens: 60, output_tokens: 4}
"""


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_schedule_that_swaps(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a.yaml"
    Path(name).write_text(SWAPPING)
    assert main(["solve", name, "--swap", "0:0", "--no-chunking", "--json", "r.json", "--quiet"]) == 0
    assert any(batch.get("swap_out") for batch in json.loads(Path("r.json").read_text())["schedule"]["batches"])
    capsys.readouterr()
    assert main(["check", "r.json", name]) == 1
    assert "[rule: no-swap]" in capsys.readouterr().err
    assert main(["check", "r.json", name, "--swap", "0:0"]) == 0
    assert main(["check", "r.json", name, "--swap", "1:0"]) == 1
    assert "[rule: " in capsys.readouterr().err


def test_rules_of_the_instance_can_be_tightened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "paper-7.2-i0016", "--json", "r.json", "--quiet"]) == 0
    assert main(["check", "r.json", "paper-7.2-i0016"]) == 0
    assert main(["check", "r.json", "paper-7.2-i0016", "--no-preemption"]) == 1
    assert "[rule: no-preemption]" in capsys.readouterr().err


def test_a_schedule_without_the_requests_that_never_fit(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.yaml").write_text(TOO_LONG)
    assert main(["solve", "a.yaml", "--drop-infeasible", "--json", "r.json", "--quiet"]) == 0
    assert main(["check", "r.json", "a.yaml"]) == 2
    assert main(["check", "r.json", "a.yaml", "--drop-infeasible"]) == 0
    assert "left out 1 of 3" in capsys.readouterr().err


def test_another_cost_model_times_it_anew(capsys: pytest.CaptureFixture[str]) -> None:
    """Slower or faster batches move the ones behind them; the file's own starts are of the other model."""
    assert main(["solve", "paper-7.2-i0008", "--json", "r.json", "--quiet"]) == 0
    batches = len(json.loads(Path("r.json").read_text())["schedule"]["batches"])
    for each_ms in (0.5, 500):
        pieces = [{"batch": each_ms}]
        cost = {"kind": "linear", "layers": 1, "groups": [{"name": "all", "pieces": pieces}]}
        Path(f"{each_ms}.json").write_text(json.dumps(cost))
        capsys.readouterr()
        assert main(["check", "r.json", "paper-7.2-i0008", "--cost-model", f"{each_ms}.json", "--json", "-"]) == 0
        assert json.loads(capsys.readouterr().out)["makespan_ms"] == pytest.approx(batches * each_ms)
