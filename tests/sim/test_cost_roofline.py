"""Shapes, data sheets and the roofline: exact counts against the equations, and the affine form against both."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.clock import ms_from_ticks
from sim.cost.llm import LLMS
from sim.cost.model import Features, cost_model_from_dict, cost_model_names, load_cost_model
from sim.cost.roofline import Slice, attention_intensity, operators, roofline_cost_model
from sim.cost.setups import all_setups, find_setup
from sim.errors import InputError

# Parameter counts as the model cards give them (checkpoints' safetensors totals).
PARAMETERS = {
    "llama2-7b": 6_738_415_616, "llama2-70b": 68_976_648_192, "llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096, "qwen2.5-7b": 7_615_616_512, "qwen2.5-72b": 72_706_203_648,
}  # fmt: skip


def test_shapes_give_the_published_parameter_counts() -> None:
    assert {name: llm.parameters for name, llm in LLMS.items()} == PARAMETERS


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_shards_add_up(degree: int) -> None:
    for llm in LLMS.values():
        if llm.query_heads % degree:
            with pytest.raises(InputError, match="does not divide"):
                llm.shard(degree)
            continue
        shard = llm.shard(degree)
        assert shard.query_heads * degree == llm.query_heads
        assert shard.kv_heads * degree >= llm.kv_heads
        if llm.kv_heads % degree == 0:
            whole = sum(n * k for n, k in llm.shard(1).matmuls.values())
            assert sum(n * k for n, k in shard.matmuls.values()) * degree == whole
            assert shard.kv_bytes_per_token() * degree == llm.kv_bytes_per_token()
    assert LLMS["llama2-7b"].shard(1).weight_bytes() == 2 * PARAMETERS["llama2-7b"]


def test_kv_capacity_is_what_memory_leaves() -> None:
    setup = find_setup("llama2-7b-a100")
    expected = (int(0.9 * 80e9) - 2 * PARAMETERS["llama2-7b"]) // 524288
    assert setup.kv_capacity_tokens() == expected
    assert setup.kv_capacity_tokens(reserved_bytes=524288) == expected - 1
    assert find_setup("llama3-70b-a100").kv_capacity_tokens() == 0


@pytest.mark.parametrize("name", ["llama2-7b", "llama2-7b-b100", "llama2-7b-3xa100", "qwen2.5-7b-8xa100", "gpt-a100"])
def test_bad_setups_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        find_setup(name)


def test_intensities_of_section_5_2() -> None:
    setup = find_setup("llama2-7b-a100")
    assert attention_intensity(setup, 128 * 100) == 128
    assert attention_intensity(setup, 1) == pytest.approx(2 / (1 / 128 + 1))
    # The counted operators approach the limits as m grows: FLOPs per element, not per byte.
    prefill = operators(setup, [Slice(2048, 10**7)])[1]
    decode = operators(setup, [Slice(1, 10**7, 64, True)])[1]
    assert prefill.flops / prefill.elements == pytest.approx(128, rel=1e-3)
    assert decode.flops / decode.elements == pytest.approx(2 / (1 / 128 + 1), rel=1e-3)
    assert (prefill.bound, decode.bound) == ("memory", "memory")


def test_counts_by_hand() -> None:
    # Llama-2-7B, 3 requests with c = 130 and m = 70: equations 2 and 3 with the factor B in every term
    setup = find_setup("llama2-7b-a100")
    by_name = {cost.name: cost for cost in operators(setup, [Slice(130, 70, 3)])}
    attention = by_name["prefill attention"]
    assert attention.flops == 4 * 130 * 200 * 3 * 128 * 32
    assert attention.elements == 3 * (2 * 130 * 128 * 32 + 2 * 130 * 200 * 32 + 2 * 2 * 200 * 128 * 32)
    down = by_name["D_proj"]
    assert down.flops == 2 * 390 * 11008 * 4096
    assert down.elements == 11008 * 4096 + 390 * (11008 + 4096)
    assert down.bound == "compute"
    assert down.time_ms == pytest.approx(down.flops / 312e12 * 1e3)
    assert operators(setup, [Slice(1, 70, 3, True)])[4].bound == "memory"


def features(batch: list[Slice]) -> Features:
    prefills = [part for part in batch if not part.decode]
    decodes = [part for part in batch if part.decode]
    return Features(
        1, int(bool(prefills)), int(bool(decodes)), sum(p.requests for p in prefills), sum(p.requests for p in decodes),
        sum(p.tokens * p.requests for p in batch),
        sum((p.tokens**2 + 2 * p.tokens * p.kv_before) * p.requests for p in prefills),
        sum(p.kv_before * p.requests for p in prefills), sum(p.kv_before * p.requests for p in decodes),
    )  # fmt: skip


SETUPS = st.sampled_from([find_setup(name) for name in ("llama2-7b-a100", "llama3-70b-4xh100", "qwen2.5-7b-h200")])
DECODES = st.builds(lambda m, b: Slice(1, m, b, True), st.integers(1, 5000), st.integers(1, 300))
WHOLE_FILL = st.one_of(st.integers(1, 128), st.integers(1, 30).map(lambda k: 128 * k)).map(Slice)


def theory_ms(setup, batch: list[Slice]) -> float:  # type: ignore[no-untyped-def]
    return sum(cost.time_ms for cost in operators(setup, batch)) * setup.llm.layers


@given(SETUPS, st.one_of(st.lists(DECODES, min_size=1, max_size=3), WHOLE_FILL.map(lambda part: [part])))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_affine_form_is_exact_for_decodes_and_single_fills(setup, batch: list[Slice]) -> None:  # type: ignore[no-untyped-def]
    exact = theory_ms(setup, batch)
    affine = ms_from_ticks(roofline_cost_model(setup).batch_ticks(features(batch)))
    # Coefficients are rounded to whole ticks (1e-11 ms), a few parts in 1e7 of the smallest.
    assert affine == pytest.approx(exact, rel=1e-5)


@given(SETUPS, st.lists(st.integers(1, 3000).map(Slice), min_size=1, max_size=4), st.lists(DECODES, max_size=2))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_affine_form_never_exceeds_theory_for_whole_fills(setup, fills, decodes) -> None:  # type: ignore[no-untyped-def]
    batch = fills + decodes
    exact = theory_ms(setup, batch)
    affine = ms_from_ticks(roofline_cost_model(setup).batch_ticks(features(batch)))
    assert exact * 0.75 <= affine <= exact * (1 + 1e-5)


@given(SETUPS, st.integers(1, 2000), st.integers(1, 4000))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_cutting_a_fill_leaves_its_attention_flops(setup, first: int, rest: int) -> None:  # type: ignore[no-untyped-def]
    cut = features([Slice(first), Slice(rest, first)])
    assert cut.prefill_square == features([Slice(first + rest)]).prefill_square


def test_names_load_and_round_trip(tmp_path) -> None:  # type: ignore[no-untyped-def]
    names = [name for name in cost_model_names() if name.startswith("roofline/")]
    assert len(names) == len(all_setups()) >= 15
    for name in names:
        loaded = load_cost_model(name)
        assert loaded.name == name and loaded.kind == "roofline"
        again = cost_model_from_dict(loaded.to_dict(), "again")
        assert again.groups == loaded.groups
    assert load_cost_model("roofline/llama3-8b-8xh200").layers == 32
    with pytest.raises(InputError):
        load_cost_model("roofline/llama3-8b-tpu")


def test_tensor_parallel_pays_for_all_reduce() -> None:
    costs = {cost.name: cost for cost in operators(find_setup("llama3-70b-4xa100"), [Slice(1000)])}
    # twice a layer, 2 (G - 1) / G of T h elements: 2 x 1.5 x 1000 x 8192 elements of 2 bytes over 300 GB/s
    assert costs["all-reduce"].elements == Fraction(2 * 3 * 1000 * 8192, 2)
    assert costs["all-reduce"].time_ms == pytest.approx(3 * 1000 * 8192 * 2 / 300e9 * 1e3)
    assert costs["all-reduce"].bound == "link"
