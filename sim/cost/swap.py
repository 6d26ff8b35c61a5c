"""The link over which preempted KVs move to host memory and back, from data sheets."""

from __future__ import annotations

from fractions import Fraction

from sim.clock import TICKS_PER_MS
from sim.cost.hardware import LINKS
from sim.cost.setups import find_setup
from sim.errors import InputError
from sim.registry import unknown
from sim.replay import SwapLink

DEFAULT_LATENCY_US = 10
"""Starting a host copy: a choice, the order of a CUDA copy call."""


def swap_link(
    cost_model: str, link: str = "", *, latency_us: int = DEFAULT_LATENCY_US, overlap: bool = False
) -> SwapLink:
    """The swap link of a setup; each GPU moves its shard of the KVs over a link of its own.

    Parameters
    ----------
    cost_model
        Name "kind/llm-gpu", whose part behind the slash is the setup.
    link
        Name in `sim.cost.hardware.LINKS`; the GPU's host link by default.
    latency_us
        Per transfer of one request, in microseconds.
    overlap
        Whether transfers run beside the batch.

    Raises
    ------
    InputError
        If the setup or the link is not known.

    Examples
    --------
    >>> link = swap_link("linear/llama2-7b-a100")
    >>> round(link.ticks_per_kv_token / TICKS_PER_MS, 5)  # ms for one token of Llama-2-7B over PCIe 4
    0.01664
    """
    if "/" not in cost_model:
        raise InputError("swapping needs the KV size and the host link of a known setup, kind/llm-gpu",
                         field="cost_model", value=cost_model)  # fmt: skip
    setup = find_setup(cost_model.split("/", 1)[1])
    name = link or setup.gpu.pcie
    if name not in LINKS:
        raise InputError(unknown(name, list(LINKS)), field="swap_link")
    seconds = Fraction(setup.shard.kv_bytes_per_token()) / Fraction(LINKS[name].bandwidth)
    return SwapLink(latency_us * TICKS_PER_MS // 1000, round(seconds * 1000 * TICKS_PER_MS), overlap)
