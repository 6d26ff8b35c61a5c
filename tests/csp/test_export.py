"""Exported programs, read by another reader, have the same optimum."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bounds.cli import main
from csp.export import lp_text, mps_text
from csp.solve import prepare, solve
from csp.solvers.cbc import import_pulp
from sim.instance import Instance, Request
from tests.sim.cost_models import max_affine

SMALL = Instance((Request(3, 2), Request(2, 3)), 5)


def read_optimum(file: Path) -> float:
    """The cbc program reads both formats by itself."""
    cbc = import_pulp().apis.coin_api.pulp_cbc_path
    words = [cbc, str(file), "-ratio", "0", "-allow", "0", "-solve"]
    log = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    return float(re.findall(r"^Objective value:\s+(\S+)", log, re.MULTILINE)[-1])


@pytest.mark.parametrize("cost", [None, max_affine()], ids=["linear", "max-affine"])
@pytest.mark.parametrize("writer", [mps_text, lp_text])
def test_another_reader_finds_the_same_optimum(tmp_path: Path, writer, cost) -> None:
    expected = solve(SMALL, cost=cost)
    file = tmp_path / f"program.{'mps' if writer is mps_text else 'lp'}"
    file.write_text(writer(prepare(SMALL, cost=cost).build().program))
    assert read_optimum(file) == pytest.approx(expected.replay.makespan_ms, rel=1e-6)


def test_numbers_are_exact() -> None:
    program = prepare(Instance((Request(32, 4),) * 4, 64)).build().program
    assert "2.01042417664 fill" in lp_text(program)


@pytest.mark.parametrize("form", ["flow", "bigm"])
@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_command_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, kind: str) -> None:
    file = tmp_path / f"a.{kind}"
    words = ["export", "paper-7.2-i0004", "--formulation", form, "--format", kind, "--out", str(file)]
    assert main(words) == 0
    assert "variables" in capsys.readouterr().out
    assert file.read_text().splitlines()[0].endswith(f"{form}-paper-7.2-i0004")


def test_constant_and_two_sided_rows_survive(tmp_path: Path) -> None:
    program = prepare(SMALL).build().program
    program.objective_offset = 3 * 10**11
    program.row({0: 1, 1: 1, 2: 1}, 0, 2, "both")
    for writer, kind in ((mps_text, "mps"), (lp_text, "lp")):
        file = tmp_path / f"b.{kind}"
        file.write_text(writer(program))
        assert read_optimum(file) == pytest.approx(solve(SMALL).replay.makespan_ms + 3, rel=1e-6)
