"""Random workloads for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from sim.instance import Instance, Request

NS_PER_MS = 10**6


@st.composite
def instances(draw: st.DrawFn, most_requests: int = 10, most_tokens: int = 25) -> Instance:
    """Small instances under pressure: memory of a few requests, small budgets, blocks, caps, bursts and gaps."""
    tokens = st.integers(1, most_tokens)
    arrival = st.just(0) if draw(st.booleans()) else st.integers(0, 300).map(lambda ms: ms * NS_PER_MS)
    request = st.builds(Request, tokens, tokens, arrival, st.integers(0, 2))
    return Instance(
        tuple(draw(st.lists(request, min_size=1, max_size=most_requests))),
        kv_capacity_tokens=draw(st.integers(1, 5 * most_tokens)),
        token_budget=draw(st.sampled_from([2, 4, 8, 16, 32, 512])),
        max_num_seqs=draw(st.sampled_from([None, None, 1, 2, 3, 8])),
        block_size=draw(st.sampled_from([1, 1, 2, 3, 16])),
    )
