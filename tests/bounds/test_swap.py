"""Recompute or swap: the algebra against plain evaluation, and the figures that can be checked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds.cli import main
from bounds.swap import Swap, break_even_bandwidth, compare, gpu_read_ms, links, recompute_ms, setup_of
from sim.cost.hardware import LINKS
from sim.cost.model import Features, load_cost_model
from sim.errors import InputError

NAMES = (
    "linear/llama2-7b-a100",
    "max-affine/llama2-7b-a100",
    "roofline/llama3-8b-h100",
    "linear-fit/llama3-70b-4xh100",
)


def test_times_by_hand() -> None:
    cost = load_cost_model("linear/llama2-7b-a100")
    setup = setup_of(cost)
    # 32 layers x 2 x 4096 x 2 bytes = 524,288 bytes a token; PCIe 4.0 x16: 31.508 GB/s
    swap = Swap(setup, LINKS["pcie4"], latency_us=10)
    assert swap.time_ms(1000) == pytest.approx(0.010 + 524288 * 1000 / 31.5077e9 * 1e3, rel=1e-5)
    assert Swap(setup, LINKS["pcie4"], 10, trips=2).time_ms(1000) == pytest.approx(2 * swap.time_ms(1000))
    assert Swap(setup, LINKS["pcie4"], 10, 16).time_ms(33) == pytest.approx(3 * 64 * 0.010 + swap.ms_per_kv_token * 33)
    assert gpu_read_ms(setup, 100) == pytest.approx(524288 * 100 / 2039e9 * 1e3)
    whole = cost.batch_ticks(Features(1, 1, 0, 1, 0, 100, 10_000, 0, 0)) / 1e11
    assert recompute_ms(cost, 100) == pytest.approx(whole)
    assert recompute_ms(cost, 100, joined=True) == pytest.approx(32 * (1.6773e-7 * 1e4 + 0.00191 * 100 + 0.001534))
    assert break_even_bandwidth(cost, setup, 100) == pytest.approx(524288 * 100 / (whole / 1e3))


@given(st.sampled_from(NAMES), st.sampled_from(sorted(LINKS)), st.sampled_from([None, 16]), st.floats(0.02, 1.0),
       st.integers(1, 20_000))  # fmt: skip
@settings(deadline=None, derandomize=True, max_examples=80)
def test_intervals_agree_with_times(name: str, link: str, block: int | None, efficiency: float, m: int) -> None:
    cost = load_cost_model(name)
    m = m if block is None else 16 * m
    swap = Swap(setup_of(cost), LINKS[link], 10, block, efficiency)
    found = compare(cost, swap)
    for intervals, joined in ((found.faster_alone, False), (found.faster_joined, True)):
        other = recompute_ms(cost, m, joined=joined)
        if abs(swap.time_ms(m) - other) < 1e-6 * other:
            continue
        inside = any(start <= m and (end is None or m < end) for start, end in intervals)
        assert inside == (swap.time_ms(m) < other)


def test_wider_links_win_more() -> None:
    cost = load_cost_model("max-affine/llama2-7b-a100")
    ends = [compare(cost, Swap(setup_of(cost), LINKS[link], 10, 16, trips=2)).faster_alone[0][1]
            for link in ("pcie3", "pcie4", "pcie5", "pcie6", "nvlink-c2c")]  # fmt: skip
    assert all(end is not None for end in ends) and ends == sorted(ends, key=lambda end: end or 0)
    assert ends[1] == pytest.approx(124.5, abs=0.1)


def test_names_that_do_not_tell_the_setup_are_refused() -> None:
    with pytest.raises(InputError, match="does not tell"):
        setup_of(load_cost_model("linear/llama2-7b-a100").__class__("mine", "linear", 1, ()))
    with pytest.raises(InputError, match="pcie"):
        links(["pcie7"])


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(["swap", "--cost-model", "max-affine/llama3-8b-h100", "--link", "pcie5", "--json",
                 str(tmp_path / "s.json"), "--plots", str(tmp_path)])  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0 and "PCIe 5.0 x16" in out and "131,072 bytes" in out
    entry = json.loads((tmp_path / "s.json").read_text())["cost_models"][0]
    assert entry["times"][2]["swap_ms"]["pcie5"] == pytest.approx(0.01 + 131072 * 100 / 63.0154e9 * 1e3, rel=1e-4)
    assert (tmp_path / "swap-max-affine-llama3-8b-h100.png").stat().st_size > 10_000
    assert main(["swap", "--efficiency", "1.5"]) == 2
    assert main(["swap", "--link", "isa"]) == 2


def test_an_llm_without_a_gpu_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["swap", "--gpu", "h100"]) == 2
    assert "--llm: give --llm and --gpu together" in capsys.readouterr().err
