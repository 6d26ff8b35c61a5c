"""The swap link follows from KV sizes and data sheets."""

from __future__ import annotations

import pytest

from sim.clock import TICKS_PER_MS
from sim.cost.swap import swap_link
from sim.errors import InputError


def test_each_gpu_moves_its_shard_over_its_own_link() -> None:
    """Llama-3-70B: 80 layers x 8 KV heads x 128 x 2 (K, V) x 2 bytes = 327,680 bytes a token, a quarter on each GPU."""
    link = swap_link("linear/llama3-70b-4xa100", latency_us=0)
    bytes_per_s = 16e9 * 16 / 8 * 128 / 130
    assert link.transfer_ticks(1000) == pytest.approx(327_680 / 4 * 1000 / bytes_per_s * 1000 * TICKS_PER_MS, rel=1e-9)


def test_faster_links_and_latency() -> None:
    slow, fast = swap_link("linear/llama2-7b-a100"), swap_link("linear/llama2-7b-a100", "pcie5", overlap=True)
    assert slow.ticks_per_kv_token == pytest.approx(2 * fast.ticks_per_kv_token, abs=2)
    assert slow.latency_ticks == fast.latency_ticks == 10 * TICKS_PER_MS // 1000
    assert (slow.overlap, fast.overlap) == (False, True)
    assert swap_link("max-affine/llama2-7b-h100").ticks_per_kv_token == fast.ticks_per_kv_token


@pytest.mark.parametrize(
    ("model", "link"), [("mine.json", ""), ("linear/llama2-7b-tpu", ""), ("linear/llama2-7b-a100", "usb")]
)
def test_unknown_setups_and_links(model: str, link: str) -> None:
    with pytest.raises(InputError):
        swap_link(model, link)
