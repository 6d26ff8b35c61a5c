"""Tables of requests and batches, from runs and from batches."""

import io

import pandas as pd
import pytest
from hypothesis import given, settings

from sim.engine import simulate
from sim.errors import InputError
from sim.instance import Instance, Request, load_instance
from sim.tables import batches_table, requests_table, table_bytes
from tests.sim.strategies import instances


@given(instances())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_same_tables_from_runs_and_batches(instance: Instance) -> None:
    event, step = (simulate(instance, "sarathi", engine=engine) for engine in ("event", "step"))
    pd.testing.assert_frame_equal(requests_table(event), requests_table(step))
    pd.testing.assert_frame_equal(batches_table(event), batches_table(step))


def test_batches_add_up() -> None:
    run = simulate(load_instance("paper-7.2-i0032"), "vllm")
    table = batches_table(run)
    assert len(table) == len(run.replay.records)
    assert table["end_ms"].iloc[-1] == pytest.approx(run.replay.makespan_ms)
    assert table["tokens"].sum() == 4 * (32 + 3) + sum(run.replay.refilled_tokens)
    assert list(table["kv_tokens"]) == [r.kv_tokens for r in run.replay.records]
    assert table["preempted"].sum() == sum(run.replay.preemptions)


def test_requests_say_what_became_of_them() -> None:
    instance = Instance((Request(4, 3), Request(40, 1), Request(9, 1)), 20, 8)
    table = requests_table(simulate(instance, "vllm"))
    assert list(table["state"]) == ["completed", "infeasible", "stalled"]
    assert table["ttft_ms"].isna().tolist() == [False, True, True]


def test_files_are_read_back() -> None:
    table = requests_table(simulate(load_instance("paper-7.2-i0032"), "vllm"))
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(table_bytes(table, "a.parquet"))), table)
    assert len(pd.read_csv(io.BytesIO(table_bytes(table, "a.csv")))) == len(table)
    with pytest.raises(InputError):
        table_bytes(table, "a.xlsx")
