"""Random instances small enough for the independent search."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from sim.instance import Instance, Request
from sim.replay import Rules, SwapLink
from tests.oracle import Limits, Swap


@st.composite
def small_instances(
    draw: st.DrawFn, most_requests: int = 3, most_inputs: int = 6, most_outputs: int = 3, *, tight: bool | None = None,
    arrivals: bool = False,
) -> Instance:  # fmt: skip
    """Memory for one to three requests; a token budget that binds (M > C) or not; at times blocks and a cap.

    Parameters
    ----------
    tight
        True: C < M always; False: never; None: either.
    """
    arrival = st.sampled_from([0, 0, 10**6, 3 * 10**6, 11 * 10**6]) if arrivals else st.just(0)
    request = st.builds(Request, st.integers(1, most_inputs), st.integers(1, most_outputs), arrival)
    requests = draw(st.lists(request, min_size=1, max_size=most_requests))
    if draw(st.booleans()):
        requests = [requests[0]] * len(requests)
    peak = max(r.peak_kv_tokens for r in requests)
    block = draw(st.sampled_from([1, 1, 1, 2, 3]))
    memory = -(-peak // block) * block + draw(st.integers(0, 8))
    binds = draw(st.booleans()) if tight is None else tight
    memory = max(memory, 3 * block) if binds else memory
    budget = draw(st.integers(2, min(memory - memory % block - 1, 8))) if binds else 4096
    return Instance(tuple(requests), memory, budget, draw(st.sampled_from([None, None, 1, 2])), block)


@st.composite
def switches(draw: st.DrawFn, *, swap: bool = False) -> tuple[Rules, Limits]:
    """The same switches for the project's rules and for the search's."""
    chosen = {name: draw(st.booleans()) for name in ("preemption", "chunking", "hybrid")}
    holds = draw(st.sampled_from([True, True, False]))
    rules, limits = Rules(**chosen, holding=holds), Limits(**chosen, holding="free" if holds else "never")
    if swap:
        link = (draw(st.sampled_from([0, 10**8, 10**10])), draw(st.sampled_from([10**6, 10**8])), draw(st.booleans()))
        rules, limits = replace(rules, swap=SwapLink(*link)), replace(limits, swap=Swap(*link))
    return rules, limits
