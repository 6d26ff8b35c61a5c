"""Measure the cells of claims in parallel; finished cells are kept, so that a run can be resumed.

Execution is joblib's: local processes by default, an existing Dask or Ray cluster with one option. Each cell is written
by the coordinating process as it arrives, so killed workers lose only the cells they were at.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bounds.claims import Cell, Effort, Row, Verdict, load_claim
from bounds.cli_options import write_text
from bounds.reproduce.source import engine_fingerprint, measuring_source
from sim.errors import InputError

_BLOCK = 4
"""Cells a worker where results come in blocks."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The rows of one cell.

    Parameters
    ----------
    claim, cell
        What was measured.
    seconds, cpu_seconds
        Time it took, when it was first measured.
    """

    claim: str
    cell: Cell
    rows: list[Row]
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A claim's verdicts with the time its cells took."""

    claim: str
    verdicts: list[Verdict]
    rows: list[Row]
    seconds: float
    cpu_seconds: float
    cells: int


def measure(claim: str, cell: dict[str, Any]) -> Measured:
    """Measure one cell; runs in any process that can import this package.

    Raises
    ------
    RuntimeError
        If a request was left unfinished or a schedule is quicker than its lower bound: then no figure means anything.
    """
    began, cpu = time.perf_counter(), time.process_time()
    rows = load_claim(claim).measure(**cell)
    for row in rows:
        _check(row, f"{claim} {cell}")
    return Measured(claim, cell, rows, time.perf_counter() - began, time.process_time() - cpu)


def _check(row: Row, where: str) -> None:
    if row.get("stalled"):
        raise RuntimeError(f"{where}: {row['stalled']} requests were never finished")
    lower = row.get("lower_bound_ms")
    for key in ("makespan_ms", "plan_ms"):
        if lower is not None and row.get(key) is not None and row[key] < lower * (1 - 1e-12):
            raise RuntimeError(f"{where}: {key} = {row[key]} is below the lower bound {lower}")


def run(
    claims: Sequence[str],
    effort: Effort,
    folder: Path,
    *,
    workers: int = 1,
    cluster: str | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, word: None,
) -> list[Outcome]:
    """Measure what is not yet on disk, then judge.

    Parameters
    ----------
    claims
        Names in `bounds.claims`.
    folder
        Finished cells are kept in its sub-folder ``cells``.
    workers
        Local processes; a cluster uses its own workers.
    cluster
        "dask", "dask:ADDRESS", "ray" or "ray:ADDRESS"; None for local processes.
    progress
        Called with (cells done, cells in all, what was just done).

    Raises
    ------
    sim.errors.InputError
        If the folder cannot be written or the cluster's package is not installed.
    """
    wanted = [(claim, dict(cell)) for claim in claims for cell in load_claim(claim).cells(effort)]
    store = _Store(folder / "cells")
    done: dict[str, Measured] = {}
    for claim, cell in wanted:
        kept = store.read(claim, cell)
        if kept is not None:
            done[store.key(claim, cell)] = kept
    todo = [(claim, cell) for claim, cell in wanted if store.key(claim, cell) not in done]
    progress(len(done), len(wanted), f"{len(done)} cells kept from before")
    for measured in _parallel(todo, workers, cluster):
        store.write(measured)
        done[store.key(measured.claim, measured.cell)] = measured
        progress(len(done), len(wanted), measured.claim)
    outcomes = []
    for claim in claims:
        parts = [done[store.key(claim, cell)] for name, cell in wanted if name == claim]
        rows = [row for part in parts for row in part.rows]
        outcomes.append(Outcome(claim, load_claim(claim).judge(rows), rows, sum(part.seconds for part in parts),
                                sum(part.cpu_seconds for part in parts), len(parts)))  # fmt: skip
    return outcomes


def _parallel(todo: list[tuple[str, dict[str, Any]]], workers: int, cluster: str | None) -> Iterator[Measured]:
    if not todo:
        return
    if cluster is None and workers == 1:
        yield from (measure(claim, cell) for claim, cell in todo)
        return
    import joblib

    jobs = [joblib.delayed(measure)(claim, cell) for claim, cell in todo]
    with _backend(cluster, workers):
        if cluster is not None and cluster.startswith("ray"):
            # Its backend cannot hand results over one by one, so cells go in blocks: an interruption loses one block.
            block = _BLOCK * joblib.effective_n_jobs()
            for first in range(0, len(jobs), block):
                yield from joblib.Parallel(batch_size=1)(jobs[first : first + block])
        else:
            yield from joblib.Parallel(return_as="generator_unordered", pre_dispatch="all", batch_size=1)(jobs)


@contextlib.contextmanager
def _backend(cluster: str | None, workers: int) -> Iterator[None]:
    import joblib

    if cluster is None:
        with joblib.parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
            yield
        return
    kind, _, address = cluster.partition(":")
    if kind == "dask":
        distributed = _optional("distributed", "dask")
        with distributed.Client(address or None), joblib.parallel_config(backend="dask", n_jobs=-1):
            yield
    elif kind == "ray":
        ray = _optional("ray", "ray")
        ray.init(address=address or None, ignore_reinit_error=True)
        _optional("ray.util.joblib", "ray").register_ray()
        with joblib.parallel_config(backend="ray", n_jobs=-1):
            yield
    else:
        raise InputError("must be dask, dask:ADDRESS, ray or ray:ADDRESS", field="--cluster", value=cluster)


def _optional(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"needs the optional extra: pip install 'servebound[{extra}]'", field="--cluster",
                         value=extra) from None  # fmt: skip


class _Store:
    """Finished cells as small JSON files named after claim, cell and the source text they rest on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources: dict[str, str] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", source=str(folder)) from None

    def key(self, claim: str, cell: Cell) -> str:
        if claim not in self.sources:
            self.sources[claim] = engine_fingerprint() + measuring_source(claim)
        text = json.dumps([claim, cell, self.sources[claim]], sort_keys=True)
        return f"{claim}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def read(self, claim: str, cell: Cell) -> Measured | None:
        path = self.folder / f"{self.key(claim, cell)}.json"
        try:
            data = json.loads(path.read_text("utf-8"))
            return Measured(data["claim"], data["cell"], data["rows"], data["seconds"], data["cpu_seconds"])
        except (OSError, ValueError, KeyError):
            return None

    def write(self, measured: Measured) -> None:
        data = {"schema_version": 1, "claim": measured.claim, "cell": measured.cell, "seconds": measured.seconds,
                "cpu_seconds": measured.cpu_seconds, "rows": measured.rows}  # fmt: skip
        write_text(json.dumps(data, indent=1), self.folder / f"{self.key(measured.claim, measured.cell)}.json")
