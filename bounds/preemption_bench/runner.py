"""All cases: in parallel, with progress, and going on where an interrupted run stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import sim
from bounds.cli_options import write_json
from bounds.preemption_bench.cases import Case, run_case
from sim.cost.model import load_cost_model

Row = dict[str, Any]


def _code() -> bytes:
    """Digest of the code a row depends on."""
    here = Path(__file__).parent
    files = [*(file for folder in sim.__path__ for file in Path(folder).rglob("*.py")), here / "cases.py",
             here / "floors.py"]  # fmt: skip
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).digest()


def _mark(case: Case, code: bytes) -> str:
    """Fingerprint of a stored row: the code, the case and its cost model. A row with another one is not reused."""
    digest = hashlib.sha256(code)
    digest.update(json.dumps(dataclasses.asdict(case), sort_keys=True).encode())
    digest.update(json.dumps(load_cost_model(case.cost_model).to_dict(), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def run_cases(
    cases: Sequence[Case], folder: Path, *, workers: int = 1, progress: Callable[[int, int, str], None] | None = None
) -> list[Row]:
    """Rows of all cases, in their order.

    Parameters
    ----------
    folder
        Where each row is stored as soon as it is there, one file a case; rows stored by an earlier run are reused.
    progress
        Called with (done, of how many, name of the last case).
    """
    from joblib import Parallel, delayed

    folder.mkdir(parents=True, exist_ok=True)
    code = _code()
    marks = {case: _mark(case, code) for case in cases}
    rows = {case: row for case in cases if (row := _stored(folder / f"{case.key}.json", marks[case])) is not None}
    report = progress or (lambda done, total, name: None)
    report(len(rows), len(cases), "")
    # The slowest first, so that no worker is left with a long one at the end.
    missing = sorted((c for c in cases if c not in rows), key=lambda c: c.workload != "kv_pressure_urgent")
    results: Iterable[tuple[Case, Row]]
    if workers == 1:
        results = ((case, run_case(case)) for case in missing)
    else:
        parallel = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)
        results = parallel(delayed(_with_case)(case) for case in missing)
    for case, row in results:
        write_json({"schema_version": 1, "fingerprint": marks[case], "row": row}, str(folder / f"{case.key}.json"))
        rows[case] = row
        report(len(rows), len(cases), case.key)
    return [rows[case] for case in cases]


def _with_case(case: Case) -> tuple[Case, Row]:
    return case, run_case(case)


def _stored(file: Path, mark: str) -> Row | None:
    """The row in a file, if it is whole and of this very case; else it is computed again."""
    try:
        data = json.loads(file.read_text("utf-8"))
        row = data["row"]
        return row if data["fingerprint"] == mark and isinstance(row, dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
