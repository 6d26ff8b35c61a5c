"""``servebound diagnose``: the page answers every question, and the certified numbers hang together."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from bounds.cli import main
from bounds.diagnose import diagnose
from bounds.diagnose_report import page, plot_diagnosis
from sim.instance import Instance, Request, load_instance


@pytest.fixture(scope="module")
def loaded() -> Instance:
    """Twelve requests in a memory for about four, one of which can never fit."""
    requests = (*tuple(Request(40 + 7 * i % 50, 12 + 5 * i % 20) for i in range(12)), Request(390, 20))
    return Instance(requests, 400, 4096, name="twelve")


def test_numbers_hang_together(loaded: Instance) -> None:
    d = diagnose(loaded, "sarathi_cs", time_limit_s=5)
    assert d.infeasible == ("12",)
    assert len(d.instance.requests) == 12
    assert d.lower_bound.value_ms <= d.best_ms <= d.makespan_ms
    assert d.most_to_save == pytest.approx(1 - d.lower_bound.value_ms / d.makespan_ms)
    assert {v.group for v in d.variants} >= {"victim rule", "reservation", "watermark", "max_num_seqs"}
    for v in d.variants:
        assert v.makespan_ms is None or v.makespan_ms >= d.lower_bound.value_ms
    kv = next(w for w in d.what_ifs if w.what == "kv=2")
    assert kv.faster_at_most is not None and kv.makespan_ms is not None
    assert kv.makespan_ms >= (1 - kv.faster_at_most) * d.makespan_ms - 1e-9
    text = page(d)
    assert text.count("?") >= 6
    assert "No: 1 can never fit" in text
    assert len(text.splitlines()) < 60


def test_scheduler_that_stalls_claims_nothing() -> None:
    """The paper's vLLM never starts a prompt longer than C, so its makespan says nothing about savings."""
    d = diagnose(Instance((Request(5, 4), Request(30, 4)), 100, 16), "vllm", time_limit_s=2)
    assert d.stalled == 1
    assert d.most_to_save is None
    assert "Unknown" in page(d)
    assert all(w.faster_at_most is None for w in d.what_ifs)


def test_figure(loaded: Instance) -> None:
    d = diagnose(load_instance("het8-00"), "sarathi_cs", time_limit_s=2)
    ax = plot_diagnosis(d)
    assert ax.get_xlabel() == "makespan (s)"
    names = {text.get_text() for text in ax.get_yticklabels()}
    assert {"sarathi_cs", "sarathi_cs_srf", "sarathi_cs_pf"} <= names


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "d.json"
    words = ["diagnose", "het8-00", "--quiet", "--time-limit", "2", "--json", str(target), "--plots", str(tmp_path)]
    assert main(words) == 0
    assert "How much can scheduling save at all?" in capsys.readouterr().out
    data = json.loads(target.read_text())
    assert data["lower_bound_ms"] <= data["best_schedule_ms"] <= data["makespan_ms"]
    assert (tmp_path / "het8-00-diagnosis.png").stat().st_size > 10_000
    assert main(["diagnose", "het8-00", "--scheduler", "vlm"]) == 2


def test_time_limit_and_stop_leave_out_simulations(loaded: Instance) -> None:
    """What was not simulated is named; what is certified stands."""
    whole = diagnose(loaded, "sarathi_cs", time_limit_s=5)
    stop = threading.Event()

    def tell(text: str) -> None:
        if text.endswith("_nrf"):
            stop.set()

    for d in (diagnose(loaded, "sarathi_cs", time_limit_s=1e-6),
              diagnose(loaded, "sarathi_cs", time_limit_s=5, tell=tell, stop=stop)):  # fmt: skip
        assert not whole.skipped and d.skipped
        assert len(d.variants) + len(d.skipped) == len(whole.variants) + len(whole.what_ifs) + 1
        assert d.swap is None and all(w.makespan_ms is None and w.lower_bound_ms > 0 for w in d.what_ifs)
        assert d.lower_bound.value_ms <= d.best_ms <= d.makespan_ms
        assert d.to_dict()["skipped"] == list(d.skipped)
        assert f"Not simulated, time was over: {d.skipped[0]}" in page(d)
    assert d.variants
