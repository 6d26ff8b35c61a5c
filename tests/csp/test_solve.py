"""solve(): what it says, and when it stops."""

from __future__ import annotations

import itertools
import json
import threading
import time
from pathlib import Path

import pytest

from bounds.cli import main
from csp.conclude import SolverMismatch, check_claim
from csp.program import OutOfTime, Program
from csp.solve import solve
from csp.solvers import Answer, load_backend
from sim.errors import InputError
from sim.instance import Instance, Request, load_instance
from sim.registry import names
from sim.replay import Rules, replay

MAKESPAN_SOLVERS = [name for name in names("csp.solvers") if name != "rounds"]
TWO = Instance((Request(3, 2), Request(2, 3)), 5)


@pytest.mark.parametrize("solver", MAKESPAN_SOLVERS)
@pytest.mark.parametrize("name", ["het32-00", "uniform-1024x32-32-m1000"])
def test_a_second_is_enough_for_a_schedule_and_a_bound(name: str, solver: str) -> None:
    instance = load_instance(name)
    result = solve(instance, solver=solver, time_limit_s=1)
    assert result.status == "FEASIBLE" and result.replay is not None
    again = replay(instance, result.replay.schedule)
    assert again.makespan_ticks == result.objective_ticks
    assert 0 < result.lower_bound_ticks <= result.objective_ticks


@pytest.mark.parametrize("solver", MAKESPAN_SOLVERS)
def test_stopping_returns_the_best_so_far(solver: str) -> None:
    stop = threading.Event()
    threading.Timer(1.0, stop.set).start()
    began = time.monotonic()
    result = solve(load_instance("het16-00"), solver=solver, stop=stop)
    assert time.monotonic() - began < 60
    assert result.replay is not None and result.lower_bound_ticks <= result.objective_ticks


def test_progress_only_improves() -> None:
    seen: list[tuple[int, int]] = []
    solve(load_instance("paper-7.2-i0016"), progress=lambda a, b: seen.append((a, b)))
    assert seen and all(b[0] <= a[0] and b[1] >= a[1] for a, b in itertools.pairwise(seen))
    assert seen[-1][1] <= seen[-1][0]


def test_a_better_warm_start_is_used_and_a_worse_one_is_not() -> None:
    best = solve(TWO)
    assert best.replay is not None
    again = solve(TWO, warm_start=best.replay)
    assert again.found_by == "warm start" and again.objective_ticks == best.objective_ticks


def test_prompt_too_long_to_fill_whole_is_infeasible() -> None:
    result = solve(Instance((Request(9, 2),), 20, 8), rules=Rules(chunking=False))
    assert (result.status, result.replay, result.lower_bound_ticks) == ("INFEASIBLE", None, result.lower_bound_ticks)
    assert "may not be split" in result.exact_reason


def test_request_that_never_fits_is_an_input_error() -> None:
    with pytest.raises(InputError, match="I \\+ O - 1"):
        solve(Instance((Request(9, 2),), 9))


def test_unknown_names_are_input_errors() -> None:
    for option in ("solver", "formulation", "objective"):
        with pytest.raises(InputError, match="unknown name 'nope'"):
            solve(TWO, **{option: "nope"})


def test_a_false_claim_is_refused() -> None:
    claim = Answer("OPTIMAL", None, 100, 100, True, "", "x")
    with pytest.raises(SolverMismatch):
        check_claim(claim, 101)
    with pytest.raises(SolverMismatch):
        check_claim(claim, 99)
    check_claim(claim, 100)


def test_a_false_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Liar:
        @staticmethod
        def run(problem, control):
            return Answer("FEASIBLE", None, None, 10**15, True, "", "liar")

    monkeypatch.setattr("csp.solve.load_backend", lambda name: Liar)
    with pytest.raises(SolverMismatch, match="exceeds"):
        solve(TWO)


@pytest.mark.parametrize("solver", MAKESPAN_SOLVERS)
def test_backends_describe_themselves(solver: str) -> None:
    assert callable(load_backend(solver).run)
    result = solve(TWO, solver=solver)
    assert result.solver == solver and result.solver_version.startswith(solver[:2])
    assert result.status == "OPTIMAL"


@pytest.mark.parametrize("form", names("csp.formulations"))
def test_heuristic_schedules_satisfy_the_program(form: str) -> None:
    """What encodes must satisfy every row, at the replayed objective."""
    from csp.solve import prepare
    from csp.warm import heuristic_schedules
    from sim.cost import load_cost_model

    cost = load_cost_model(TWO.cost_model)
    encoded = 0
    for chunks in (4096, 3):
        instance = TWO.replace(token_budget=chunks)
        for _, run in heuristic_schedules(instance, cost, Rules()):
            formulated = prepare(instance, formulation=form, warm_start=None).build()
            values = formulated.encode(run)
            if values is None:
                continue
            encoded += 1
            assert formulated.program.violated(values) in (None, f"start_{formulated.horizon - 1}")
            assert formulated.program.objective_value(values) == run.makespan_ticks
            assert replay(instance, formulated.decode(values)).makespan_ticks == run.makespan_ticks
    assert encoded


def test_command_writes_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    assert main(["solve", "paper-7.2-i0032", "--json", str(file), "--quiet", "--require-optimal"]) == 0
    data = json.loads(file.read_text())
    assert data["status"] == "OPTIMAL" and data["objective_ms"] == pytest.approx(60.181, abs=0.0006)
    assert data["lower_bound_ms"] == data["objective_ms"] and data["gap"] == 0 and data["exact"] is True
    assert "OPTIMAL" in capsys.readouterr().out
    assert main(["check", str(file), "paper-7.2-i0032"]) == 0


def test_command_says_when_the_optimum_is_not_proven(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["solve", "het16-00", "--time-limit", "1", "--quiet"]
    assert main(words) == 0
    assert main([*words, "--require-optimal"]) == 1
    assert "not proven optimal" in capsys.readouterr().err


def test_a_program_without_rows_stops_in_time_too() -> None:
    program = Program(out_of_time=lambda: len(program.names) > 1_000)
    with pytest.raises(OutOfTime):
        for j in range(10_000):
            program.variable(0, 1, f"x_{j}")
    assert len(program.names) < 2_000


def test_no_program_of_a_billion_batches() -> None:
    """An engine that is idle for hours could run as many: the program stays small and says so."""
    from csp.horizon import horizon
    from csp.solve import prepare

    apart = Instance(tuple(Request(5, 3, n * 10**15) for n in range(3)), 30)
    assert horizon(prepare(apart)) == (18, False)
    assert horizon(prepare(apart.replace(requests=(Request(5, 3),) * 3)))[1]
