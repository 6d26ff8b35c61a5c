"""The schedulers repeat reference runs of the real ones, one test case per run.

Where the full reference runs lie beside the repository they are used; the excerpts in tests/data otherwise.
"""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest

from sim.conformance import Record, check, read_records
from sim.errors import InputError

ROOT = Path(__file__).parents[2]
EXCERPTS = ROOT / "tests" / "data" / "conformance"
FULL = ROOT.parent / "shared" / "reference"
MOST_ENTRIES = 100_000
"""Of larger runs of the grids every fourth is taken; ``servebound conformance`` does them all."""


def _entries(record: Record) -> float:
    return float(record.data["n_batches"]) * float(record.data["batch_size_mean"])


def _runs() -> list[Record]:
    if not FULL.is_dir():
        return [r for name in ("engine", "simulator") for r in read_records(EXCERPTS / f"{name}.jsonl.gz")]
    runs = [r for file in sorted((FULL / "vllm").glob("*.jsonl.gz")) for r in read_records(file)]
    runs += [r for name in ("s72", "hetero") for r in read_records(FULL / "infermax" / f"{name}.jsonl.gz")]
    grids = [r for name in ("grid1", "grid2") for r in read_records(FULL / "infermax" / f"{name}.jsonl.gz")]
    small = [r for r in grids if _entries(r) <= MOST_ENTRIES]
    return runs + small + [r for r in grids if _entries(r) > MOST_ENTRIES][::4]


def _name(record: Record) -> str:
    return f"{Path(record.source).name.split('.jsonl')[0]}:{record.name}"


@pytest.mark.parametrize("record", _runs(), ids=_name)
def test_repeats_reference_run(record: Record) -> None:
    outcome = check(record)
    assert outcome.matched, f"{outcome.scheduler}: {outcome.difference or outcome.skipped}"


def _excerpt(form: str, name: str) -> dict[str, object]:
    return dict(next(r for r in read_records(EXCERPTS / f"{form}.jsonl.gz") if name in r.name).data)


ENGINE_CHANGES = {
    "scheduled": lambda step: step["scheduled"].reverse(),
    "preempted": lambda step: step["preempted"].append("0"),
    "blocks_used": lambda step: step.update(blocks_used=step["blocks_used"] + 1),
    "waiting": lambda step: step["waiting"].append("7"),
    "running": lambda step: step["running"].reverse(),
    "finished": lambda step: step["finished"].append("3"),
}


@pytest.mark.parametrize("key", ENGINE_CHANGES)
def test_engine_difference_names_step_and_both_sides(key: str) -> None:
    data = _excerpt("engine", "A_paper_I01_ck")
    step = data["steps"][1]  # type: ignore[index]
    ENGINE_CHANGES[key](step)
    outcome = check(Record(data, "changed", "engine"))
    assert outcome.difference is not None
    assert (outcome.difference.where, outcome.difference.what) == ("step 1", key)
    assert outcome.difference.expected == step[key] != outcome.difference.got


@pytest.mark.parametrize("key", ["n_batches", "n_preemptions", "kv_evicted", "sum_c"])
def test_simulator_difference_names_the_total(key: str) -> None:
    data = _excerpt("simulator", "hetero-vllm_srf")
    data[key] += 1  # type: ignore[operator]
    outcome = check(Record(data, "changed", "simulator"))
    assert outcome.difference is not None
    assert (outcome.difference.where, outcome.difference.what) == ("totals", key)


@pytest.mark.parametrize("makespan_s", [1.0, math.nan])
def test_makespan_must_agree(makespan_s: float) -> None:
    data = _excerpt("simulator", "grid2-vllm-")
    data["linear_only"] = {"makespan_s": makespan_s}
    outcome = check(Record(data, "changed", "simulator"))
    assert outcome.difference is not None
    assert outcome.difference.what == "makespan_s"


@pytest.mark.parametrize("key", ["reqs", "evicted", "alloc"])
def test_recorded_batches_are_compared(key: str) -> None:
    data = _excerpt("simulator", "s72-sarathi-4x1-4")
    batch = data["schedule"][1]  # type: ignore[index]
    batch[key] = 99 if key == "alloc" else batch[key][:-1]
    outcome = check(Record(data, "changed", "simulator"))
    assert outcome.difference is not None
    assert (outcome.difference.where, outcome.difference.what) == ("batch 1", key)


def test_stalled_runs_are_reported_as_such() -> None:
    runs = [r for r in read_records(EXCERPTS / "engine.jsonl.gz") if r.name.startswith("L_")]
    notes = {(r.data["engine"], r.name): check(r).note for r in runs}
    assert notes["v1", "L_growth_larger_than_kv_ck"] == "stalled; can never fit: request 0"
    assert notes["v0", "L_prompt_larger_than_kv_nock"] == "completed; can never fit: request 1"


def test_another_scheduler_differs() -> None:
    record = Record(_excerpt("engine", "A_paper_I02_nock"), "x", "engine")
    assert not check(record, "vllm-v1-0.33:enable_chunked_prefill=off:max_num_seqs=1").matched


BROKEN = {
    "empty": b"",
    "blank-lines": b"\n \n",
    "no-json": b"not json\n",
    "no-mapping": b"[1, 2]\n",
    "neither-format": b'{"name": "x"}\n',
    "not-utf8": b"\xff\xfe{}\n",
    "cut-gzip": gzip.compress(b'{"name": "x"}\n' * 100)[:40],
    "no-gzip": b"\x1f\x8b not gzip",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_unreadable_files(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_bytes(BROKEN[kind])
    with pytest.raises(InputError) as caught:
        list(read_records(file))
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        list(read_records(tmp_path / "none.jsonl"))


@pytest.mark.parametrize("form", ["engine", "simulator"])
def test_broken_records(form: str, tmp_path: Path) -> None:
    name = "A_paper_I01_ck" if form == "engine" else "s72-vllm-4x1-4"
    whole = _excerpt(form, name)
    needed = ("config", "requests", "engine") if form == "engine" else ("M", "N", "model", "n_preemptions")
    for key in needed:
        for value in (None, "x", -1, {}, [[]]):
            broken = json.loads(json.dumps(whole)) | {key: value}
            try:
                outcome = check(Record(broken, "f:1", form))
            except InputError as error:
                assert str(error).startswith("f:1: ")
                assert "\n" not in str(error)
            else:
                assert not outcome.matched
