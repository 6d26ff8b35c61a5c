"""CBC, bundled with PuLP: reads the program as MPS; reports no dual bound, so only a finished run proves anything."""

from __future__ import annotations

import contextlib
import importlib
import re
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from csp.export import mps_text
from csp.formulations import Formulated
from csp.program import Program
from csp.result import Status
from csp.solvers import Answer, Control, Problem, Ticks
from csp.solvers._floating import TOLERANCE, rounded, unscaled
from csp.solvers._threads import run_watched
from sim.errors import InputError


def run(problem: Problem, control: Control) -> Answer:
    """Solve a problem's integer program with CBC."""
    pulp = import_pulp()
    formulated = problem.build(control)
    with tempfile.TemporaryDirectory(prefix="servebound-") as folder:
        file = Path(folder) / "program.mps"
        unit_ticks = formulated.program.float_unit_ticks
        file.write_text(mps_text(formulated.program, unit_ticks=unit_ticks), "utf-8")
        columns, lp = pulp.LpProblem.fromMPS(str(file))
    hint = None if problem.incumbent is None else formulated.encode(problem.incumbent)
    solver = _command(control, warm=hint is not None)
    if hint is not None:
        for name, value in zip(formulated.program.names, hint, strict=False):
            if name in columns:
                columns[name].setInitialValue(value, check=False)
    run_watched(lambda: lp.solve(solver), solver.halt, control)
    return _answer(formulated, lp, columns, solver.log, pulp)


def import_pulp() -> Any:
    """Import PuLP without letting it load highspy for the whole process.

    PuLP 3.3 loads highspy's library with global symbols, and OR-Tools' own HiGHS then crashes in the same process.
    """
    missing = object()
    before: Any = sys.modules.get("highspy", missing)
    sys.modules["highspy"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("pulp")
    finally:
        if before is missing:
            del sys.modules["highspy"]
        else:
            sys.modules["highspy"] = before


def _command(control: Control, *, warm: bool) -> Any:
    """PuLP's CBC command with its process in reach, so that it can be interrupted, and its log kept."""
    pulp = import_pulp()

    class Cbc(pulp.COIN_CMD):  # type: ignore[misc, name-defined]
        process: subprocess.Popen[str] | None = None
        log = ""
        halted = False

        def halt(self) -> None:
            self.halted = True
            if self.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGINT)

        def solve_CBC(self, lp: Any, use_mps: bool = True) -> Any:
            mps, solution, start = self.create_tmp_files(lp.name, "mps", "sol", "mst")
            columns, variable_names, row_names, _ = lp.writeMPS(mps, rename=1)
            words = [self.path, mps]
            if warm:
                self.writesol(start, lp, columns, variable_names, row_names)
                words += ["-mips", start]
            if control.remaining_s is not None:
                words += ["-sec", str(max(0.01, control.remaining_s))]
            words += ["-ratio", "0", "-allow", "0", "-threads", str(control.workers), "-randomCbcSeed",
                      str(control.seed), "-timeMode", "elapsed", "-solve", "-printingOptions", "all", "-solution",
                      solution]  # fmt: skip
            if not self.halted:
                self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                                stdin=subprocess.DEVNULL)  # fmt: skip
                self.log = self.process.communicate()[0]
            if Path(solution).exists():
                status, values, _, _, _, found = self.readsol_MPS(solution, lp, columns, variable_names, row_names)
                lp.assignVarsVals(values)
                lp.assignStatus(status, found)
            else:
                lp.assignStatus(pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound)
            self.delete_tmp_files(mps, solution, start)
            return lp.status

    bundled = Path(pulp.apis.coin_api.pulp_cbc_path)
    command = Cbc(msg=False, path=str(bundled) if bundled.is_file() else None)
    if not command.available():
        raise InputError("needs the cbc program, which this PuLP does not bring", field="solver", value="cbc")
    return command


def _answer(formulated: Formulated, lp: Any, columns: dict[str, Any], log: str, pulp: Any) -> Answer:
    """Trust only ``sol_status``: after a time limit ``status`` says optimal for an unproved schedule."""
    program = formulated.program
    proven = lp.sol_status == pulp.LpSolutionOptimal
    schedule = value = bound = None
    status: Status = "UNKNOWN"
    if lp.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        values = rounded(program, [_value(columns.get(name)) for name in program.names])
        schedule, value = formulated.decode(values), program.worth(program.objective_value(values))
        status = "OPTIMAL" if proven else "FEASIBLE"
        bound = value if proven else _logged_bound(program, log)
    elif lp.sol_status == pulp.LpSolutionInfeasible:
        status = "INFEASIBLE"
    return Answer(status, schedule, value, bound, formulated.exact, formulated.exact_reason,
                  f"cbc (pulp {version('pulp')})", TOLERANCE)  # fmt: skip


def _value(column: Any) -> float:
    return 0.0 if column is None or column.varValue is None else float(column.varValue)


def _logged_bound(program: Program, log: str) -> Ticks | None:
    """The bound CBC prints after a limit; its solution file has none."""
    found = re.findall(r"^Lower bound:\s+(\S+)", log, re.MULTILINE)
    return unscaled(program, float(found[-1])) if found else None
