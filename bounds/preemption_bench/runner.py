"""All cases: in parallel, with progress, and going on where an interrupted run stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import csp
import sim
from bounds.cli_options import write_json
from bounds.preemption_bench.cases import Case
from bounds.preemption_bench.optimum import OptimumCase
from sim.cost.model import load_cost_model

Task = Case | OptimumCase
Rows = list[dict[str, Any]]


def run_tasks(
    tasks: Sequence[Task], folder: Path, *, workers: int = 1, progress: Callable[[int, int, str], None] | None = None
) -> dict[Task, Rows]:
    """Rows of each task, in the tasks' order.

    Parameters
    ----------
    folder
        Where each task's rows are stored as soon as they are there; what an earlier run stored is reused.
    progress
        Called with (done, of how many, name of the last one).
    """
    from joblib import Parallel, delayed

    folder.mkdir(parents=True, exist_ok=True)
    code = _code()
    marks = {task: _mark(task, code) for task in tasks}
    found = {task: rows for task in tasks if (rows := _stored(folder / f"{task.key}.json", marks[task])) is not None}
    report = progress or (lambda done, total, name: None)
    report(len(found), len(tasks), "")
    # The slowest first, so that no worker is left with a long one at the end.
    missing = sorted((t for t in tasks if t not in found), key=lambda t: t.workload != "kv_pressure_urgent")
    results: Iterable[tuple[Task, Rows]]
    if workers == 1 or len(missing) < 2:
        results = ((task, task.run()) for task in missing)
    else:
        parallel = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)
        results = parallel(delayed(_run)(task) for task in missing)
    for task, rows in results:
        write_json({"schema_version": 1, "fingerprint": marks[task], "rows": rows}, str(folder / f"{task.key}.json"))
        found[task] = rows
        report(len(found), len(tasks), task.key)
    return {task: found[task] for task in tasks}


def _run(task: Task) -> tuple[Task, Rows]:
    return task, task.run()


def _code() -> bytes:
    """Digest of the code that rows depend on."""
    here = Path(__file__).parent
    files = [*(file for folder in sim.__path__ for file in Path(folder).rglob("*.py")),
             *(Path(folder) / "urgent.py" for folder in csp.__path__),
             *(here / name for name in ("cases.py", "floors.py", "optimum.py"))]  # fmt: skip
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).digest()


def _mark(task: Task, code: bytes) -> str:
    """Fingerprint of stored rows: the code, the task and its cost model. Rows with another one are not reused."""
    digest = hashlib.sha256(code)
    digest.update(json.dumps(dataclasses.asdict(task), sort_keys=True).encode())
    digest.update(json.dumps(load_cost_model(task.cost_model).to_dict(), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _stored(file: Path, mark: str) -> Rows | None:
    """The rows in a file, if it is whole and of this very task; else they are computed again."""
    try:
        data = json.loads(file.read_text("utf-8"))
        rows = data["rows"]
        whole = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
        return rows if data["fingerprint"] == mark and whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
