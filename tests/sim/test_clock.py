"""Exact time."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.clock import NS_PER_S, TICKS_PER_MS, TICKS_PER_NS, ms_from_ticks, ns_from_ticks, ticks_from_ms
from sim.cost import cost_model_names, load_cost_model

exact = settings(deadline=None, derandomize=True, max_examples=200)


def test_units_agree() -> None:
    assert TICKS_PER_MS == TICKS_PER_NS * NS_PER_S // 1000
    assert ticks_from_ms(1) == TICKS_PER_MS
    assert ticks_from_ms("1e-11") == 1
    assert ms_from_ticks(TICKS_PER_MS) == 1.0


@exact
@given(st.integers(0, 2**80))
def test_nanoseconds_are_rounded_up(ticks: int) -> None:
    ns = ns_from_ticks(ticks)
    assert (ns - 1) * TICKS_PER_NS < ticks <= ns * TICKS_PER_NS


@exact
@given(st.decimals(0, 10**6, allow_nan=False, places=11))
def test_eleven_decimals_are_whole_ticks(milliseconds: Decimal) -> None:
    assert Fraction(ticks_from_ms(milliseconds), TICKS_PER_MS) == Fraction(milliseconds)


def test_published_coefficients_are_whole_ticks() -> None:
    """Table of coefficients in ms per layer (Kim et al.'s public simulator), as printed."""
    published = {
        "linear/llama2-7b-a100": (32, {
            "prefill_square": "1.6773e-7", "prefill_batch": "0.0926", "n_prefill": "0.001534",
            "prefill_reads": "9.224e-6", "decode_reads": "8.513e-6", "decode_batch": "0.01921", "n_decode": "0.00074",
            "tokens": "0.00191", "batch": "0.06486"}),
        "linear/llama3-70b-4xa100": (80, {
            "prefill_square": "4.309e-8", "prefill_batch": "0.2112", "n_prefill": "9.03e-4",
            "prefill_reads": "3.805e-7", "decode_reads": "1.222e-6", "decode_batch": "0.081", "n_decode": "3.92e-4",
            "tokens": "0.002", "batch": "0.159"}),
    }  # fmt: skip
    for name, (layers, coefficients) in published.items():
        assert name in cost_model_names()
        cost = load_cost_model(name)
        assert cost.layers == layers and cost.additive
        for feature, text in coefficients.items():
            assert cost.coefficient(feature) == Fraction(text) * layers * TICKS_PER_MS
