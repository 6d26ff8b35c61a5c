"""Timelines: valid trace events that tell the schedule's story, the same from runs and from batches."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings

from sim.engine import simulate
from sim.instance import Instance, load_instance
from sim.timeline import timeline, timeline_json
from tests.sim.strategies import instances


def test_the_file_is_the_trace_format() -> None:
    run = simulate(load_instance("paper-7.2-i0032"), "vllm")
    data = json.loads(timeline_json([run, run]))
    events = data["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "i", "C"}
    assert {e["pid"] for e in events} == {1, 2, 3, 4}
    for event in events:
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or (event["dur"] > 0 and isinstance(event["tid"], int))
    assert sum(e["ph"] == "i" for e in events) == 2 * sum(run.replay.preemptions)
    end = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    assert end == pytest.approx(run.replay.makespan_ms * 1000)


@pytest.mark.parametrize("name", ["vllm", "vllm_hy", "sarathi_srf"])
@given(instances())
@settings(deadline=None, derandomize=True, max_examples=25)
def test_tracks_have_no_overlaps_and_cover_each_request(name: str, instance: Instance) -> None:
    run = simulate(instance, name)
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in timeline(run):
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    for (process, thread), slices in tracks.items():
        slices.sort(key=lambda e: e["ts"])
        for one, next_one in pairwise(slices):
            assert one["ts"] + one["dur"] <= next_one["ts"] + 1e-6
        finished = process == 2 and run.replay.completed_ticks[thread] is not None
        if finished:
            took = sum(e["dur"] for e in slices)
            assert took == pytest.approx((run.replay.e2e_ticks()[thread] or 0) / 1e8, abs=1e-3)
    assert story(run.replay.instance, name, "event") == story(run.replay.instance, name, "step")


def story(instance: Instance, name: str, engine: Any) -> dict[int, float]:
    """Time spent filling per request."""
    spent: dict[int, float] = defaultdict(float)
    for event in timeline(simulate(instance, name, engine=engine)):
        if event["ph"] == "X" and event["pid"] == 2 and event["name"] in ("prefill", "refill"):
            spent[event["tid"]] += event["dur"]
    return {i: round(t, 3) for i, t in spent.items()}
