"""The preemption benchmark: floors, intervals, resuming, verdicts, the command, and directions on held seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bounds.cli import main
from bounds.preemption_bench import runner
from bounds.preemption_bench.breakeven import breakeven_probability, breakeven_table, refill_ms
from bounds.preemption_bench.cases import Case
from bounds.preemption_bench.claims import DIRECTION, NOT, REPRODUCED, UNDECIDED, UNTESTED, Evidence, all_claims
from bounds.preemption_bench.claims.fairness import less_fair
from bounds.preemption_bench.floors import max_ttft_floor_ticks, prefill_floor_ticks, ttft_floors_ticks
from bounds.preemption_bench.optimum import OptimumCase, contested_seeds, distance_table, optimum_table
from bounds.preemption_bench.runner import run_tasks
from bounds.preemption_bench.statistics import interval
from bounds.preemption_bench.tables import Results, decision_table, fairness_summary, ratios_per_seed, summary_table
from sim.cost.model import Features, load_cost_model
from sim.instance import Instance, Request
from sim.interrupts import constants
from sim.interrupts.policy import policy_names

COST = load_cost_model(constants.COST_MODEL)
HELD_SEEDS = (101, 102, 103)
"""Never looked at while policies and workloads were written."""
COMPARED = ("no_preemption", "oldest_checkpoint", "oldest_recompute", "oldest_pause")


@pytest.fixture(scope="module")
def held() -> Results:
    """Two workloads on held seeds, 90 requests a run."""
    cases = [Case(w, p, s, requests=90) for w in ("high_resume_prob", "long_decode_tail") for s in HELD_SEEDS
             for p in COMPARED]  # fmt: skip
    return Results([row for case in cases for row in case.run()])


# Directions on held seeds.


@pytest.mark.parametrize("policy", ["oldest_checkpoint", "oldest_recompute", "oldest_pause"])
def test_preemption_shortens_urgent_waits(held: Results, policy: str) -> None:
    for workload in held.workloads:
        without = held.per_seed("no_preemption", "urgent_ttft_p95_ms", [workload])
        with_ = held.per_seed(policy, "urgent_ttft_p95_ms", [workload])
        assert all(a is not None and b is not None and b <= a for a, b in zip(without, with_, strict=True))
        gap = held.difference("no_preemption", policy, "urgent_ttft_p95_ms", [workload])
        assert gap is not None and gap.mean > 0


def test_checkpoint_is_cheaper_than_recompute_where_victims_resume(held: Results) -> None:
    for workload in held.workloads:
        gap = held.difference("oldest_checkpoint", "oldest_recompute", "overhead_per_interrupt_ms", [workload])
        assert gap is not None and gap.mean < 0


def test_prompt_only_turns_the_heavy_tail_around(held: Results) -> None:
    """With the original's formula recompute wins in the heavy tail: why its claim does not survive full refills."""
    checkpoint = held.mean("oldest_checkpoint", "overhead_per_interrupt_ms", ["long_decode_tail"])
    formula = held.mean("oldest_recompute", "prompt_only_per_interrupt_ms", ["long_decode_tail"])
    assert checkpoint is not None and formula is not None and formula.mean < checkpoint.mean


def test_pausing_costs_nothing_where_memory_is_ample(held: Results) -> None:
    assert held.per_seed("oldest_pause", "overhead_ms") == [0.0] * len(HELD_SEEDS)


def test_every_run_keeps_to_the_floors(held: Results) -> None:
    for row in held.rows:
        assert row["urgent_ttft_p95_ms"] >= row["urgent_ttft_p95_floor_ms"]
        assert row["urgent_ttft_max_ms"] >= row["urgent_ttft_max_floor_ms"]


# Floors.


def test_floor_of_one_prompt_is_its_prefill_alone() -> None:
    assert prefill_floor_ticks([100], 512, COST) == COST.batch_ticks(Features(1, 1, 0, 1, 0, 100, 10_000, 0, 0))


def test_floor_of_a_prompt_in_chunks_is_below_its_chunks() -> None:
    chunks = [Features(1, 1, 0, 1, 0, c, c * c + 2 * c * m, m, 0) for c, m in ((512, 0), (512, 512), (76, 1024))]
    for name in ("linear/llama2-7b-a100", "linear/llama3-70b-4xa100"):
        cost = load_cost_model(name)
        assert prefill_floor_ticks([1100], 512, cost) <= sum(cost.batch_ticks(c) for c in chunks)


def test_floor_of_a_burst_counts_everyone() -> None:
    """Three at once, then one so late that it is alone: the burst binds."""
    burst = [Request(40, 1, 0, 0), Request(60, 1, 0, 0), Request(80, 1, 0, 0), Request(50, 1, 10**12, 0)]
    instance = Instance(tuple(burst), 10_000, 512, 8, cost_model=COST.name)
    assert max_ttft_floor_ticks(instance, COST) == prefill_floor_ticks([40, 60, 80], 512, COST)
    assert len(ttft_floors_ticks(instance, COST)) == 4
    assert max_ttft_floor_ticks(instance, COST, priority=1) is None


# Break-even.


def test_breakeven_probability_solves_its_equation() -> None:
    p = breakeven_probability(3.0, 2.0, 10.0)
    assert p is not None and 3.0 + p * 2.0 == pytest.approx(p * 10.0)
    assert breakeven_probability(3.0, 2.0, 4.0) is None and breakeven_probability(3.0, 2.0, 2.0) is None


def test_breakeven_table_agrees_with_itself() -> None:
    table = breakeven_table([COST.name])
    for row in table.itertuples():
        cheaper = row.checkpoint_round_trip_ms < row.refill_ms
        assert row.winner == ("checkpoint" if cheaper else "recompute")
        assert cheaper == (not pd.isna(row.breakeven_resume_probability))
        own_link = constants.LINK.bandwidth / 1e9
        if abs(row.breakeven_link_gb_per_s - own_link) > 1:
            assert cheaper == (row.breakeven_link_gb_per_s < own_link)
    assert (table["refill_ms"].diff().dropna() > 0).all()


def test_refills_beyond_the_budget_cost_more_than_their_tokens() -> None:
    assert refill_ms(COST, 1100) > refill_ms(COST, 500) + refill_ms(COST, 500)


# Statistics and verdicts on rows made up for the purpose.


def test_intervals() -> None:
    found = interval([1.0, 2.0, 3.0, None])
    assert found is not None and (found.mean, found.n) == (2.0, 3)
    assert found.low == pytest.approx(2 - 4.302653 / 3**0.5, abs=1e-5)
    assert not found.positive and not found.negative
    assert interval([]) is None and interval([5.0]) is not None and str(interval([5.0])) == "5"
    narrow = interval([1.0, 1.1, 0.9])
    assert narrow is not None and narrow.positive


def made_up(**changes: dict[str, float]) -> Results:
    """Two workloads, three seeds; ``policy={figure: value}`` changes a policy's figures."""
    workloads = ("high_resume_prob", "long_decode_tail", "kv_pressure_urgent", "low_resume_prob",
                 "urgent_prefill_injections")  # fmt: skip
    rows: list[dict[str, Any]] = []
    for workload in workloads:
        for policy in policy_names():
            for seed in range(3):
                row: dict[str, Any] = {"workload": workload, "policy": policy, "seed": seed}
                row |= dict.fromkeys(SUMMARY, 1.0)
                row |= {f"{c}_requests": 10 for c in ("urgent", "standard", "best_effort")}
                row |= changes.get(policy, {})
                row = {k: v * (1 + 0.001 * seed) if isinstance(v, float) else v for k, v in row.items()}
                rows.append(row)
    return Results(rows)


_ONE = summary_table(Results(Case("high_resume_prob", "no_preemption", 0, requests=20).run()))
_WORDS = ("workload", "policy", "kind", "mechanism")
SUMMARY = [column for column in _ONE if not column.endswith(("_low", "_high")) and column not in _WORDS]


def verdicts(results: Results) -> dict[str, str]:
    evidence = Evidence(results, breakeven_table([COST.name]), COST.name)
    return {claim.statement: claim.verdict for claim in all_claims(evidence)}


def test_verdicts_follow_the_figures() -> None:
    waits = {"no_preemption": {"urgent_ttft_p95_ms": 400.0}}
    found = verdicts(made_up(**waits, oldest_recompute={"overhead_per_interrupt_ms": 2.0}))
    ttft = "high_resume_prob: urgent p95 TTFT falls from no preemption to any preemption"
    assert found[ttft] == REPRODUCED
    assert found["high_resume_prob: checkpoint is the cheaper mechanism"] == REPRODUCED
    assert found["long_decode_tail: recompute is the cheaper mechanism"] == NOT
    slow = {p: {"urgent_ttft_p95_ms": 50.0} for p in policy_names() if p != "no_preemption"}
    assert verdicts(made_up(**waits, **slow))[ttft] == DIRECTION
    worse = {p: {"urgent_ttft_p95_ms": 500.0} for p in policy_names() if p != "no_preemption"}
    assert verdicts(made_up(**waits, **worse))[ttft] == NOT
    assert verdicts(made_up())[ttft] == UNDECIDED


def test_fairness_verdicts_follow_the_figures() -> None:
    starved = {"best_effort_ttft_attained": 0.1}
    assert less_fair(made_up(oracle_preemption=starved), "oracle_preemption") == REPRODUCED
    assert less_fair(made_up(), "oracle_preemption") == NOT
    results = made_up(oracle_preemption=starved)
    assert ratios_per_seed(results, "oracle_preemption") == pytest.approx([10.0] * 3)
    table = fairness_summary(results).set_index("policy")
    assert not table.loc["oracle_preemption", "equitable"] and table.loc["oldest_checkpoint", "equitable"]
    nothing = made_up(oracle_preemption={"best_effort_ttft_attained": 0.0})
    assert ratios_per_seed(nothing, "oracle_preemption") == [None] * 3


def test_claims_without_their_runs_are_not_tested(held: Results) -> None:
    found = verdicts(held)
    assert found["kv_pressure_urgent: recompute is the cheaper mechanism"] == UNTESTED
    assert found["Avoid longest_remaining in any scenario"] == UNTESTED


def test_decision_table_names_the_cheaper_mechanism() -> None:
    table = decision_table(made_up(oldest_checkpoint={"overhead_per_interrupt_ms": 3.0}))
    assert set(table["cheaper_mechanism"]) == {"recompute"}


# The optimum beside the policies.


def test_no_policy_beats_the_optimum() -> None:
    policies = ("no_preemption", "oldest_checkpoint", "oldest_recompute", "oldest_pause")
    rows = [row for workload in ("high_resume_prob", "kv_pressure_urgent")
            for seed in contested_seeds(workload, 1)
            for row in OptimumCase(workload, seed, policies).run()]  # fmt: skip
    table = optimum_table(rows)
    assert (table["floor_ttft_ms"] <= table["optimum_ttft_ms"] + 1e-9).all()
    assert (table["optimum_ttft_ms"] <= table["optimum_in_time_ttft_ms"] + 1e-9).all()
    assert (table["optimum_in_time_ttft_ms"] <= table["ttft_ms"] + 1e-9).all()
    waits = table.set_index("policy").groupby(level=0)["ttft_ms"].mean()
    assert waits["oldest_pause"] < waits["no_preemption"]
    assert (distance_table(table)["ttft_over_optimum"] >= 1).all()


# Running, resuming, and the command.


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Case("high_resume_prob", policy, 0, requests=20) for policy in ("no_preemption", "oldest_checkpoint")]
    calls: list[str] = []
    real = Case.run

    def counted(self: Case) -> list[dict[str, Any]]:
        calls.append(self.policy)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self)

    monkeypatch.setattr(Case, "run", counted)
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks, tmp_path)
    rows = run_tasks(tasks, tmp_path)
    assert calls == ["no_preemption", "oldest_checkpoint", "oldest_checkpoint"]
    assert rows == {task: real(task) for task in tasks}


def test_rows_of_other_code_or_broken_files_are_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Case("high_resume_prob", "no_preemption", 0, requests=20)
    expected = run_tasks([task], tmp_path)[task]
    file = tmp_path / f"{task.key}.json"
    stored = json.loads(file.read_text())
    for text in ("{", json.dumps(stored | {"rows": 3}), json.dumps(stored | {"fingerprint": "x", "rows": []})):
        file.write_text(text)
        assert run_tasks([task], tmp_path)[task] == expected
    monkeypatch.setattr(runner, "_code", lambda: b"other")
    file.write_text(json.dumps(stored | {"rows": []}))
    assert run_tasks([task], tmp_path)[task] == expected


def test_two_processes_find_the_same_as_one(tmp_path: Path) -> None:
    tasks = [Case("high_resume_prob", "oldest_checkpoint", seed, requests=20) for seed in range(3)]
    assert run_tasks(tasks, tmp_path / "a", workers=2) == run_tasks(tasks, tmp_path / "b", workers=1)


def test_the_command_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", "preemption", "--workloads", "high_resume_prob,long-decode-tail", "--policies",
            "no_preemption,oldest_checkpoint,oldest_recompute", "--seeds", "2", "--requests", "30", "--optimum-cases",
            "1", "--workers", "1", "--quiet", "--out", str(tmp_path), "--json", str(tmp_path / "r.json")]  # fmt: skip
    assert main(argv) == 0
    assert "direction only" in capsys.readouterr().out or "undecided" in (tmp_path / "claims.csv").read_text()
    tables = ("summary", "decision_map", "breakeven_analysis", "fairness_analysis", "fairness_summary",
              "operational_recommendations", "claims", "optimum", "optimum_distance")  # fmt: skip
    for name in tables:
        assert len(pd.read_csv(tmp_path / f"{name}.csv"))
    plots = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert plots == [
        "01_urgent_ttft_p95.png", "02_preemption_overhead.png", "03_slo_by_urgency.png", "04_value_score.png",
        "05_tradeoff.png", "06_breakeven.png", "07_fairness.png", "08_operational_recs.png",
        "09_fairness_summary.png", "10_optimum.png",
    ]  # fmt: skip
    report = (tmp_path / "report.md").read_text()
    assert "Claims of the original benchmark" in report and "not tested" in report
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["schema_version"] == 1 and len(data["claims"]) == len(pd.read_csv(tmp_path / "claims.csv"))
    first = (tmp_path / "cases" / "high_resume_prob--no_preemption--0.json").stat().st_mtime_ns
    assert main([*argv, "--no-plots"]) == 0
    assert (tmp_path / "cases" / "high_resume_prob--no_preemption--0.json").stat().st_mtime_ns == first


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--workloads", "high_resume"], "did you mean 'high_resume_prob'"),
        (["--policies", "oldest"], "unknown name 'oldest'"),
        (["--policies", ","], "must name at least one"),
        (["--cost-model", "linear/none"], "no such file"),
        (["--seeds", "0"], "integer >= 1"),
    ],
)
def test_bad_input_is_one_line(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "preemption", *argv]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["bench", "preemption", "--out", str(tmp_path / "file" / "x")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
