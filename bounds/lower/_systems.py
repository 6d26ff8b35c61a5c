"""Lower bounds for systems beyond one machine with unshared KVs: relaxations to what the other bounds describe.

*Shared prefixes.* Take any schedule under prefix sharing and strike everything that concerns shared prefix tokens: a
request that processes tokens m+1..m+c processes only those beyond its prefix of P tokens and holds max(0, m - P) KVs.
It generates in the same batches. No batch holds more KVs than before (a request's own KVs are just those beyond P,
and the prefixes' own KVs are gone), none processes more tokens, and no feature grows. So it is a schedule of the
instance with I - P in place of I, perhaps with batches that process nothing, which takes no longer: bounds of that
instance hold.

*Disaggregated pools.* Put the batches of all p prefill workers one after the other: a schedule on one machine of the
instance with O = 1, so they are busy for at least its bound together and one of them for at least a p-th of it. The
same with the d decode workers: together they generate tokens 2..O, each at size s = I + k - 1 in some batch, which
takes

    J >= max( max (O - 1), ceil(sum of blocks(s) / blocks of M) )

batches. Each operator group takes in all batches together at least what any one of its pieces says of their summed
features (a sum of maxima is at least the maximum of the sums): the piece's charge per batch, for decode or for prefill,
whichever is less, J times, and for each token the less of its decode entry and its refill entry (the chunks of a refill
of s tokens sum to T = s and Q = s^2). Additive costs are one such group. Transfers and offloading only add to it.

*Arrivals.* Both hold for the requests that arrive at r or later alone, whose batches all start at r or later: add r,
for any r. And a single request takes, from its arrival, at least its prefill alone and then O - 1 batches of its own,
each at least its decode entry alone or the end of a refill alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bounds.lower import QUICK, all_bounds
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features, Piece
from sim.disaggregation import Pools
from sim.instance import Instance, Request

_RELEASES = 12
"""Releases tried, evenly spread over the requests in order of arrival."""


def without_prefixes(instance: Instance) -> Instance:
    """The instance with every shared prefix taken as free: its bounds hold for the instance with prefix sharing."""
    requests = tuple(
        replace(r, input_tokens=r.input_tokens - r.prefix_tokens, prefix=None, prefix_tokens=0)
        for r in instance.requests
    )
    return instance.replace(requests=requests)


def disaggregated_bound_ticks(instance: Instance, cost: CostModel, pools: Pools) -> int:
    """Lower bound on the end of the last batch of any worker, in ticks, arrivals heeded.

    Raises
    ------
    sim.errors.InputError
        If a request can never fit.
    """
    requests = sorted(instance.requests, key=lambda r: r.arrival_ns)
    best = max(r.arrival_ns * TICKS_PER_NS + path_ticks(r, cost) for r in requests)
    for first in sorted({i * (len(requests) - 1) // _RELEASES for i in range(_RELEASES + 1)}):
        release_ns = requests[first].arrival_ns
        late = tuple(replace(r, arrival_ns=0) for r in requests if r.arrival_ns >= release_ns)
        prefills = instance.replace(requests=tuple(replace(r, output_tokens=1) for r in late))
        prefill = max(int(bound.value_ticks) for bound in all_bounds(prefills, cost, only=QUICK))
        decode = decode_bound_ticks(instance.replace(requests=late), cost)
        busy = max(-(-prefill // pools.prefill_workers), -(-decode // pools.decode_workers))
        best = max(best, release_ns * TICKS_PER_NS + busy)
    return best


def path_ticks(request: Request, cost: CostModel) -> int:
    """Time from a request's arrival to its last token on machines of its own, at least: prefill, then decode."""
    tokens = request.input_tokens
    prefill = cost.batch_ticks(Features(1, 1, 0, 1, 0, 1, 1, 0, 0))
    if cost.additive:
        prefill += cost.batch_ticks(Features(0, 0, 0, 0, 0, tokens - 1, tokens * tokens - 1, 0, 0))
    return prefill + decode_path_ticks(request, cost)


def decode_path_ticks(request: Request, cost: CostModel) -> int:
    """Time from a request's first token to its last, at least.

    Every token after the first comes out of a batch of its own, which takes at least as long as this request's part of
    it alone (features only grow with company, coefficients are not negative): a decode step that reads s - 1 KVs, or
    the end of a refill, which processes at least one token of s = I + k - 1 and has Q = c (2 s - c) >= 2 s - 1.
    """
    first = request.input_tokens + 1
    return sum(
        min(
            cost.batch_ticks(Features(1, 0, 1, 0, 1, 1, 0, 0, s - 1)),
            cost.batch_ticks(Features(1, 1, 0, 1, 0, 1, 2 * s - 1, 0, 0)),
        )
        for s in range(first, first + request.output_tokens - 1)
    )


def decode_bound_ticks(instance: Instance, cost: CostModel) -> int:
    """Time that decode workers are busy for together, at least."""
    decoding = [r for r in instance.requests if r.output_tokens > 1]
    if not decoding:
        return 0
    change: Counter[int] = Counter()
    for r in decoding:
        change[r.input_tokens + 1] += 1
        change[r.input_tokens + r.output_tokens] -= 1
    running, sizes = 0, []
    for size in range(1, max(change)):
        running += change[size]
        if running:
            sizes.append((size, running))
    area = sum(instance.blocks(size) * number for size, number in sizes)
    batches = max(max(r.output_tokens - 1 for r in decoding), -(-area // instance.kv_blocks))
    groups = [group.pieces for group in cost.groups]
    if cost.additive:
        groups = [(tuple(map(sum, zip(*(pieces[0] for pieces in groups), strict=True))),)]
    return sum(max(_piece_ticks(piece, batches, sizes) for piece in pieces) for pieces in groups)


def _piece_ticks(piece: Piece, batches: int, sizes: list[tuple[int, int]]) -> int:
    """What a piece says of so many batches that generate so many tokens at each size, at least."""
    of = dict(zip(Features._fields, piece, strict=True))
    flags = of["batch"] + min(of["prefill_batch"], of["decode_batch"])
    total = batches * flags
    for s, number in sizes:
        decode = of["n_decode"] + of["tokens"] + of["decode_reads"] * (s - 1)
        fill = of["n_prefill"] + of["tokens"] * s + of["prefill_square"] * s * s
        total += number * min(decode, fill)
    return total
