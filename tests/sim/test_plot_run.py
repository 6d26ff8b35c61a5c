"""Figures of runs: labelled, with a line per run, and true to the run."""

import matplotlib
import pytest

from sim.engine import simulate
from sim.instance import load_instance

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from sim.plot_run import LATENCIES, plot_kv, plot_latency

RUNS = [simulate(load_instance("paper-7.2-i0032"), name) for name in ("vllm", "vllm_pf")]


def test_memory_over_time() -> None:
    ax = plot_kv(RUNS)
    first = ax.get_lines()[0]
    assert max(first.get_ydata()) == max(r.kv_tokens for r in RUNS[0].replay.records)
    assert max(first.get_xdata()) == pytest.approx(RUNS[0].replay.makespan_ms / 1000)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["vllm", "vllm_pf", "capacity M = 64"]
    assert "(s)" in ax.get_xlabel() and ax.get_ylabel()
    first, second = (line.get_linewidth() for line in ax.get_lines()[:2])
    assert first > second  # runs that coincide are both seen
    plt.close("all")


@pytest.mark.parametrize("latency", LATENCIES)
def test_latencies(latency: str) -> None:
    ax = plot_latency(RUNS, latency)
    line = ax.get_lines()[0]
    assert list(line.get_xdata()[1:]) == sorted(LATENCIES[latency](RUNS[0].replay))
    assert line.get_ydata()[0] == 0 and line.get_ydata()[-1] == 100
    assert "(ms)" in ax.get_xlabel() and len(ax.get_legend().get_texts()) == 2
    plt.close("all")
