"""The activity grid behind the figures, and that the figures draw."""

import matplotlib

matplotlib.use("Agg")

from sim.engine import simulate
from sim.instance import load_instance
from sim.plot import CODES, activity, schedule_figure


def test_activity_of_a_preempting_run() -> None:
    run = simulate(load_instance("paper-7.2-i0032"), "vllm")
    grid = activity(run.replay)
    assert grid.shape == (4, 14)
    assert (grid == CODES["preempted"]).sum() == sum(run.replay.preemptions) > 0
    assert (grid == CODES["refill"]).sum() == sum(run.replay.preemptions)
    generating = sum(entry.generates for record in run.replay.records for entry in record.entries)
    processed = sum((grid == CODES[kind]).sum() for kind in ("prefill", "refill", "decode"))
    assert processed == generating == 16


def test_schedule_figure_has_labels_units_and_a_legend() -> None:
    run = simulate(load_instance("het8-00"), "sarathi")
    figure = schedule_figure(run.replay, "a title")
    above, below = figure.axes
    assert (above.get_ylabel(), below.get_xlabel(), below.get_ylabel()) == ("request", "batch", "KV tokens")
    legend = above.get_legend()
    assert legend is not None and {t.get_text() for t in legend.get_texts()} >= {"prefill", "decode"}
