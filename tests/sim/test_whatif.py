"""What-ifs: what they change, and what they must not."""

import pytest

from sim.cost.model import CostModel, load_cost_model
from sim.engine import simulate
from sim.errors import InputError
from sim.instance import Instance, Request
from sim.whatif import parse_what_if, perfect_bandwidth

KINDS = ["linear/llama2-7b-a100", "max-affine/llama2-7b-a100", "roofline/llama2-7b-a100"]
TIGHT = Instance(tuple(Request(20, 30) for _ in range(6)), 100, block_size=4)


def pieces(cost: CostModel) -> list[tuple[int, ...]]:
    return [piece for group in cost.groups for piece in group.pieces]


def makespan(text: str, instance: Instance) -> int:
    changed, cost = parse_what_if(text).apply(instance)
    return simulate(changed, "vllm", cost=cost).replay.makespan_ticks


def test_infinite_kv_never_preempts() -> None:
    assert sum(simulate(TIGHT, "vllm").replay.preemptions) > 0
    instance, cost = parse_what_if("infinite-kv").apply(TIGHT)
    run = simulate(instance, "vllm", cost=cost)
    assert sum(run.replay.preemptions) == 0
    assert max(r.kv_blocks for r in run.replay.records) <= instance.kv_blocks


@pytest.mark.parametrize("kind", KINDS)
def test_faster_machines_are_faster(kind: str) -> None:
    instance = TIGHT.replace(cost_model=kind, kv_capacity_tokens=1000)
    base = makespan("kv=1", instance)
    for text in ("bandwidth=2", "compute=2", "perfect-bandwidth", "gpu=h100"):
        if not (kind.startswith("linear") and text.startswith("gpu")):
            assert makespan(text, instance) <= base, text
    assert makespan("bandwidth=2", instance) < base


def test_linear_scaling_divides_what_is_memory_and_what_is_compute() -> None:
    plain = load_cost_model(KINDS[0])
    _, fast = parse_what_if("bandwidth=4,compute=2").apply(TIGHT)
    for feature, ratio in {"batch": 4, "decode_reads": 4, "prefill_reads": 4, "tokens": 2, "prefill_square": 2,
                           "n_decode": 1, "prefill_batch": 1}.items():  # fmt: skip
        assert fast.coefficient(feature) == pytest.approx(plain.coefficient(feature) / ratio, abs=1)


def test_roofline_scaling_is_the_roofline_of_the_scaled_gpu() -> None:
    instance = TIGHT.replace(cost_model=KINDS[2])
    _, both = parse_what_if("bandwidth=2,compute=2").apply(instance)
    _, twice = parse_what_if("compute=2,bandwidth=2").apply(instance)
    plain = load_cost_model(KINDS[2])
    for fast, slow in zip(pieces(both), pieces(plain), strict=True):
        assert fast == pytest.approx([x / 2 for x in slow], abs=1)
    assert pieces(both) == pieces(twice)


def test_perfect_bandwidth_never_slows_and_keeps_a_roofline() -> None:
    for kind in KINDS[:2]:
        plain = load_cost_model(kind)
        better = perfect_bandwidth(plain)
        assert all(
            a <= b for x, y in zip(pieces(better), pieces(plain), strict=True) for a, b in zip(x, y, strict=True)
        )
        assert pieces(better) != pieces(plain)
    assert perfect_bandwidth(load_cost_model(KINDS[2])) == load_cost_model(KINDS[2])


def test_other_models_and_memory() -> None:
    instance, cost = parse_what_if("kv=0.5,cost-model=linear/llama3-70b-4xa100").apply(TIGHT)
    assert (instance.kv_capacity_tokens, cost.name) == (50, "linear/llama3-70b-4xa100")
    h100 = TIGHT.replace(cost_model="max-affine/llama3-70b-4xa100")
    assert parse_what_if("gpu=h100").apply(h100)[1].name == "max-affine/llama3-70b-4xh100"


@pytest.mark.parametrize("text", ["", "more", "bandwidth", "bandwidth=0", "bandwidth=x", "compute=inf", "compute=1/0",
                                  "infinite-kv=2", "gpu=", "kv=1e99"])  # fmt: skip
def test_bad_changes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--what-if"):
        parse_what_if(text)


def test_changes_that_cannot_be_made_are_refused() -> None:
    for text in ("gpu=tpu", "gpu=h100", "cost-model=nothing"):
        with pytest.raises(InputError):
            parse_what_if(text).apply(TIGHT)
