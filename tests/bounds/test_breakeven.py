"""Break-even: the published crossovers, and the algebra against direct evaluation of batch times."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds._piecewise import evaluate, negative_intervals
from bounds.breakeven import breakeven, sides_ms
from bounds.breakeven_optimum import optimum_stops_at, preemption_gain
from bounds.cli import main
from sim.cost.model import CostModel, Features, OperatorGroup, load_cost_model
from sim.instance import Instance, Request


def paper_instance(input_tokens: int) -> Instance:
    """The family of Kim et al., section 7.2: four requests, O = 4, M = max(2I, I + O - 1)."""
    capacity = max(2 * input_tokens, input_tokens + 3)
    return Instance(tuple(Request(input_tokens, 4) for _ in range(4)), capacity, name=f"I={input_tokens}")


def test_published_7b_set() -> None:
    # model.md section 5, recomputed by hand: a_p (x+1)^2 + a_o (x+1) [+ s_p] = b_o + b_d + s_d + a_o + a_d x
    found = breakeven(load_cost_model("linear/llama2-7b-a100"))
    assert found.literal.holds == "never" and found.literal.crossover is None
    assert found.marginal.crossover == pytest.approx(44.42, abs=0.005)
    assert found.marginal_entry.crossover == pytest.approx(43.62, abs=0.005)


def test_verdict_on_the_papers_family() -> None:
    found = breakeven(load_cost_model("linear/llama2-7b-a100"))
    verdicts = {i: found.verdict(paper_instance(i)).pays for i in (1, 32, 43, 44, 64, 1024)}
    assert verdicts == {1: True, 32: True, 43: True, 44: False, 64: False, 1024: False}


def test_verdict_needs_contention_and_a_second_token() -> None:
    found = breakeven(load_cost_model("linear/llama2-7b-a100"))
    roomy = paper_instance(8).replace(kv_capacity_tokens=44)
    assert not found.verdict(roomy).pays and not found.verdict(roomy).contended
    assert found.verdict(roomy.replace(kv_capacity_tokens=43)).pays
    single = Instance((Request(8, 1), Request(8, 1)), 10)
    assert not found.verdict(single).pays and found.verdict(single).contended


COEFFICIENT = st.integers(0, 10**9)
PIECE = st.tuples(*[COEFFICIENT] * len(Features._fields))
GROUP = st.lists(PIECE, min_size=1, max_size=3)
COST = st.lists(GROUP, min_size=1, max_size=3).map(
    lambda groups: CostModel("any", "max-affine", 1, tuple(OperatorGroup("g", tuple(g)) for g in groups))
)


def fill_ticks(cost: CostModel, *lengths: int) -> int:
    n, tokens = len(lengths), sum(lengths)
    return cost.batch_ticks(Features(1, 1, 0, n, 0, tokens, sum(c * c for c in lengths), 0, 0))


@given(COST, st.integers(1, 3000))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_readings_agree_with_batch_times(cost: CostModel, x: int) -> None:
    found = breakeven(cost)
    decode = cost.batch_ticks(Features(1, 0, 1, 0, 1, 1, 0, 0, x))
    literal = fill_ticks(cost, x + 1) < decode
    entry = fill_ticks(cost, x, x + 1) - fill_ticks(cost, x) < decode
    assert found.pays_at(x) == entry
    for reading, expected in ((found.literal, literal), (found.marginal_entry, entry)):
        close = any(
            abs(x - end) < 1e-6 * x for pair in reading.intervals for end in pair if end is not None and end > 1
        )
        inside = any(start <= x and (end is None or x < end) for start, end in reading.intervals)
        assert close or inside == expected


@given(COST)
@settings(deadline=None, derandomize=True, max_examples=50)
def test_entry_charge_never_helps_and_additive_ignores_the_base(cost: CostModel) -> None:
    if cost.additive:
        assert breakeven(cost, base_tokens=1).marginal == breakeven(cost, base_tokens=4000).marginal
    found = breakeven(cost)
    for x in (1, 10, 100, 1000):
        sides = sides_ms(cost, x)
        assert sides["refill, added tokens"] <= sides["refill, added tokens and entry"]
        if found.pays_at(x):
            inside = [start <= x and (end is None or x < end) for start, end in found.marginal.intervals]
            assert any(inside)


def test_negative_intervals_of_two_separate_stretches() -> None:
    # max(x, 10) - max(12, 3x - 30): 10 - 12 < 0 up to x = 12, then x - 12 < 0 never ... 3x - 30 > x from x = 15 on
    terms = [(1, [(0, 1, 0), (10, 0, 0)]), (-1, [(12, 0, 0), (-30, 3, 0)])]
    intervals = negative_intervals(terms, 1)
    assert intervals == ((1.0, 12.0), (15.0, None))
    assert evaluate(terms, Fraction(13)) == 1


def test_the_optimum_stops_where_the_marginal_reading_says() -> None:
    cost = load_cost_model("linear/llama2-7b-a100")
    found = optimum_stops_at(cost)
    gains = dict(found.gains)
    assert found.input_tokens == 44 and found.reason == "" and gains[44] == gains[88] == 0 < gains[43] < gains[22]
    # Kim et al., section 7.2, found twice independently: gains of 24.1 % at I = 1 and 2.3 % at I = 32
    assert gains[1] == pytest.approx(0.241, abs=6e-4)
    assert float(preemption_gain(cost, 32)) == pytest.approx(0.023, abs=6e-4)


def test_the_bisection_does_not_rest_on_the_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = load_cost_model("linear/llama2-7b-a100")
    calls: list[int] = []

    def gain(cost: CostModel, i: int, **options: object) -> Fraction:
        calls.append(i)
        return Fraction(1, i) if i < stop else Fraction(0)

    monkeypatch.setattr("bounds.breakeven_optimum.preemption_gain", gain)
    for stop in (2, 3, 30, 44, 45, 200, 1024):
        assert optimum_stops_at(cost).input_tokens == stop
    stop = 44
    calls.clear()
    assert optimum_stops_at(cost).input_tokens == 44 and calls == [1, 43, 44, 88, 22]


@pytest.mark.parametrize("name", ["max-affine/llama2-7b-a100", "roofline/llama2-7b-a100"])
def test_the_optimum_agrees_with_the_marginal_reading_under_several_pieces(name: str) -> None:
    cost = load_cost_model(name)
    crossover = breakeven(cost).marginal_entry.crossover
    assert crossover is not None and not cost.additive
    assert preemption_gain(cost, math.floor(crossover)) > 0 == preemption_gain(cost, math.ceil(crossover))


def test_optimum_says_when_it_cannot_tell() -> None:
    cost = load_cost_model("roofline/llama2-7b-a100")
    still = optimum_stops_at(cost, largest=4)
    assert still.input_tokens is None and "still gains at I = 4" in still.reason
    short = optimum_stops_at(cost, time_limit_s=1e-6)
    assert short.input_tokens is None and "not proven" in short.reason


def test_command_json_and_figure(capsys: pytest.CaptureFixture[str], tmp_path) -> None:  # type: ignore[no-untyped-def]
    code = main(["breakeven", "paper-7.2-i0032", "--cost-model", "linear/llama2-7b-a100", "--json", "-", "--plots",
                 str(tmp_path / "new")])  # fmt: skip
    data = json.loads(capsys.readouterr().out)
    assert code == 0
    assert data["cost_model"] == "linear/llama2-7b-a100" and data["literal_crossover"] is None
    assert round(data["marginal_crossover"], 2) == 44.42 and data["optimum_stops_at"] is None
    assert data["verdict"]["pays"] is True
    assert (tmp_path / "new" / "breakeven-linear-llama2-7b-a100.png").stat().st_size > 10_000


def test_command_table_and_errors(capsys: pytest.CaptureFixture[str], tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert main(["breakeven", "--all"]) == 0
    out = capsys.readouterr().out
    assert "x < 44.42" in out and "linear/llama3-70b-4xa100" in out
    assert main(["breakeven", "--cost-model", "linear/none"]) == 2
    blocked = tmp_path / "file"
    blocked.write_text("x")
    assert main(["breakeven", "--plots", str(blocked)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2 and blocked.read_text() == "x"
