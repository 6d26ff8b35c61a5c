"""Reruns of the paper's claims: verdicts from numbers, resumable, the same on processes and on a cluster."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bounds.claims import Verdict, claim_names, load_claim
from bounds.cli import main
from bounds.reproduce import runner
from sim.errors import InputError

FAST = ["s5_2_intensity", "s5_3_swap", "s7_3_breakeven", "s7_4_progress"]
VERDICTS = {"reproduced", "direction only", "not reproduced", "not testable here"}


def reproduce(folder: Path, *words: str) -> dict[str, Any]:
    target = folder / "claims.json"
    assert main(["reproduce", *words, "--quiet", "--out", str(folder), "--json", str(target), "--workers", "1"]) == 0
    data: dict[str, Any] = json.loads(target.read_text())
    return data


@pytest.fixture(scope="module")
def rerun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("reproduce")
    return folder, reproduce(folder, *FAST)


@pytest.mark.parametrize("name", claim_names())
def test_every_claim_is_well_formed(name: str) -> None:
    claim = load_claim(name)
    assert re.fullmatch(r"[5-8](\.\d)?", claim.SECTION)
    for effort in ("quick", "full"):
        cells = [json.dumps(dict(cell), sort_keys=True) for cell in claim.cells(effort)]
        assert cells and len(set(cells)) == len(cells)


def test_json_lists_claims_with_verdict_and_reason(rerun: tuple[Path, dict[str, Any]]) -> None:
    _, data = rerun
    assert {line["name"] for line in data["claims"]} == set(FAST)
    for line in data["claims"]:
        assert {"claim", "section", "paper", "ours", "verdict", "reason", "plain", "seconds"} <= line.keys()
        assert line["verdict"] in VERDICTS


def test_known_verdicts(rerun: tuple[Path, dict[str, Any]]) -> None:
    _, data = rerun
    found = {(line["name"], line["claim"][:20]): line["verdict"] for line in data["claims"]}
    assert found["s5_2_intensity", "Attention intensity "] == "reproduced"
    assert found["s7_3_breakeven", "Preempting and refil"] == "direction only"
    assert found["s7_4_progress", "SRF is more efficien"] == "direction only"


def test_verdicts_come_from_the_numbers() -> None:
    claim = load_claim("s7_3_breakeven")
    row = {"cost_model": "linear/llama2-7b-a100", "literal": "never", "marginal": "x < 47.0", "entry_crossover": 46.0}
    assert claim.judge([row | {"marginal_crossover": 47.0}])[0].verdict == "reproduced"
    assert claim.judge([row | {"marginal_crossover": 20.0}])[0].verdict == "direction only"
    assert claim.judge([row | {"marginal_crossover": None}])[0].verdict == "not reproduced"


def test_the_report_is_one_file_without_network(rerun: tuple[Path, dict[str, Any]]) -> None:
    folder, data = rerun
    page = (folder / "report.html").read_text("utf-8")
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert page.count("<section") == len(FAST)
    assert all(line["plain"][:30] in page for line in data["claims"])


def test_results_carry_their_configuration(rerun: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = rerun
    table = pd.read_parquet(folder / "results.parquet")
    assert set(table["claim"]) == set(FAST) and set(table["effort"]) == {"quick"}
    assert len(pd.read_csv(folder / "results.csv")) == len(table)


def test_finished_cells_are_not_measured_again(
    rerun: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, data = rerun

    def refuse(claim: str, cell: dict[str, Any]) -> runner.Measured:
        raise AssertionError("measured again")

    monkeypatch.setattr(runner, "measure", refuse)
    again = reproduce(folder, *FAST)
    assert again["claims"] == data["claims"]
    next((folder / "cells").glob("s5_2*")).unlink()
    with pytest.raises(AssertionError, match="measured again"):
        reproduce(folder, *FAST)


def test_an_unknown_claim_or_cluster_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "s7.3-breakevn", "--out", str(tmp_path)]) == 2
    assert "did you mean" in capsys.readouterr().err
    with pytest.raises(InputError, match="must be dask"):
        runner.run(FAST[:1], "quick", tmp_path, cluster="slurm")


@pytest.mark.parametrize("kill", [False, True], ids=["two workers", "one worker killed"])
def test_a_dask_cluster_gives_the_same_tables(rerun: tuple[Path, dict[str, Any]], tmp_path: Path, kill: bool) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the dask extra")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        done = []

        def progress(finished: int, total: int, word: str) -> None:
            done.append(finished)
            if kill and finished == 3:
                os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

        names = FAST[:1] + FAST[2:]
        outcomes = runner.run(names, "quick", tmp_path, cluster=f"dask:{cluster.scheduler_address}", progress=progress)
    local = runner.run(names, "quick", rerun[0])
    assert [o.rows for o in outcomes] == [o.rows for o in local]
    assert [o.verdicts for o in outcomes] == [o.verdicts for o in local]
    assert isinstance(outcomes[0].verdicts[0], Verdict) and done[-1] == done[-2] + 1
