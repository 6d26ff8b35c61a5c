"""Reruns of the paper's claims: verdicts from numbers, resumable, the same on processes and on a cluster."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bounds.claims import Row, Verdict, across, claim_names, grade, load_claim
from bounds.claims._grid import left_on_table, tpot_bound_ms
from bounds.cli import main
from bounds.reproduce import runner
from bounds.reproduce.source import measuring_source
from sim.cost import load_cost_model
from sim.disaggregation import Pools, simulate_disaggregated
from sim.engine import simulate
from sim.errors import InputError
from sim.instance import Instance, Request
from sim.metrics import summary
from sim.replay import SwapLink

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
        assert {"claim", "section", "paper", "ours", "verdict", "reason", "plain", "seconds", "cpu_seconds",
                "left_on_table", "other_costs"} <= line.keys()  # fmt: skip
        assert line["left_on_table"]
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


def test_other_cost_models_stand_beside_with_their_own_verdicts() -> None:
    def judge(rows: list[Row]) -> list[Verdict]:
        ratio = rows[0]["ratio"]
        return [Verdict("c", "5.4", "2x", f"{ratio}x", grade(ratio - 1, 1.0), "", "", f"within {ratio}")]

    rows = [{"cost_model": "linear/a", "ratio": 2.0}, {"cost_model": "max-affine/a", "ratio": 1.2}]
    (line,) = across(rows, judge)
    assert (line.ours, line.verdict) == ("linear/a: 2.0x", "reproduced")
    assert line.other_costs == "max-affine/a: 1.2x (direction only)"
    assert line.left_on_table == "linear/a: within 2.0\nmax-affine/a: within 1.2"


def test_left_on_the_table_is_the_loss_against_the_best_known_and_the_bound() -> None:
    case = {"I": 1, "O": 2, "M": 9}
    rows = [case | {"scheduler": "a", "makespan_ms": 100.0, "lower_bound_ms": 60.0, "plan_ms": 80.0},
            case | {"scheduler": "b", "makespan_ms": 90.0, "lower_bound_ms": 72.0}]  # fmt: skip
    text = left_on_table(rows)
    assert "a 20.0% / 28.0%, b 11.1% / 20.0%" in text and "within 10.0% of the optimum" in text
    with pytest.raises(RuntimeError, match="quicker than the lower bound"):
        left_on_table([*rows, case | {"scheduler": "c", "makespan_ms": 70.0, "lower_bound_ms": None}])


@pytest.mark.parametrize("cost_model", ["linear/llama2-7b-a100", "max-affine/llama2-7b-a100"])
def test_no_request_has_less_than_the_least_tpot(cost_model: str) -> None:
    cost = load_cost_model(cost_model)
    for inputs, outputs in ((1, 4), (300, 9)):
        least = tpot_bound_ms(Request(inputs, outputs), cost)
        assert least is not None
        for count in (1, 5):
            instance = Instance((Request(inputs, outputs),) * count, 2 * (inputs + outputs))
            assert least <= (summary(simulate(instance, "vllm", cost=cost)).tpot_mean_ms or 0) * (1 + 1e-12)
        if cost_model.startswith("linear"):
            alone = simulate(Instance((Request(inputs, outputs),), 10_000), "vllm", cost=cost)
            assert least == pytest.approx(summary(alone).tpot_mean_ms)
    assert tpot_bound_ms(Request(5, 1), cost) is None


def test_figures_that_mean_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = load_claim("s7_3_breakeven")
    wrong = {"never finished": {"stalled": 3}, "below the lower bound": {"makespan_ms": 1.0, "lower_bound_ms": 1.5}}
    for what, row in wrong.items():
        monkeypatch.setattr(claim, "measure", lambda row=row, **cell: [row])
        with pytest.raises(RuntimeError, match=what):
            runner.measure("s7_3_breakeven", {})


def test_a_disaggregated_pool_finishes_prompts_longer_than_the_token_budget() -> None:
    instance = Instance((Request(6000, 5), Request(50, 3)), 10_000)
    pools = Pools(1, 1, SwapLink(0, 1000))
    assert simulate_disaggregated(instance, pools).unfinished == ()
    assert simulate_disaggregated(instance, pools, prefill_scheduler="vllm").unfinished == (0, 1)


def test_what_a_cell_rests_on_leaves_judging_out() -> None:
    text = measuring_source("s5_6_capacity")
    assert "def measure_cell" in text and "def lower_bound" in text
    assert "judge" not in text and "left_on_table" not in text


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


def test_a_ray_cluster_gives_the_same_tables(rerun: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the ray extra")
    outcomes = runner.run(FAST[:1], "quick", tmp_path, cluster="ray")
    assert [o.rows for o in outcomes] == [o.rows for o in runner.run(FAST[:1], "quick", rerun[0])]


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
