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


def write_engine_log(path: Path) -> None:
    """Forty batches of a made-up engine: max(9, 6 + 0.06 T) + 0.001 D ms."""
    lines = ["n_p,n_d,T,Q,P,D,ms"]
    for i in range(40):
        fill, steps, reads = (37 * i) % 500, 1 + i % 7, 100 * (1 + i % 5)
        tokens = fill + steps
        ms = max(9.0, 6 + 0.06 * tokens) + 0.001 * steps * reads
        lines.append(f"{int(fill > 0)},{steps},{tokens},{fill**2},0,{steps * reads},{ms}")
    path.write_text("\n".join(lines) + "\n")


def test_calibrate_command_on_an_engine_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, out, report = tmp_path / "log.csv", tmp_path / "mine.json", tmp_path / "report.json"
    write_engine_log(log)
    code = main(["calibrate", str(log), "--kind", "max-affine", "--name", "mine", "--out", str(out), "--json",
                 str(report)])  # fmt: skip
    text = capsys.readouterr().out
    assert code == 0 and "whole batch" in text and "held-out" in text
    errors = {row["rows"]: row["mean"] for row in json.loads(report.read_text())["fit"]["errors"]}
    assert errors["held-out"] < 0.01
    document = json.loads(out.read_text())
    assert document["fit"]["command"] == "servebound calibrate log.csv --kind max-affine --out mine.json"
    assert str(tmp_path) not in out.read_text()
    assert main(["breakeven", "--cost-model", str(out)]) == 0


def test_calibrate_errors_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    write_engine_log(log)
    assert main(["calibrate", str(log), "--llm", "llama2-7b"]) == 2
    assert main(["calibrate", str(tmp_path / "none.csv")]) == 2
    assert main(["calibrate", str(log), "--out", str(tmp_path / "no" / "where.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
