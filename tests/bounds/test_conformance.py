"""The conformance command: output and exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bounds.cli import main

EXCERPT = Path(__file__).parents[1] / "data" / "conformance" / "engine.jsonl.gz"


def test_all_match(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", str(EXCERPT)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "matched 54/54, skipped 0"


def test_differences_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzip.open(EXCERPT, "rt") as stream:
        lines = stream.read().splitlines()[:2]
    changed = json.loads(lines[1])
    changed["steps"][2]["blocks_used"] += 1
    file = tmp_path / "runs.jsonl"
    file.write_text(lines[0] + "\n" + json.dumps(changed) + "\n")
    report = tmp_path / "report.json"
    assert main(["conformance", str(file), "--json", str(report)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "matched 1/2, skipped 0"
    assert changed["name"] in out[0]
    assert "step 2: blocks_used differs" in out[0]
    assert out[1].split()[0] == "reference:"
    assert out[2].split()[0] == "here:"
    result = json.loads(report.read_text())
    assert (result["matched"], result["compared"]) == (1, 2)
    assert result["runs"][1]["difference"]["what"] == "blocks_used"


BAD_USAGE = [["none.jsonl"], [str(EXCERPT), "--scheduler", "vlm"], [str(EXCERPT), "--only", "zz"], []]


@pytest.mark.parametrize("arguments", BAD_USAGE)
def test_bad_usage_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1


def test_only_named_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", str(EXCERPT), "--only", "I_longprefill"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "matched 4/4, skipped 0"
