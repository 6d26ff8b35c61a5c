"""The sub-commands about cost models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bounds.cli import main
from sim.cost.model import load_cost_model


def test_roofline_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(["roofline", "--batch", "prefill:2048", "--batch", "decode:1024x64", "--json", str(tmp_path / "r.json"),
                 "--plots", str(tmp_path), "--out", str(tmp_path / "cost.json")])  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0 and "128.00 FLOPs per element" in out and "1.98 for decodes" in out
    data = json.loads((tmp_path / "r.json").read_text())
    bound = {(b["batch"], o["name"]): o["bound"] for b in data["batches"] for o in b["operators"]}
    assert bound["prefill:2048", "UG_proj"] == "compute" and bound["prefill:2048", "prefill attention"] == "memory"
    assert bound["decode:1024x64", "UG_proj"] == "memory" and bound["decode:1024x64", "decode attention"] == "memory"
    assert (tmp_path / "roofline-llama2-7b-a100.png").stat().st_size > 10_000
    assert load_cost_model(str(tmp_path / "cost.json")).groups == load_cost_model("roofline/llama2-7b-a100").groups


@pytest.mark.parametrize("bad", ["prefill", "decode:5+3", "prefill:0", "prefill:5x0", "x:1", "prefill:1,,decode:2"])
def test_roofline_refuses_bad_batches(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--batch", bad]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_roofline_refuses_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--llm", "llama2-8b"]) == 2
    assert main(["roofline", "--gpu", "a10"]) == 2
    assert main(["roofline", "--tp", "3"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
