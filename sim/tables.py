"""Runs as pandas tables, a row per request or per batch."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from sim.clock import TICKS_PER_MS
from sim.engine import Simulation
from sim.errors import InputError
from sim.metrics import batch_ends_ms, tpot_of_requests_ms
from sim.run_log import run_log

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".parquet", ".csv")


def requests_table(run: Simulation) -> pd.DataFrame:
    """A row per request: lengths, latencies (ms, missing where it never happened), preemptions, refilled tokens."""
    import pandas as pd

    replay = run.replay
    requests = replay.instance.requests
    state = np.full(len(requests), "completed", dtype=object)
    state[list(run.stalled)] = "stalled"
    state[list(run.infeasible)] = "infeasible"
    return pd.DataFrame({
        "scheduler": run.scheduler,
        "request": replay.instance.ids,
        "state": state,
        "priority": [r.priority for r in requests],
        "input_tokens": [r.input_tokens for r in requests],
        "output_tokens": [r.output_tokens for r in requests],
        "arrival_s": [r.arrival_s for r in requests],
        "ttft_ms": _column([None if t is None else t / TICKS_PER_MS for t in replay.ttft_ticks()]),
        "tpot_ms": _column(tpot_of_requests_ms(replay)),
        "e2e_ms": _column([None if t is None else t / TICKS_PER_MS for t in replay.e2e_ticks()]),
        "preemptions": replay.preemptions,
        "refilled_tokens": replay.refilled_tokens,
    })  # fmt: skip


def batches_table(run: Simulation) -> pd.DataFrame:
    """A row per batch: start and end (ms), prefills, decode steps, tokens, KVs after it, requests preempted in it."""
    import pandas as pd

    log = run_log(run.replay)
    repeat = [r.repeat for r in log.records]
    end_ms = batch_ends_ms(log)
    start_ms = np.empty_like(end_ms)
    start_ms[1:] = end_ms[:-1]
    place = (np.cumsum([0, *repeat])[:-1]).astype(np.int64)
    start_ms[place] = [r.start_ticks / TICKS_PER_MS for r in log.records]
    preempted = np.zeros(len(end_ms), np.int64)
    preempted[place] = [len(r.preempted) for r in log.records]
    number = np.arange(len(end_ms))
    tokens = np.repeat([r.features.tokens for r in log.records], repeat)
    after_first = np.repeat([r.kv_tokens for r in log.records], repeat)
    return pd.DataFrame({
        "scheduler": run.scheduler,
        "batch": number,
        "start_ms": start_ms,
        "end_ms": end_ms,
        "prefills": np.repeat([r.features.n_prefill for r in log.records], repeat),
        "decodes": np.repeat([r.features.n_decode for r in log.records], repeat),
        "tokens": tokens,
        "kv_tokens": after_first + tokens * (number - np.repeat(place, repeat)),
        "preempted": preempted,
    })  # fmt: skip


def _column(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def table_bytes(table: pd.DataFrame, path: str) -> bytes:
    """A table as the content of a .parquet or .csv file.

    Raises
    ------
    InputError
        For another suffix.
    """
    require_suffix(path)
    stream = io.BytesIO()
    if PurePath(path).suffix == ".csv":
        table.to_csv(stream, index=False)
    else:
        table.to_parquet(stream, index=False)
    return stream.getvalue()


def require_suffix(path: str | None) -> None:
    """Refuse a table file that is neither .parquet nor .csv."""
    if path is not None and PurePath(path).suffix not in SUFFIXES:
        raise InputError(f"must end in {' or '.join(SUFFIXES)}", field="table", value=path)
